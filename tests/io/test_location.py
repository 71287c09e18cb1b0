"""One place has one form; what could mean two places is refused, and no file outside of a table is located."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qbeast_core.errors import InvalidInputError, UnsupportedTableError
from qbeast_core.io.address import locate_file, resolve_location
from qbeast_core.io.location import Location, open_store


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("t", "{here}/t"),
        ("./t/", "{here}/t"),
        ("a/../t", "{here}/t"),
        (".", "{here}"),
        ("~", "{here}/home"),
        ("~/t", "{here}/home/t"),
        (Path("~/t"), "{here}/home/t"),
        ("./~", "{here}/~"),
        ("./s3:x", "{here}/s3:x"),
        ("x:y", "{here}/x:y"),
        ("C:", "{here}/C:"),
        ("a b#?+&*[", "{here}/a b#?+&*["),
        ("100%", "{here}/100%"),
        ("/t/é日😀", "/t/é日😀"),
        ("//t", "/t"),
        ("file:///t/a%20b%23", "/t/a b#"),
        ("file:/t", "/t"),
        ("FILE://localhost/t", "/t"),
        ("s3://b", "s3://b"),
        ("s3://b/", "s3://b"),
        ("S3A://B/a b/t+é/", "s3a://B/a b/t+é"),
        ("abfss://box@account.dfs.core.windows.net/t", "abfss://box@account.dfs.core.windows.net/t"),
    ],
)
def test_place_has_one_absolute_form(here: Path, options: str | Path, expected: str) -> None:
    whole = expected.format(here=here.resolve())
    assert resolve_location(options) == whole
    assert resolve_location(whole) == whole


@pytest.mark.parametrize(
    ("options", "report"),
    [
        ("", "it is empty"),
        (b"t", "it is not a text"),
        (7, "it is not a text"),
        ("a\nb", "control"),
        ("a\tb", "control"),
        ("a\x7fb", "control"),
        ("a\0b", "control"),
        ("file:///a%00b", "control"),
        ("x" * 5_000, "too long for the file system"),
        ("file:///" + "x" * 5_000, "choose a shorter name"),
        ("a\udcffb", "half characters"),
        ("a\\b", "backslash"),
        ("a%20b", "two hexadecimal digits"),
        ("file:///a%2520b", "two hexadecimal digits"),
        ("s3:x", "may be an address or the name of a folder"),
        ("s3:/b/x", "path objects lose a slash"),
        (Path("s3://b/x"), "path objects lose a slash"),
        ("run:2024", r"\./run:2024 for a folder"),
        ("~nobody-of-this-name/t", "no such user"),
        ("file:x", "a host or a relative path"),
        ("file://host/x", "a host or a relative path"),
        ("file:///a#b", "ends the path"),
        ("s3:///x", "no bucket"),
        ("s3://b/a#b", "cut it off"),
        ("s3://b/a?b", "cut it off"),
        ("s3://b/a%20b", "read differently"),
        ("s3://b/a\\b", "read differently"),
        ("s3://b/a[b", "read differently"),
        ("s3://b/a//b", "an empty part"),
        ("s3://b/a/../b", "an empty part"),
        ("s3://b/./b", "an empty part"),
        ("s3://user:secret@b/x", "a password"),
    ],
)
def test_ambiguous_paths_raise(here: Path, options: str | Path, report: str) -> None:
    with pytest.raises(InvalidInputError, match=report) as caught:
        resolve_location(options)
    assert caught.value.argument == "path"
    assert not list((here / "home").iterdir())


def test_secrets_of_an_address_are_not_repeated() -> None:
    for options in ("s3://user:secret@b/x", "https://account/box?sig=secret"):
        with pytest.raises(InvalidInputError) as caught:
            resolve_location(options)
        assert "secret" not in str(caught.value)


def test_deleted_folder_has_no_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInputError, match="give an absolute path"):
        resolve_location("t")


def test_links_resolve_as_in_the_system(here: Path) -> None:
    (here / "a" / "b").mkdir(parents=True)
    (here / "link").symlink_to(here / "a" / "b")
    assert resolve_location("link/../t") == str(here.resolve() / "a" / "t")
    assert resolve_location("link") == str(here.resolve() / "a" / "b")


@pytest.mark.usefixtures("here")
def test_store_stays_where_it_was_opened(tmp_path: Path) -> None:
    stores = [open_store("t"), Location.of("t").store]
    os.chdir("home")
    for store in stores:
        store.put("x", b"1")
        assert store.uri == str(tmp_path.resolve() / "t")
        assert store.get("x") == (tmp_path / "t" / "x").read_bytes()


LOCAL, STORE = "/tables/t", "s3://bucket/t"
ABSOLUTE = "absolute path"
OUT = "path that leads out of the table"


@pytest.mark.parametrize(
    ("root", "path", "place"),
    [
        (LOCAL, "a b%20.parquet", "/tables/t/a b%20.parquet"),
        (LOCAL, "run-2024-05-01T00:00:00.parquet", "/tables/t/run-2024-05-01T00:00:00.parquet"),
        (LOCAL, "file:x", "/tables/t/file:x"),
        ("/", "a", "/a"),
        (STORE, "k/a.parquet", "s3://bucket/t/k/a.parquet"),
    ],
)
def test_files_below_the_root_are_located(root: str, path: str, place: str) -> None:
    for allowed in (False, True):
        assert locate_file(root, path, allow_absolute=allowed) == place


@pytest.mark.parametrize(
    ("root", "path", "feature"),
    [
        (LOCAL, "/tables/u/x", ABSOLUTE),
        (STORE, "s3://bucket/u/x", ABSOLUTE),
        (LOCAL, "../u/x", OUT),
        (LOCAL, "a/../../u/x", OUT),
        (LOCAL, "./x", OUT),
        (LOCAL, "a//x", OUT),
        (LOCAL, "", OUT),
        (LOCAL, "/a/../etc/passwd", OUT),
        (LOCAL, "a\0b", OUT),
        (LOCAL, "a\ufffdb", OUT),
        (LOCAL, "//host/share", OUT),
        (LOCAL, "file://host/x", OUT),
        (LOCAL, "s3://bucket/x", OUT),
        (LOCAL, "http://host/x", OUT),
        (STORE, "/etc/passwd", OUT),
        (STORE, "s3://other/x", OUT),
        (STORE, "s3://bucket@evil/x", OUT),
        (STORE, "s3://bucket:80/x", OUT),
        (STORE, "s3a://bucket/x", OUT),
        (STORE, "https://bucket/x", OUT),
        (STORE, "s3://bucket/a/../../x", OUT),
        (STORE, "../u/x", OUT),
    ],
)
def test_outside_files_raise_unless_absolute_and_allowed(root: str, path: str, feature: str) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        locate_file(root, path, allow_absolute=False)
    assert caught.value.feature == feature
    assert repr(path) in str(caught.value)
    if feature == ABSOLUTE:
        assert "allow_absolute_paths=True" in str(caught.value)
        assert locate_file(root, path, allow_absolute=True) == path
        return
    with pytest.raises(UnsupportedTableError):
        locate_file(root, path, allow_absolute=True)
