"""Convert, upgrade, switch, restore and the like, when the store fails or another writer comes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
from qbeast_core.errors import StorageError
from qbeast_core.io.store import LocalStore
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.format.appends import copy_of
from tests.format.collection import find
from tests.helpers.handmade_log import replay
from tests.helpers.invariants import check_invariants
from tests.helpers.races import landing_first
from tests.helpers.tables import assert_same_rows

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.QbeastWarning")

ROWS = pl.DataFrame({"id": range(200), "x": [i % 17 for i in range(200)]})


def plain(path: Path) -> Path:
    ROWS.write_delta(path)
    return path


def parquet(path: Path) -> Path:
    path.mkdir()
    ROWS.write_parquet(path / "a.parquet")
    return path


def written(path: Path) -> Path:
    qbeast.write_table(ROWS, path, columns=["id:linear", "x:linear"], cube_size=20)
    write_deltalake(path, ROWS.with_columns(pl.col("id") + 1000), mode="append")
    return path


def legacy(path: Path) -> Path:
    return copy_of(find("legacy/v050_mixed_states"), path.parent)


Make = Callable[[Path], Path]
Change = Callable[[Path], object]
CHANGES: dict[str, tuple[Make, Change]] = {
    "convert": (plain, lambda path: qbeast.convert_table(path, ["id", "x"])),
    "convert Parquet": (parquet, lambda path: qbeast.convert_table(path, ["id", "x"])),
    "upgrade": (legacy, lambda path: qbeast.open_table(path).upgrade(replicated="drop")),
    "switch": (written, lambda path: qbeast.open_table(path).switch_dialect("qbeast-spark")),
    "restore": (written, lambda path: qbeast.open_table(path).restore(0)),
    "set": (written, lambda path: qbeast.open_table(path).set_properties({"a": "1"})),
    "add": (written, lambda path: qbeast.open_table(path).add_columns({"n": pl.Int8})),
}


def state(path: Path) -> object:
    """What the log says, and everything the table holds; None: there is none."""
    try:
        actual = load_snapshot(path)
    except qbeast.TableNotFoundError:
        return None
    configuration = {
        key: text for key, text in actual.metadata.configuration.items() if "revision.0" not in key
    }
    files = actual.files.select("path", "revision", "blocks").sort("path").rows()
    return actual.version, configuration, actual.schema, files, pl.scan_delta(str(path)).collect().height


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("stored", [False, True])
def test_failing_store_leaves_table_before_or_after(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    make, change = CHANGES[name]
    (tmp_path / "wanted").mkdir()
    path, expected = make(tmp_path / "table"), make(tmp_path / "wanted" / "table")
    before, put = state(path), LocalStore.put_if_absent
    change(expected)

    def failing(store: LocalStore, name: str, data: bytes) -> None:
        monkeypatch.setattr(LocalStore, "put_if_absent", put)
        if stored:
            put(store, name, data)
        message = "the disk is gone"
        raise StorageError(message, path=name)

    monkeypatch.setattr(LocalStore, "put_if_absent", failing)
    if stored:
        change(path)  # the answer was wrong: the commit is there
    else:
        with pytest.raises(StorageError, match="the disk is gone"):
            change(path)
        assert state(path) == before
        change(path)
    assert _without_ids(state(path)) == _without_ids(state(expected))


def _without_ids(found: object) -> object:
    """Data files of two tables have other names."""
    assert isinstance(found, tuple)
    version, configuration, schema, files, rows = found
    spelled = sorted((number or 0, blocks or "") for _, number, blocks in files)
    kept = {key: text for key, text in configuration.items() if not key.startswith("qbeast.revision.")}
    return version, kept, schema, spelled, rows


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in ("convert Parquet", "upgrade")])
def test_rows_committed_first_survive_except_restore(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, change = CHANGES[name]
    path, put = make(tmp_path / "table"), LocalStore.put_if_absent
    before = pl.scan_delta(str(path)).collect().height
    more = ROWS.with_columns(pl.col("id") + 5000)

    def raced(store: LocalStore, name: str, data: bytes) -> None:
        monkeypatch.setattr(LocalStore, "put_if_absent", put)
        write_deltalake(path, more, mode="append")
        put(store, name, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", raced)
    change(path)
    actual = qbeast.read_table(path)
    assert actual.height == (ROWS.height if name == "restore" else before + more.height)
    assert actual["id"].is_unique().all()
    assert pl.scan_delta(str(path)).collect().height == actual.height


def test_failed_vacuum_is_harmless_and_resumable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table"
    for _ in range(4):
        qbeast.write_table(ROWS, path, columns=["id"], mode="overwrite")
    opened, delete = qbeast.open_table(path), LocalStore.delete
    calls = iter(range(10))

    def failing(store: LocalStore, name: str) -> None:
        if next(calls) == 1:
            message = "no rights"
            raise StorageError(message, path=name)
        delete(store, name)

    monkeypatch.setattr(LocalStore, "delete", failing)
    with pytest.raises(StorageError, match="no rights"):
        opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert_same_rows(opened.read(), ROWS, "id")
    opened.vacuum(retention_hours=0, allow_short_retention=True, dry_run=False)
    assert len(list(path.glob("*.parquet"))) == 1
    assert_same_rows(opened.read(), ROWS, "id")


def test_append_beside_a_switch_is_written_for_the_jvm_or_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "table")
    with (
        landing_first(lambda: qbeast.open_table(path).switch_dialect("qbeast-spark")),
        pytest.raises(qbeast.CommitConflictError, match="rewritten for the JVM meanwhile"),
    ):
        qbeast.write_table(ROWS.with_columns(pl.col("id") + 5000), path, mode="append")
    qbeast.write_table(ROWS.with_columns(pl.col("id") + 5000), path, mode="append")
    assert load_snapshot(path).config.dialect == "qbeast-spark"
    assert qbeast.read_table(path)["id"].n_unique() == 3 * ROWS.height
    tags = [add.get("tags") or {} for add in replay(path).values()]
    assert len({'"cubeId"' in item["blocks"] for item in tags if "blocks" in item}) == 1
    check_invariants(path, may_stage=True)
