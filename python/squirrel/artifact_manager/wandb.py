"""Artifacts kept by Weights & Biases."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Optional, Union

import wandb

from squirrel.artifact_manager.base import ArtifactManager, TmpArtifact, check_artifact
from squirrel.catalog.catalog import Catalog, CatalogSource
from squirrel.catalog.source import Source
from squirrel.serialization.msgpack import MessagepackSerializer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["WandbArtifactManager"]

logger = logging.getLogger(__name__)

_OBJECT = "messagepack"  # the file of an artifact that is an object


class WandbArtifactManager(ArtifactManager):
    """Artifacts of a Weights & Biases project. Its artifact types are the collections.

    To log, a run must be there (``wandb.init()``). A run that is offline keeps what is logged until
    ``wandb sync``; nothing can be looked up or fetched before.

    Args:
        entity: user or team; by default that of the login.
        project: by default the one of ``WANDB_PROJECT``, or of the run.
        collection: the active collection.
    """

    def __init__(self, entity: Optional[str] = None, project: Optional[str] = None, collection: str = "default"):
        super().__init__(collection=collection)
        self.project = project if project is not None else _default_project()
        self.entity = entity if entity is not None else _default_entity()

    def _path(self, artifact: str, version: Optional[str] = None) -> str:
        path = f"{self.entity}/{self.project}/{check_artifact(artifact)}"
        return path if version is None else f"{path}:{version}"

    def _artifacts(self, collection: str) -> Iterator[str]:
        """The names of a collection's artifacts."""
        if collection in self.list_collection_names():
            for found in wandb.Api().artifact_type(type_name=collection, project=self._project_path()).collections():
                yield found.name

    def _project_path(self) -> str:
        return f"{self.entity}/{self.project}"

    def _versions(self, collection: str, artifact: str) -> list[str]:
        """The versions of an artifact, oldest first."""
        api = wandb.Api()
        ask = api.artifacts if hasattr(type(api), "artifacts") else api.artifact_versions
        found = {version.version for version in ask(type_name=collection, name=self._path(artifact))}
        return sorted(found, key=lambda version: int(version[1:]))

    def list_collection_names(self) -> Iterable[str]:
        """The names of all collections: the project's artifact types."""
        return [found.name for found in wandb.Api().artifact_types(project=self._project_path())]

    def exists_in_collection(self, artifact: str, collection: Optional[str] = None) -> bool:
        """Whether a collection has an artifact of that name."""
        return check_artifact(artifact) in self._artifacts(self._collection(collection))

    def get_artifact_source(
        self,
        artifact: str,
        collection: Optional[str] = None,
        version: Optional[str] = None,
        catalog: Optional[Catalog] = None,
    ) -> CatalogSource:
        """A catalog's entry for a version of an artifact; v0, v1 ... are the catalog's versions 1, 2 ...

        Args:
            artifact: its name.
            collection: by default the active one.
            version: e.g. "v3"; by default the latest.
            catalog: to which it is added; by default a new one.

        Raises:
            ValueError: there is no such artifact or version.
        """
        collection = self._collection(collection)
        there = self._versions(collection, artifact)
        wanted = there[-1] if version in (None, "latest") and there else version
        if wanted not in there:
            names = ", ".join(there) or "none"
            raise ValueError(f"artifact {artifact} in collection {collection} has no version {version}; it has {names}")
        base = str(wandb.Api().settings["base_url"]).rstrip("/")
        return self._entry(artifact, collection, str(wanted), int(str(wanted)[1:]) + 1, base, catalog)

    def _entry(
        self, artifact: str, collection: str, version: str, number: int, base: str, catalog: Optional[Catalog]
    ) -> CatalogSource:
        catalog = Catalog() if catalog is None else catalog
        key = (f"{collection}/{artifact}", number)
        catalog[key] = Source(
            driver_name="wandb",
            driver_kwargs={"url": f"{base}/{self.entity}/{self.project}/{collection}/{artifact}/{version}"},
            metadata={"project": self.project, "collection": collection, "artifact": artifact, "version": version},
        )
        return catalog[key]

    def collection_to_catalog(self, collection: Optional[str] = None) -> Catalog:
        """All artifacts of a collection, in all versions, as a catalog."""
        collection = self._collection(collection)
        catalog = Catalog()
        for artifact in self._artifacts(collection):
            for version in self._versions(collection, artifact):
                self.get_artifact_source(artifact, collection, version, catalog)
        return catalog

    # --- logging ---

    def _log(self, artifact: Any, collection: str) -> CatalogSource:
        run = wandb.run
        if run is None:
            raise RuntimeError("artifacts are logged by a run: call wandb.init() first")
        logged = run.log_artifact(artifact)
        if run.settings.mode not in ("online", "shared"):
            logger.warning("artifact %s is logged offline: it has no version before `wandb sync`", artifact.name)
            base = str(run.settings.base_url).rstrip("/")
            return self._entry(artifact.name, collection, "latest", 1, base, None)
        logged.wait()
        name, _, version = str(logged.name).partition(":")
        base = str(run.settings.base_url).rstrip("/")
        return self._entry(name, collection, version, int(version[1:]) + 1, base, None)

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
        collection = self._collection(collection)
        if not os.path.exists(local_path):
            raise FileNotFoundError(2, "there is no such file or folder to log", str(local_path))
        artifact = wandb.Artifact(check_artifact(artifact_name), type=collection)
        name = None if artifact_path is None else str(artifact_path)
        if os.path.isdir(local_path):
            artifact.add_dir(str(local_path), name=name)
        else:
            artifact.add_file(str(local_path), name=name)
        return self._log(artifact, collection)

    def log_artifact(self, obj: Any, name: str, collection: Optional[str] = None) -> Source:  # type: ignore[override]
        """Logs an object as the next version of an artifact: as MessagePack, with NumPy's arrays.

        Args:
            obj: what MessagePack has types for, and arrays.
            name: of the artifact.
            collection: by default the active one.

        Raises:
            SampleTypeError (a TypeError): the object can't be serialized.
        """
        collection = self._collection(collection)
        data = MessagepackSerializer.serialize(obj)
        artifact = wandb.Artifact(check_artifact(name), type=collection)
        with artifact.new_file(_OBJECT, mode="wb") as file:
            file.write(data)
        return self._log(artifact, collection)

    # --- fetching ---

    def _fetch(self, artifact: str, collection: str, version: Optional[str]) -> Any:
        return wandb.Api().artifact(self._path(artifact, version or "latest"), type=collection)

    def get_artifact(self, artifact: str, collection: Optional[str] = None, version: Optional[str] = None) -> Any:
        """The object that was logged as an artifact.

        Raises:
            ValueError: it is files: those are downloaded.
        """
        found = self._fetch(artifact, self._collection(collection), version)
        with tempfile.TemporaryDirectory(prefix="squirrel-") as folder:
            path = Path(found.download(folder)) / _OBJECT
            if not path.is_file():
                raise ValueError(f"artifact {artifact} is files: get them by download_artifact()")
            return MessagepackSerializer.deserialize(path.read_bytes())

    def download_artifact(
        self,
        artifact: str,
        collection: Optional[str] = None,
        version: Optional[str] = None,
        to: Optional[Path] = None,
    ) -> Union[Path, TmpArtifact]:
        """Copies an artifact's files to this machine; see :class:`ArtifactManager`."""
        collection = self._collection(collection)
        if to is None:
            return TmpArtifact(self, collection, artifact, version or "latest")
        return Path(self._fetch(artifact, collection, version).download(str(Path(to) / artifact)))


def _default_project() -> str:
    if wandb.run is not None and wandb.run.project:
        return str(wandb.run.project)
    project = os.environ.get("WANDB_PROJECT") or wandb.Api().settings["project"]
    if not project:
        raise ValueError("no project is known: give project=, set WANDB_PROJECT, or call wandb.init(project=...)")
    return str(project)


def _default_entity() -> str:
    if wandb.run is not None and wandb.run.entity:
        return str(wandb.run.entity)
    entity = os.environ.get("WANDB_ENTITY")
    if not entity and wandb.run is not None:
        return "offline"  # a run without a server has none
    return str(entity or wandb.Api().default_entity)
