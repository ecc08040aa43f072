"""What every artifact manager offers."""

from __future__ import annotations

import logging
import re
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Optional, Type, Union

from squirrel.catalog.catalog import Catalog, CatalogSource

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ArtifactManager", "DirectoryLogger", "TmpArtifact"]

logger = logging.getLogger(__name__)

_COLLECTION = re.compile(r"[A-Za-z0-9_:-]+")


def check_collection(name: str) -> str:
    """The name of a collection, where it is one.

    Raises:
        ValueError: it is empty, or holds what not all backends have in names.
    """
    if not isinstance(name, str) or not _COLLECTION.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name of a collection: it needs letters, digits, dashes, underscores or colons, and "
            "nothing else"
        )
    return name


def check_artifact(name: str) -> str:
    """The name of an artifact, where it is one: it must not lead out of its collection."""
    if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is no name of an artifact: it needs at least one character and no slash")
    return name


class ArtifactManager(ABC):
    """Files and objects under names, each in versions, in collections.

    Collections stand side by side, one for each kind of artifact, or each experiment. One of them is the
    active one, where everything goes that names no other.

    Args:
        collection: the active collection.
    """

    def __init__(self, collection: str = "default"):
        self.active_collection = collection

    @property
    def active_collection(self) -> str:
        """The collection in use where none is named."""
        return self._active_collection

    @active_collection.setter
    def active_collection(self, value: str) -> None:
        self._active_collection = check_collection(value)

    def _collection(self, collection: Optional[str]) -> str:
        return self.active_collection if collection is None else check_collection(collection)

    @abstractmethod
    def list_collection_names(self) -> Iterable[str]:
        """The names of all collections."""

    @abstractmethod
    def exists_in_collection(self, artifact: str, collection: Optional[str] = None) -> bool:
        """Whether a collection has an artifact of that name."""

    @abstractmethod
    def collection_to_catalog(self, collection: Optional[str] = None) -> Catalog:
        """All artifacts of a collection, in all versions, as a catalog."""

    @abstractmethod
    def get_artifact(self, artifact: str, collection: Optional[str] = None, version: Optional[str] = None) -> Any:
        """The object that was logged as an artifact.

        Args:
            artifact: its name.
            collection: by default the active one.
            version: e.g. "v3"; by default the latest.
        """

    @abstractmethod
    def log_files(
        self,
        artifact_name: str,
        local_path: Path,
        collection: Optional[str] = None,
        artifact_path: Optional[Path] = None,
    ) -> CatalogSource:
        """Logs a file, or all files of a folder, as the next version of an artifact.

        Args:
            artifact_name: its name.
            local_path: the file or folder.
            collection: by default the active one.
            artifact_path: where the files go within the artifact; by default to its top.
        """

    @abstractmethod
    def log_artifact(self, obj: Any, name: str, collection: Optional[str] = None) -> CatalogSource:
        """Logs an object as the next version of an artifact.

        Args:
            obj: what the manager's serializer takes.
            name: of the artifact.
            collection: by default the active one.
        """

    @abstractmethod
    def download_artifact(
        self,
        artifact: str,
        collection: Optional[str] = None,
        version: Optional[str] = None,
        to: Optional[Path] = None,
    ) -> Union[Path, TmpArtifact]:
        """Copies an artifact's files to this machine.

        Args:
            artifact: its name.
            collection: by default the active one.
            version: e.g. "v3"; by default the latest.
            to: a folder: the files go to ``to/artifact``. By default they go to a temporary folder that is
                removed at the end: ``with manager.download_artifact(name) as folder: ...``
        """

    def exists(self, artifact: str) -> bool:
        """Whether any collection has an artifact of that name."""
        return any(self.exists_in_collection(artifact, collection) for collection in self.list_collection_names())

    def store_to_catalog(self) -> Catalog:
        """All artifacts of all collections as one catalog."""
        catalog = Catalog()
        for collection in self.list_collection_names():
            for source in self.collection_to_catalog(collection).values():
                for version in source.versions.values():
                    catalog[version.identifier, version.version] = version
        return catalog

    def log_folder(self, artifact: str, collection: Optional[str] = None) -> DirectoryLogger:
        """A context manager with a folder that is logged as an artifact at its end."""
        return DirectoryLogger(self, artifact, collection)

    def download_collection(
        self, collection: Optional[str] = None, to: Path = "./"  # type: ignore[assignment]
    ) -> Catalog:
        """Copies the latest version of all artifacts of a collection to ``to/artifact``.

        Returns:
            The collection's catalog.
        """
        catalog = self.collection_to_catalog(collection)
        for source in catalog.values():
            told = source.metadata or {}
            self.download_artifact(told["artifact"], collection, told["version"], Path(to))
        return catalog


class TmpArtifact:
    """An artifact's files in a temporary folder: there within the ``with`` block, removed behind it."""

    def __init__(self, artifact_manager: ArtifactManager, collection: str, artifact: str, version: str) -> None:
        self.artifact_manager = artifact_manager
        self.collection = collection
        self.artifact = artifact
        self.version = version
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="squirrel-")
        target = Path(self._folder.name)
        found = self.artifact_manager.download_artifact(self.artifact, self.collection, self.version, target)
        assert isinstance(found, Path)
        return found

    def __exit__(
        self,
        exctype: Optional[Type[BaseException]] = None,
        excinst: Optional[BaseException] = None,
        exctb: Optional[TracebackType] = None,
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


class DirectoryLogger:
    """A folder that becomes an artifact: what was written to it is logged when the ``with`` block ends well.

    Args:
        artifact_manager: which logs.
        artifact: name of the artifact.
        collection: by default the active one.
    """

    def __init__(self, artifact_manager: ArtifactManager, artifact: str, collection: Optional[str] = None) -> None:
        self.artifact_manager = artifact_manager
        self.artifact = check_artifact(artifact)
        self.collection = collection if collection is not None else artifact_manager.active_collection
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="squirrel-")
        path = Path(self._folder.name) / self.artifact
        path.mkdir()
        return path

    def __exit__(
        self,
        exctype: Optional[Type[BaseException]] = None,
        excinst: Optional[BaseException] = None,
        exctb: Optional[TracebackType] = None,
    ) -> None:
        if self._folder is None:
            return
        try:
            path = Path(self._folder.name) / self.artifact
            if exctype is not None:
                logger.warning("artifact %s is not logged: %s was raised", self.artifact, exctype.__name__)
            elif not any(path.iterdir()):
                logger.warning("artifact %s is not logged: its folder is empty", self.artifact)
            else:
                self.artifact_manager.log_files(self.artifact, path, self.collection)
        finally:
            self._folder.cleanup()
            self._folder = None
