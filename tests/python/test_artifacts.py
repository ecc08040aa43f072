"""Artifact managers: directories anywhere, and Weights & Biases offline and against a stand-in."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from squirrel.artifact_manager.filesystem import FileSystemArtifactManager
from squirrel.serialization import JsonSerializer


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("b")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("place", ["local", "memory"])
def test_directories(files: Path, tmp_path: Path, place: str) -> None:
    url = str(tmp_path / "store") if place == "local" else f"memory://artifacts/{tmp_path.name}"
    manager = FileSystemArtifactManager(url)
    assert manager.active_collection == "default" and list(manager.list_collection_names()) == []
    assert not manager.exists("set") and not manager.exists_in_collection("set")
    source = manager.log_files("set", files)
    assert (source.identifier, source.version, source.driver_name) == ("default/set", 1, "directory")
    assert source.metadata == {"collection": "default", "artifact": "set", "version": "v0"}
    assert sorted(source.get_driver().get_iter(flatten=False)) == [b"a", b"b"]
    assert manager.log_files("set", files / "a.txt").version == 2
    assert manager.log_files("set", files / "a.txt", artifact_path=Path("x/y.txt")).metadata["version"] == "v2"
    assert manager.exists("set") and manager.exists_in_collection("set", "default")
    wanted = {None: ["x/y.txt"], "v0": ["a.txt", "sub/b.txt"], "v1": ["a.txt"]}
    for version, inside in wanted.items():
        to = tmp_path / f"to-{version}"
        assert manager.download_artifact("set", version=version, to=to) == to / "set" and names(to / "set") == inside
    with manager.download_artifact("set", version="v0") as folder:
        assert names(folder) == ["a.txt", "sub/b.txt"]
    assert not folder.exists()
    catalog = manager.collection_to_catalog()
    assert list(catalog["default/set"].versions) == [1, 2, 3]


def test_objects(tmp_path: Path) -> None:
    """squirrel-core raises NotImplementedError for both."""
    for serializer in (None, JsonSerializer()):
        manager = FileSystemArtifactManager(str(tmp_path / "store"), serializer, collection="models")
        value = {"weights": np.arange(6).reshape(2, 3), "epoch": 3}
        source = manager.log_artifact(value, "net")
        found = manager.get_artifact("net")
        assert found["epoch"] == 3 and found["weights"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert source.metadata["artifact"] == "net"
    manager.log_artifact({"epoch": 4}, "net", collection="other")
    assert manager.get_artifact("net", "other") == {"epoch": 4}
    assert manager.get_artifact("net", version="v0")["epoch"] == 3  # written as MessagePack, read by a JSON manager
    assert sorted(manager.list_collection_names()) == ["models", "other"]
    assert sorted(manager.store_to_catalog().keys()) == ["models/net", "other/net"]
    with pytest.raises(ValueError, match="has no version v7; it has v0, v1"):
        manager.get_artifact("net", version="v7")
    with pytest.raises(ValueError, match="does not exist"):
        manager.get_artifact("nothing")


def test_folders_that_are_logged_at_their_end(tmp_path: Path) -> None:
    manager = FileSystemArtifactManager(str(tmp_path / "store"))
    with manager.log_folder("made") as folder:
        (folder / "x").write_text("1")
    assert not folder.exists() and names(tmp_path / "store") == ["default/made/v0/files/x"]
    with manager.log_folder("empty"):
        pass
    with pytest.raises(RuntimeError), manager.log_folder("failed") as folder:
        (folder / "x").write_text("1")
        raise RuntimeError
    assert not manager.exists("empty") and not manager.exists("failed")
    catalog = manager.download_collection(to=tmp_path / "to")
    assert names(tmp_path / "to") == ["made/x"] and list(catalog.keys()) == ["default/made"]


def test_bad_names(files: Path, tmp_path: Path) -> None:
    manager = FileSystemArtifactManager(str(tmp_path / "store"))
    for name in ("", "a/b", "..", "a b"):
        with pytest.raises(ValueError, match="no name of a collection"):
            manager.active_collection = name
    for name in ("", "a/b", ".."):
        with pytest.raises(ValueError, match="no name of an artifact"):
            manager.log_files(name, files)
    with pytest.raises(ValueError, match="must lead into"):
        manager.log_files("x", files, artifact_path=Path("../y"))
    with pytest.raises(ValueError, match="no such file or folder"):
        manager.log_files("x", files / "missing")


# --- Weights & Biases ---


class Server:
    """Answers for wandb's server: what it keeps, by type, name and version."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, list[dict[str, bytes]]]] = {}


def stand_in(server: Server) -> types.ModuleType:
    """As much of wandb as the manager uses, with a server in memory."""
    module = types.ModuleType("wandb")

    class Artifact:
        def __init__(self, name, type, content=None, version=None):
            self.name, self.type, self.content, self.version = name, type, content or {}, version

        def add_file(self, path, name=None):
            self.content[name or Path(path).name] = Path(path).read_bytes()

        def add_dir(self, path, name=None):
            for file in names(Path(path)):
                self.content[f"{name}/{file}" if name else file] = (Path(path) / file).read_bytes()

        def new_file(self, name, mode="w"):
            import contextlib
            import io

            @contextlib.contextmanager
            def opened():
                buffer = io.BytesIO()
                yield buffer
                self.content[name] = buffer.getvalue()

            return opened()

        def wait(self):
            return self

        def download(self, root):
            for name, data in self.content.items():
                path = Path(root) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            return str(root)

    class Run:
        project, entity = "project", "entity"
        settings = types.SimpleNamespace(mode="online", base_url="https://wandb.test")

        def log_artifact(self, artifact):
            versions = server.kept.setdefault(artifact.type, {}).setdefault(artifact.name, [])
            artifact.version = f"v{len(versions)}"
            artifact.name = f"{artifact.name}:{artifact.version}"
            versions.append(artifact.content)
            return artifact

    class Api:
        settings = {"base_url": "https://wandb.test", "project": "project"}
        default_entity = "entity"

        def artifact_types(self, project):
            assert project == "entity/project"
            return [types.SimpleNamespace(name=name) for name in server.kept]

        def artifact_type(self, type_name, project):
            found = [types.SimpleNamespace(name=name) for name in server.kept[type_name]]
            return types.SimpleNamespace(collections=lambda: found)

        def artifacts(self, type_name, name):
            versions = server.kept.get(type_name, {}).get(name.rpartition("/")[2], [])
            return [types.SimpleNamespace(version=f"v{i}") for i in reversed(range(len(versions)))]

        def artifact(self, name, type):
            name, _, version = name.rpartition("/")[2].partition(":")
            versions = server.kept[type][name]
            number = len(versions) - 1 if version == "latest" else int(version[1:])
            return Artifact(name, type, versions[number], f"v{number}")

    module.Artifact, module.Api, module.run = Artifact, Api, Run()  # type: ignore[attr-defined]
    return module


def test_weights_and_biases_against_a_stand_in(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", stand_in(Server()))
    monkeypatch.delitem(sys.modules, "squirrel.artifact_manager.wandb", raising=False)
    from squirrel.artifact_manager.wandb import WandbArtifactManager

    manager = WandbArtifactManager(collection="models")
    assert (manager.entity, manager.project) == ("entity", "project")
    source = manager.log_artifact({"weights": np.arange(3)}, "net")
    assert (source.identifier, source.version) == ("models/net", 1)
    assert source.driver_kwargs == {"url": "https://wandb.test/entity/project/models/net/v0"}
    assert manager.log_artifact({"weights": np.arange(4)}, "net").version == 2
    assert manager.get_artifact("net")["weights"].tolist() == [0, 1, 2, 3]
    assert manager.get_artifact("net", version="v0")["weights"].tolist() == [0, 1, 2]
    manager.log_files("set", files, collection="data")
    assert list(manager.list_collection_names()) == ["models", "data"] and manager.exists("set")
    assert manager.exists_in_collection("net") and not manager.exists_in_collection("set")
    assert names(manager.download_artifact("set", "data", to=tmp_path / "to")) == ["a.txt", "sub/b.txt"]
    with manager.download_artifact("set", "data") as folder:
        assert names(folder) == ["a.txt", "sub/b.txt"]
    with pytest.raises(ValueError, match="is files"):
        manager.get_artifact("set", "data")
    assert manager.get_artifact_source("net").version == 2
    with pytest.raises(ValueError, match="has no version v9; it has v0, v1"):
        manager.get_artifact_source("net", version="v9")
    assert sorted(manager.store_to_catalog().keys()) == ["data/set", "models/net"]
    sys.modules.pop("squirrel.artifact_manager.wandb")


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_offline(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package: what is logged lies in the run's own files until it is synced."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    from squirrel.artifact_manager.wandb import WandbArtifactManager

    run = wandb.init(mode="offline", project="p", dir=str(tmp_path))
    try:
        manager = WandbArtifactManager()
        assert manager.project == "p"
        assert manager.log_files("set", files).metadata["version"] == "latest"
        assert manager.log_artifact({"n": 1}, "object").identifier == "default/object"
    finally:
        run.finish()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
