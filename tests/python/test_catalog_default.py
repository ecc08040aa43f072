"""The default catalog: the user's configuration, known folders, plug-ins; each test in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import squirrel
from squirrel.catalog import Catalog, Source


def write(path: Path, *names: str, driver: str = "csv") -> Path:
    catalog = Catalog()
    for name in names:
        catalog[name] = Source(driver, {"path": name})
    path.parent.mkdir(parents=True, exist_ok=True)
    catalog.to_file(path)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "SQUIRREL_CATALOGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_DIRS", f"{tmp_path}/usr:relative:{tmp_path}/none")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squirrel.catalog._places.add_plugins", lambda catalog: None)


def names(catalog: Catalog) -> list[str]:
    return list(catalog.keys())


def test_nothing(home: Path, no_plugins: None) -> None:
    assert names(Catalog.default()) == [] and list(home.iterdir()) == []


def test_all_places_in_their_order(home: Path, no_plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home.parent / "usr/squirrel/catalogs/z.yaml", "usr_z", "both")
    write(home.parent / "usr/squirrel/catalogs/a.yaml", "usr_a", "both")
    write(home / ".local/share/squirrel/catalogs/mine.yaml", "data")
    (home / ".local/share/squirrel/catalogs/readme.txt").write_text("no catalog")
    write(home / "env 1.yaml", "env_1")
    write(home / "env2.json", "env_2")
    monkeypatch.setenv("SQUIRREL_CATALOGS", f"~/env 1.yaml; {home}/env2.json;;")
    Catalog.subscribe(write(home / "sub.yaml", "sub"))
    assert names(Catalog.default()) == ["env_1", "env_2", "sub", "data", "usr_a", "both", "usr_z"]


def test_subscribing(home: Path, no_plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    write(home / "a.yaml", "a")
    assert Catalog.subscribe("a.yaml") is True and Catalog.subscribe(home / "a.yaml") is False
    assert (home / ".config/squirrel/catalogs").read_text() == f"{home}/a.yaml\n"
    (home / ".config/squirrel/catalogs").write_text(f"# mine\n  ~/a.yaml  \nhttps://example.org/c.yaml\n")
    assert Catalog.subscribe("a.yaml") is False
    assert Catalog.unsubscribe("https://example.org/c.yaml") is True and Catalog.unsubscribe("b.yaml") is False
    assert names(Catalog.default()) == ["a"]
    assert Catalog.unsubscribe("a.yaml") is True and names(Catalog.default()) == []
    assert (home / ".config/squirrel/catalogs").read_text() == "# mine\n"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "other"))
    Catalog.subscribe("a.yaml")
    assert (home / "other/squirrel/catalogs").exists()
    for wrong in ("", "a\nb", "a;b", "#a"):
        with pytest.raises(squirrel.ArgumentError, match="subscribed"):
            Catalog.subscribe(wrong)


def test_a_configuration_without_a_home(home: Path, no_plugins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    assert names(Catalog.default()) == []
    with pytest.raises(squirrel.NotFoundError, match="XDG_CONFIG_HOME"):
        Catalog.subscribe("/a.yaml")


def test_urls_go_through_fsspec(home: Path, no_plugins: None) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://catalogs/c.yaml", "w") as file:
        file.write("sources: [{identifier: remote, driver_name: csv}]")
    Catalog.subscribe("memory://catalogs/c.yaml")
    assert names(Catalog.default()) == ["remote"]


def test_an_object_is_replaced_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system is one as object stores have it: parts go up, the last one completes the object."""
    fsspec = pytest.importorskip("fsspec")
    objects: dict[str, bytes] = {}
    seen: list[bytes | None] = []  # what a reader gets when a part goes up
    writes: list[int] = []

    class Upload(fsspec.spec.AbstractBufferedFile):  # type: ignore[name-defined,misc]
        broken = False

        def write(self, data: bytes) -> int:
            writes.append(len(data))
            return int(super().write(data))

        def _initiate_upload(self) -> None:
            self.parts: list[bytes] = []

        def _upload_chunk(self, final: bool = False) -> bool:
            seen.append(objects.get(self.path))
            if self.broken:
                self.closed = True  # or its end would try once more
                raise ConnectionError("the network is gone")
            self.parts.append(self.buffer.getvalue())
            if final:
                objects[self.path] = b"".join(self.parts)
            return True

    class Bucket(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "bucket"

        def _open(self, path: str, mode: str = "rb", **unused: object) -> Upload:
            return Upload(self, path, mode, block_size=1000)

    fsspec.register_implementation("bucket", Bucket, clobber=True)
    small, large = Catalog(), Catalog()
    small["one"] = Source("csv", {"url": "a"})
    for i in range(100):
        large[f"name-{i}"] = Source("csv", {"url": "b"})
    small.to_file("bucket://c.yaml")
    old = objects["c.yaml"]
    assert old.decode() == small.to_str()

    large["bad"] = Source("csv", {"url": object()})  # found out before anything goes up
    with pytest.raises(TypeError, match="'bad'"):
        large.to_file("bucket://c.yaml")
    del large["bad"]
    monkeypatch.setattr(Upload, "broken", True)
    with pytest.raises(ConnectionError):
        large.to_file("bucket://c.yaml")
    assert objects == {"c.yaml": old}
    monkeypatch.setattr(Upload, "broken", False)
    seen.clear(), writes.clear()
    large.to_file("bucket://c.yaml")
    assert seen[:-1] and set(seen) == {old}  # several parts, and the old object until the last
    assert objects["c.yaml"].decode() == large.to_str() and writes == [len(objects["c.yaml"])]


def test_errors_name_the_place(home: Path, no_plugins: None) -> None:
    a, b = write(home / "a.yaml", "same", "x"), write(home / "b.yaml", "other", "same", driver="jsonl")
    for path in (a, b):
        Catalog.subscribe(path)
    with pytest.raises(squirrel.ExistsError) as raised:
        Catalog.default()
    assert f"{a} and {b}" in str(raised.value) and "'same'" in str(raised.value) and "differ" in str(raised.value)
    b.write_text("sources: [")
    with pytest.raises(squirrel.DataError, match="b.yaml") as wrong:
        Catalog.default()
    assert f"{home}/.config/squirrel/catalogs, line 2" in wrong.value.__notes__[0]
    b.unlink()
    with pytest.raises(FileNotFoundError, match="b.yaml"):
        Catalog.default()


def test_open_finds_a_name(home: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"n": 1}\n')
    catalog = Catalog()
    catalog["lines"] = Source("jsonl", {"url": str(tmp_path / "lines.jsonl")})
    catalog.to_file(home / "c.json")
    Catalog.subscribe(home / "c.json")
    for reference in ("#lines", "#lines@1", f"{home}/c.json#lines"):
        assert squirrel.open(reference).collect() == [{"n": 1}]
    with pytest.raises(squirrel.NotFoundError, match='did you mean "lines"'):
        squirrel.open("#line")


# --- plug-ins: packages as pip installs them, in a process of their own ---

PLUGIN = """
    from squirrel.catalog import CatalogKey, Source
    from squirrel.framework.plugins.hookimpl import hookimpl
    print("loaded", __name__)

    @hookimpl
    def squirrel_sources():
        {body}
"""


def install(site: Path, name: str, body: str) -> None:
    """What `pip install` leaves behind of a package with an entry point."""
    package, info = site / name, site / f"{name}-1.0.dist-info"
    for folder in (package, info):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(PLUGIN).format(body=body))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[squirrel]\n{name} = {name}\n")


@pytest.fixture
def run(home: Path):
    """Runs a program that sees the packages in a folder, and gives the lines that it prints."""
    pytest.importorskip("pluggy")
    site = home.parent / "site"
    site.mkdir()

    def run(code: str) -> list[str]:
        code = f"import sys; sys.path.insert(0, {str(site)!r})\n" + textwrap.dedent(code)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    run.site = site
    return run


def test_packages_offer_sources(run) -> None:
    install(run.site, "pets", "return [(CatalogKey('pets', v), Source('csv', {'path': f'pets-{v}'})) for v in (1, 2)]")
    install(run.site, "birds", "return [(CatalogKey('birds', 3), Source('csv'))]")
    printed = run("""
        from squirrel.catalog import Catalog
        import squirrel.driver
        print("imported")
        catalog = Catalog.from_plugins()
        print(sorted((name, s.version) for name in catalog.keys() for s in catalog[name]))
        assert Catalog.from_plugins() == catalog == Catalog.default()
        print(catalog["pets"].driver_kwargs)
    """)
    # Not loaded by an import, and once only.
    assert printed[0] == "imported" and sorted(printed[1:3]) == ["loaded birds", "loaded pets"]
    assert printed[3:] == ["[('birds', 3), ('pets', 1), ('pets', 2)]", "{'path': 'pets-2'}"]


@pytest.mark.parametrize(("body", "why"), [
    ("raise OSError('no network')", "no network"),
    ("return 1 / 0", "division by zero"),
    ("return [('no key', Source('x'))]", ""),
    ("return [(CatalogKey('x', 0), Source('x'))]", "versions are"),
    ("return [(CatalogKey('x', 1), 'no source')]", "holds Sources"),
    ("return [(CatalogKey('new'), Source('x')), (CatalogKey('good', 1), Source('y'))]", "version 1 of source 'good'"),
    ("return [(CatalogKey('x', 1), Source('x'))] * 2", "twice"),
])  # fmt: skip
def test_one_that_fails_is_named_and_left_out(run, body: str, why: str) -> None:
    install(run.site, "wrong", body)
    install(run.site, "good", "return [(CatalogKey('good', 1), Source('csv'))]")
    printed = run("""
        import logging
        logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
        from squirrel.catalog import Catalog
        from squirrel.framework.plugins.plugin_manager import squirrel_plugin_manager as manager
        manager._load()
        # Whatever order the file system gave: the good one is asked first.
        wrong = manager.unregister(name="wrong")
        good = manager.unregister(name="good")
        manager.register(wrong, name="wrong"); manager.register(good, name="good")
        print(list(Catalog.default().keys()))
    """)
    (warning,) = [line for line in printed if "WARNING" in line]
    assert warning.startswith("squirrel ") and "wrong" in warning and why in warning
    assert printed[-1] == "['good']"


def test_the_users_catalogs_go_before_plugins(run, home: Path) -> None:
    install(run.site, "pets", "return [(CatalogKey('pets', 1), Source('csv', {'path': 'theirs'}))]")
    write(home / "mine.yaml", "pets")
    Catalog.subscribe(home / "mine.yaml")
    printed = run("""
        from squirrel.catalog import Catalog
        print(Catalog.default()["pets"].driver_kwargs)
    """)
    assert printed[-1] == "{'path': 'pets'}"


def test_drivers_of_packages_open_sources(run) -> None:
    install(run.site, "counting", "return [(CatalogKey('numbers', 1), Source('counting', {'n': 3}))]")
    with open(run.site / "counting/__init__.py", "a") as module:
        module.write(textwrap.dedent("""
            from squirrel.driver import IterDriver
            from squirrel.iterstream import IterableSource

            class Counting(IterDriver):
                name = "counting"
                def __init__(self, n, catalog=None):
                    super().__init__(catalog=catalog)
                    self.n = n
                def get_iter(self, **kwargs):
                    return IterableSource(range(self.n))

            @hookimpl
            def squirrel_drivers():
                return [Counting]
        """))
    printed = run("""
        from squirrel.catalog import Catalog
        print(Catalog.default()["numbers"].get_driver().get_iter().collect())
    """)
    assert printed[-1] == "[0, 1, 2]"


def test_open_finds_what_packages_offer(run, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text('{"n": 1}\n')
    source = f"Source('jsonl', {{'url': {str(tmp_path / 'lines.jsonl')!r}}})"
    install(run.site, "offer", f"return [(CatalogKey('a@b', 2), {source})]")
    printed = run("""
        import squirrel
        for reference in ("#a@b", "#a@b@2", "#a@b@-1"):
            print(squirrel.open(reference).collect())
        try:
            squirrel.open("#a@b@1")
        except squirrel.NotFoundError as error:
            print(error)
    """)
    assert printed[1:4] == ["[{'n': 1}]"] * 3 and printed[4] == 'source "a@b" has no version 1; it has 2'


def test_the_module_prints_the_default_catalog(run, home: Path) -> None:
    """What the library and the command read where SQUIRREL_PYTHON names an interpreter."""
    install(run.site, "pets", "return [(CatalogKey('pets', 1), Source('csv'))]")
    write(home / "mine.yaml", "mine")
    Catalog.subscribe(home / "mine.yaml")

    def ask() -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, "-m", "squirrel.catalog"], capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([str(run.site), *sys.path])})

    done = ask()
    assert done.returncode == 0 and "loaded pets" in done.stderr and done.stdout.endswith("\n# whole\n")
    assert names(Catalog.from_str(done.stdout)) == ["mine", "pets"]
    (home / "mine.yaml").write_text("sources: [")
    done = ask()
    assert done.returncode == 1 and done.stdout.startswith("corrupt: ") and done.stdout.count("\n") == 1
    assert "mine.yaml" in done.stdout and "line 2" in done.stdout


def test_a_configuration_that_is_a_link_is_written_through(home: Path, no_plugins: None) -> None:
    (home / ".config/squirrel").mkdir(parents=True)
    (home / "dotfiles").write_text("# mine\n")
    (home / ".config/squirrel/catalogs").symlink_to(home / "dotfiles")
    assert Catalog.subscribe("/a.yaml") is True
    assert (home / ".config/squirrel/catalogs").is_symlink() and (home / "dotfiles").read_text() == "# mine\n/a.yaml\n"
    link = home / "link.yaml"
    link.symlink_to(home / "target.yaml")
    for name in ("a", "b"):
        write(link, name)
        assert link.is_symlink() and names(Catalog.from_files([home / "target.yaml"])) == [name]
