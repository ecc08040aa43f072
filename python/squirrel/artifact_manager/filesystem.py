"""Artifacts in a directory, local or at any URL that fsspec knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, List, Optional, Union

from squirrel._remote import own
from squirrel.artifact_manager.base import ArtifactManager, TmpArtifact, check_artifact
from squirrel.catalog.catalog import Catalog, CatalogSource
from squirrel.catalog.source import Source
from squirrel.serialization.jsonl import JsonSerializer
from squirrel.serialization.msgpack import MessagepackSerializer
from squirrel.store.filesystem import FilesystemStore

if TYPE_CHECKING:
    from squirrel.serialization.serializer import SquirrelSerializer

__all__ = ["ArtifactFileStore", "FileSystemArtifactManager", "Serializers"]

Serializers = {MessagepackSerializer: "messagepack", JsonSerializer: "jsonl"}
_FILES = "files"


def serializer_name(serializer: Any) -> str:
    """What a version's folder calls the form of its object."""
    for kind in type(serializer).__mro__:
        if kind in Serializers:
            return Serializers[kind]
    return type(serializer).__name__


class ArtifactFileStore(FilesystemStore):
    """The files behind a :class:`FileSystemArtifactManager`.

    A key that ends in the serializer's name holds an object; all else are files, copied as they are.
    """

    def _is_object(self, key: Any) -> bool:
        return self.serializer is not None and Path(key).name == serializer_name(self.serializer)

    def complete_key(self, partial_key: Path, **open_kwargs: Any) -> List[str]:
        """The names that continue a key, sorted; none where nothing does."""
        fs = own(self.fs)
        root = self._path(partial_key) if str(partial_key) not in ("", ".") else self.url
        try:
            found = fs.ls(root, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = {str(path).rstrip("/").rpartition("/")[2] for path in found if not fs.isfile(root)}
        return sorted(name for name in names if not name.startswith("."))

    def key_exists(self, key: Path, **open_kwargs: Any) -> bool:
        """Whether a file or directory is under the key."""
        root = self._path(key) if str(key) not in ("", ".") else self.url
        return bool(own(self.fs).exists(root))

    def get(self, key: Path, mode: str = "rb", **open_kwargs: Any) -> Any:  # type: ignore[override]
        """An object; or copies files to the folder ``target=`` and returns it as a Path.

        Args:
            key: of the object or the files.
            mode: of the file system's ``open``.
            **open_kwargs: of the file system's ``open``; for files: ``target``.
        """
        if self._is_object(key):
            return super().get(key, mode=mode, **open_kwargs)  # type: ignore[arg-type]
        target = Path(open_kwargs.pop("target"))
        fs, root = own(self.fs), fs_path(self, key)
        target.mkdir(parents=True, exist_ok=True)
        names = [root] if fs.isfile(root) else fs.find(root)
        for name in names:
            inner = Path(str(name)[len(root) :].strip("/") or Path(root).name)
            path = target / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(str(name), str(path))
        return target

    def set(  # type: ignore[override]
        self, value: Any, key: Optional[Path] = None, mode: str = "wb", **open_kwargs: Any
    ) -> None:
        """Keeps an object, or copies a local file or folder.

        Args:
            value: the object; for files the local path.
            key: where it goes.
            mode: of the file system's ``open``.
            **open_kwargs: of the file system's ``open``.
        """
        if key is None:
            raise ValueError("artifacts have names: give a key")
        if self._is_object(key):
            super().set(value, key, mode=mode, **open_kwargs)  # type: ignore[arg-type]
            return
        source = Path(value)
        files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
        if not files:
            raise FileNotFoundError(f"{source}: there is no such file, or the folder holds none")
        for file in files:
            path = self._path(key)
            if file is not source:
                path += f"/{file.relative_to(source).as_posix()}"
            elif key.name == _FILES:  # no name was given
                path += f"/{file.name}"
            self._make_room(path)
            own(self.fs).put_file(str(file), path)


def fs_path(store: FilesystemStore, key: Any) -> str:
    """The path of a key as the file system names it."""
    return str(own(store.fs)._strip_protocol(store._path(key))).rstrip("/")


class FileSystemArtifactManager(ArtifactManager):
    """Artifacts in directories ``url/collection/artifact/version/form``.

    Versions are v0, v1, v2 ...; in a catalog they are 1, 2, 3 ... The form is ``files`` for files and the
    serializer's name for an object.

    Args:
        url: the directory.
        serializer: of objects; MessagePack by default.
        collection: the active collection.
        **fs_kwargs: of fsspec's file system.
    """

    def __init__(
        self,
        url: str,
        serializer: Optional[SquirrelSerializer] = None,
        collection: str = "default",
        **fs_kwargs: Any,
    ):
        super().__init__(collection=collection)
        self.backend = ArtifactFileStore(url, serializer or MessagepackSerializer(), **fs_kwargs)

    def list_collection_names(self) -> Iterable[str]:
        """The names of all collections, sorted."""
        return self.backend.complete_key(Path(""))

    def exists_in_collection(self, artifact: str, collection: Optional[str] = None) -> bool:
        """Whether a collection has an artifact of that name."""
        return bool(self._versions(self._collection(collection), check_artifact(artifact)))

    def _versions(self, collection: str, artifact: str) -> list[int]:
        names = self.backend.complete_key(Path(collection) / artifact)
        return sorted(int(name[1:]) for name in names if name[:1] == "v" and name[1:].isdecimal())

    def _version(self, artifact: str, collection: str, version: Union[str, int, None]) -> int:
        """The number of a version: "v3" and 3 are the same; None is the latest."""
        there = self._versions(collection, check_artifact(artifact))
        if not there:
            raise ValueError(f"artifact {artifact} does not exist in collection {collection}")
        text = str(version)
        if version is None or text == "latest":
            return there[-1]
        number = text[1:] if text.startswith("v") else text
        if not number.isdecimal() or int(number) not in there:
            names = ", ".join(f"v{n}" for n in there)
            raise ValueError(f"artifact {artifact} in collection {collection} has no version {version}; it has {names}")
        return int(number)

    def _form(self, collection: str, artifact: str, number: int) -> str:
        forms = self.backend.complete_key(Path(collection) / artifact / f"v{number}")
        if len(forms) != 1:
            place = f"{self.backend.url}/{collection}/{artifact}/v{number}"
            raise ValueError(f"{place} should hold one entry, the artifact's form, but holds {forms or 'nothing'}")
        return forms[0]

    def get_artifact_source(
        self,
        artifact: str,
        collection: Optional[str] = None,
        version: Optional[str] = None,
        catalog: Optional[Catalog] = None,
    ) -> CatalogSource:
        """A catalog's entry for a version of an artifact.

        Args:
            artifact: its name.
            collection: by default the active one.
            version: e.g. "v3"; by default the latest.
            catalog: to which it is added; by default a new one.

        Raises:
            ValueError: there is no such artifact or version.
        """
        collection = self._collection(collection)
        number = self._version(artifact, collection, version)
        form = self._form(collection, artifact, number)
        catalog = Catalog() if catalog is None else catalog
        url = own(self.backend.fs).unstrip_protocol(fs_path(self.backend, f"{collection}/{artifact}/v{number}/{form}"))
        source = Source(
            driver_name="directory" if form == _FILES else "file",
            driver_kwargs={"url": url, "storage_options": dict(self.backend.storage_options)},
            metadata={"collection": collection, "artifact": artifact, "version": f"v{number}"},
        )
        key = (f"{collection}/{artifact}", number + 1)
        catalog[key] = source
        return catalog[key]

    def collection_to_catalog(self, collection: Optional[str] = None) -> Catalog:
        """All artifacts of a collection, in all versions, as a catalog."""
        collection = self._collection(collection)
        catalog = Catalog()
        for artifact in self.backend.complete_key(Path(collection)):
            for number in self._versions(collection, artifact):
                self.get_artifact_source(artifact, collection, f"v{number}", catalog)
        return catalog

    def _next(self, artifact: str, collection: str) -> int:
        there = self._versions(collection, check_artifact(artifact))
        return there[-1] + 1 if there else 0

    def log_artifact(self, obj: Any, name: str, collection: Optional[str] = None) -> Source:  # type: ignore[override]
        """Logs an object as the next version of an artifact, serialized.

        Args:
            obj: what the serializer takes.
            name: of the artifact.
            collection: by default the active one.
        """
        collection = self._collection(collection)
        number = self._next(name, collection)
        assert self.backend.serializer is not None
        form = serializer_name(self.backend.serializer)
        self.backend.set(obj, Path(collection) / name / f"v{number}" / form)
        return self.get_artifact_source(name, collection, f"v{number}")

    def get_artifact(self, artifact: str, collection: Optional[str] = None, version: Optional[str] = None) -> Any:
        """The object that was logged as an artifact.

        Raises:
            ValueError: there is no such artifact or version, or it is files: those are downloaded.
        """
        collection = self._collection(collection)
        number = self._version(artifact, collection, version)
        form = self._form(collection, artifact, number)
        serializer = self.backend.serializer
        if form == _FILES:
            raise ValueError(f"artifact {artifact} v{number} is files: get them by download_artifact()")
        key = Path(collection) / artifact / f"v{number}" / form
        if serializer is None or form != serializer_name(serializer):
            for kind, known in Serializers.items():
                if form == known:
                    return kind().deserialize(FilesystemStore.get(self._bytes(), key))  # type: ignore[arg-type]
            raise ValueError(f"artifact {artifact} v{number} was written by a serializer {form!r}: give that one here")
        return self.backend.get(key)

    def _bytes(self) -> FilesystemStore:
        return FilesystemStore(self.backend.url, **self.backend.storage_options)

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
            raise ValueError(f"there is no such file or folder to log: {str(local_path)!r}")
        number = self._next(artifact_name, collection)
        key = Path(collection) / artifact_name / f"v{number}" / _FILES
        if artifact_path is not None and (Path(artifact_path).is_absolute() or ".." in Path(artifact_path).parts):
            raise ValueError(f"artifact_path must lead into the artifact, not to {artifact_path}")
        self.backend.set(local_path, key / artifact_path if artifact_path is not None else key)
        return self.get_artifact_source(artifact_name, collection, f"v{number}")

    def download_artifact(
        self,
        artifact: str,
        collection: Optional[str] = None,
        version: Optional[str] = None,
        to: Optional[Path] = None,
    ) -> Union[Path, TmpArtifact]:
        """Copies an artifact's files, or its serialized object, to this machine; see :class:`ArtifactManager`."""
        collection = self._collection(collection)
        number = self._version(artifact, collection, version)
        if to is None:
            return TmpArtifact(self, collection, artifact, f"v{number}")
        key = Path(collection) / artifact / f"v{number}"
        form = self._form(collection, artifact, number)
        target = Path(to) / artifact
        if form == _FILES:
            self.backend.get(key / form, target=target)
        else:
            target.mkdir(parents=True, exist_ok=True)
            own(self.backend.fs).get_file(fs_path(self.backend, key / form), str(target / form))
        return target
