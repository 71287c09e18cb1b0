"""Changes that hide rows in every kind of table: features of Delta, files of others, older vectors, engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

import qbeast
from qbeast_core.table.dml.change import ChangeOptions, Delete, Update, run_change
from qbeast_core.table.dml.merge import Merge
from qbeast_core.table.dml.merge_rules import Clauses
from qbeast_core.table.dml.merge_sources import FrameMergeSource
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.helpers.change_feed import check_feed, feed_actions
from tests.helpers.changes import spread
from tests.helpers.handmade_log import replay, write_log
from tests.helpers.invariants import check_invariants
from tests.helpers.others import rows_of_others
from tests.helpers.races import landing_first
from tests.helpers.row_bitmaps import descriptor, roaring
from tests.helpers.row_ids import ID_COLUMN, check_log, commits, row_ids, tracked
from tests.helpers.scattering import PartsEngine
from tests.helpers.strategies import ROW
from tests.helpers.tables import MEMORY, SPILL, assert_same_rows, sampled, small_files, using
from tests.helpers.vectors import ENABLED, enable_vectors, few, hidden_rows, rows_by_sql, vector_files
from tests.write.rules.tables import IDENTITY, high_water_mark, ruled

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.SmallPartitionsWarning"),
]
COUNT = 200
NUMBER = pl.col(ROW)
SOME = (NUMBER % 13).eq(5)
ONE = (NUMBER % 17).eq(2)
OTHER = (NUMBER % 19).eq(4) & ~ONE


def rows(count: int = COUNT, first: int = 0) -> pl.DataFrame:
    return spread(count, first).with_columns(p=NUMBER % 3, s=pl.format("{} ü", NUMBER % 7))


def source(before: pl.DataFrame) -> pl.DataFrame:
    chosen = before.filter((NUMBER % 29).eq(3)).with_columns(f=pl.lit(0.25))
    return pl.concat([chosen, rows(3, 9000)])


def changed(path: Path, before: pl.DataFrame, resources: qbeast.Resources = MEMORY) -> pl.DataFrame:
    """Delete, update and merge few rows of each file; assert that no row is copied. Return the rows."""
    table = qbeast.open_table(path)
    results = [
        using(table, resources).delete(SOME),
        using(table, resources).update(ONE, {"f": "f + 1", "a": f"{ROW} + 1000"}),
    ]
    f, a = (
        pl.when(ONE).then(value).otherwise(name)
        for name, value in (("f", pl.col("f") + 1), ("a", NUMBER + 1000))
    )
    after = before.filter(~SOME).with_columns(f=f.alias("f"), a=a.alias("a"))
    new = source(after)
    results.append(using(table, resources).merge(new, ROW))
    after = pl.concat([after.join(new, on=ROW, how="anti"), new])
    for result in results:
        assert (set(result.plan["action"]), result.rows_copied) == ({"hide"}, 0)
    return after


def check(path: Path, after: pl.DataFrame, by: list[str] | None = None, *, may_stage: bool = False) -> None:
    table = qbeast.open_table(path)
    assert_same_rows(table.read(columns=after.columns), after)
    assert_same_rows(rows_of_others(path).select(after.columns), after)
    low = NUMBER.is_between(20, 120) & (pl.col("a") < 300)
    assert_same_rows(table.read(columns=after.columns, where=low), after.filter(low))
    if by:
        assert_same_rows(table.read(columns=after.columns, sample=0.3), sampled(after, by, 0.3))
    assert table.check().ok
    if by:
        check_invariants(path, may_stage=may_stage)


def new_table(path: Path, **options: Any) -> pl.DataFrame:
    """Write a table of several files with vectors."""
    with small_files(file_rows=70, page_rows=8):
        qbeast.write_table(rows(), path, deletion_vectors=True, **options)
    return rows()


KINDS: dict[str, tuple[dict[str, Any], list[str] | None]] = {
    "index": ({"columns": [ROW, "a"], "cube_size": 40}, [ROW, "a"]),
    "no index": ({"columns": []}, None),
    "partitions": ({"columns": [ROW, "a"], "cube_size": 40, "partition_by": ["p"]}, [ROW, "a"]),
    "sampling key": ({"columns": ["a"], "cube_size": 40, "sample_by": [ROW]}, [ROW]),
    "sample column": ({"columns": [ROW, "a"], "cube_size": 40, "sample_column": "sample"}, [ROW, "a"]),
}


@pytest.mark.parametrize("kind", few(KINDS, "no index"))
def test_rows_of_each_kind_equal_plain_polars(tmp_path: Path, kind: str) -> None:
    path, (options, by) = tmp_path / "t", KINDS[kind]
    before = new_table(path, **options)
    check(path, changed(path, before), by)
    assert hidden_rows(path)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_hide_rows(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t"
    before = new_table(path, columns=[ROW, "a"], cube_size=40)
    table = qbeast.open_table(path)
    table.rename_column("f", "g", upgrade_protocol=True)
    table.rename_column("g", "f")
    if mode == "id":
        newest = next(
            action for commit in reversed(commits(path)) for action in commit if "metaData" in action
        )
        newest["metaData"]["configuration"]["delta.columnMapping.mode"] = "id"
        write_log(path, [newest], first=len(commits(path)))
    after = changed(path, before)
    check(path, after, [ROW, "a"])


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["spill", "workers"])
def test_engines_move_only_changed_rows(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "t"
    before = new_table(path, columns=[ROW, "a"], cube_size=40, change_feed=True)
    if engine == "spill":
        check(path, changed(path, before, SPILL), [ROW, "a"])
        return
    workers, after = PartsEngine(part_rows=7), before.filter(~SOME)
    new = source(after)
    updated = after.with_columns(a=pl.when(ONE).then(NUMBER + 1000).otherwise("a"))
    steps = [
        (Delete(SOME), after, {"delete": before.filter(SOME)[ROW]}),
        (Update(ONE, {"a": f"{ROW} + 1000"}), updated, {"update": after.filter(ONE)[ROW]}),
        (
            Merge(FrameMergeSource(new), Clauses(on=ROW)),
            pl.concat([updated.join(new, on=ROW, how="anti"), new]),
            {"update": new[ROW][:-3], "insert": new[ROW][-3:]},
        ),
    ]
    for change, then, keys in steps:
        result, _ = run_change(load_snapshot(path), change, ChangeOptions(), engine=workers)
        assert (set(result.plan["action"]), result.rows_copied) == ({"hide"}, 0)
        check_feed(path, result.version, before, then, keys)
        before = then
    check(path, before, [ROW, "a"])


@pytest.mark.sweep
def test_feed_lists_only_rows_that_change(tmp_path: Path) -> None:
    path = tmp_path / "t"
    before = new_table(path, columns=[ROW, "a"], cube_size=40, change_feed=True)
    table = qbeast.open_table(path)
    version = table.delete(SOME).version
    after = before.filter(~SOME)
    check_feed(path, version, before, after, {"delete": before.filter(SOME)[ROW]})
    # The same condition again: hidden rows do not match.
    both = SOME | ONE
    version = table.update(both, {"f": 3.0}).version
    updated = after.with_columns(f=pl.when(both).then(3.0).otherwise("f"))
    check_feed(path, version, after, updated, {"update": after.filter(both)[ROW]})
    result = table.delete(NUMBER < 60)
    assert {"drop", "hide"} & set(result.plan["action"])
    assert feed_actions(path, result.version)
    left = updated.filter(NUMBER >= 60)
    check_feed(path, result.version, updated, left, {"delete": updated.filter(NUMBER < 60)[ROW]})


def foreign(path: Path, how: str) -> None:
    """Append rows of another writer, with one row group or several, and with or without a page index."""
    more = rows(100, 500)
    if how == "deltalake":
        write_deltalake(path, more, mode="append")
        return
    name = f"{how}.parquet"
    more.write_parquet(path / name, row_group_size=30, statistics=how == "statistics")
    add = {
        "path": name,
        "partitionValues": {},
        "size": (path / name).stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
        "stats": json.dumps({"numRecords": more.height}),
    }
    write_log(path, [{"add": add}], first=len(commits(path)))


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["deltalake", "statistics", "nothing"])
def test_files_of_others_keep_their_rows(tmp_path: Path, how: str) -> None:
    path = tmp_path / "t"
    before = new_table(path, columns=[ROW, "a"], cube_size=40)
    foreign(path, how)
    names = replay(path).keys()
    after = changed(path, pl.concat([before, rows(100, 500)]))
    assert names <= replay(path).keys()
    check(path, after)
    check_invariants(path, may_stage=True)


def test_uncounted_files_are_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "t"
    before = new_table(path, columns=[ROW, "a"], cube_size=40)
    foreign(path, "nothing")
    actions = commits(path)[-1]
    del actions[0]["add"]["stats"]
    write_log(path, actions, first=len(commits(path)) - 1)
    result = qbeast.open_table(path).delete(SOME)
    assert set(result.plan["action"]) == {"hide", "rewrite"}
    assert all("numRecords" in json.loads(add["stats"]) for add in replay(path).values() if "stats" in add)
    check(path, pl.concat([before, rows(100, 500)]).filter(~SOME))


def absolute(path: Path, vector: dict[str, Any]) -> dict[str, Any]:
    """Return a descriptor of the same bytes at an absolute path."""
    name = next(iter(vector_files(path)))
    return {**vector, "storageType": "p", "pathOrInlineDv": f"file://{path}/{name}"}


@pytest.mark.parametrize("kind", ["i", "u", "p"])
def test_older_vectors_are_extended(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    qbeast.write_table(rows(), path, columns=[ROW, "a"], deletion_vectors=True)
    (name,) = path.glob("*.parquet")
    stored = pl.read_parquet(name, columns=rows().columns)
    gone = [0, 7, 8, 9, 199]
    vector = descriptor(path, roaring(gone), "u" if kind == "p" else kind)  # type: ignore[arg-type]
    if kind == "p":
        vector = absolute(path, vector)
    (add,) = replay(path).values()
    again = {
        **add,
        "deletionVector": vector,
        "stats": json.dumps({**json.loads(add["stats"]), "tightBounds": False}),
    }
    remove = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}
    write_log(path, [{"remove": remove}, {"add": again}], first=1)
    before = stored[[index for index in range(COUNT) if index not in gone]]
    trusted = {"allow_absolute_paths": True} if kind == "p" else {}
    table = qbeast.open_table(path, **trusted)
    result = table.delete(SOME)
    assert (set(result.plan["action"]), result.rows_deleted) == ({"hide"}, before.filter(SOME).height)
    expected = sorted({*gone, *stored.with_row_index().filter(SOME)["index"].to_list()})
    assert hidden_rows(path) == {name.name: expected}
    assert_same_rows(table.read(), before.filter(~SOME))
    assert_same_rows(rows_by_sql(path).select(before.columns), before.filter(~SOME))
    (removed,) = [action["remove"] for action in commits(path)[-1] if "remove" in action]
    assert removed["deletionVector"] == vector


@pytest.mark.sweep
def test_moved_rows_keep_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "t"
    tracked(path, spread(COUNT))
    qbeast.convert_table(path, columns=[ROW, "a"])
    enable_vectors(path)
    before = spread(COUNT).filter(~SOME)
    table = qbeast.open_table(path)
    old, versions = row_ids(path, ROW), {}
    steps: list[tuple[Callable[[], qbeast.ChangeResult], set[int]]] = [
        (lambda: table.delete(SOME), set()),
        (lambda: table.update(ONE, {"f": "f + 1"}), set(before.filter(ONE)[ROW])),
        (lambda: table.update(OTHER, {"a": "a + 1000"}), set(before.filter(OTHER)[ROW])),
        (lambda: table.merge(spread(2, 9000), ROW), set()),
    ]
    for change, moved in steps:
        result = change()
        assert result.rows_copied == 0
        assert set(result.plan["action"]) <= {"hide"}
        versions |= dict.fromkeys(moved, result.version)
        check_log(path)
        info = next(action["commitInfo"] for action in commits(path)[-1] if "commitInfo" in action)
        assert info["tags"] == {"delta.rowTracking.preserved": "true"}
        for key, (row_id, version) in row_ids(path, ROW).items():
            if key in old:
                assert (row_id, version) == (old[key][0], versions.get(key, old[key][1]))
    assert table.check().ok
    moved_files = [name for name in replay(path) if ID_COLUMN in pl.read_parquet_schema(path / name)]
    assert len(moved_files) >= 3  # one is of the other writer


def test_lost_ids_of_moved_rows_are_reported(tmp_path: Path) -> None:
    """Tracking is enabled between the plan and the commit: the moved rows have new ids."""
    path = tmp_path / "t"
    names = {
        f"delta.rowTracking.materialized{name}ColumnName": f"_{name}"
        for name in ("RowId", "RowCommitVersion")
    }
    tracked(path, spread(COUNT), configuration=names)
    qbeast.convert_table(path, columns=[ROW, "a"])
    enable_vectors(path)

    def enable() -> None:
        (line,) = [action for commit in commits(path) for action in commit if "metaData" in action][-1:]
        line["metaData"]["configuration"]["delta.enableRowTracking"] = "true"
        write_log(path, [line], first=len(commits(path)))

    with landing_first(enable):
        result = qbeast.open_table(path).update(ONE, {"f": 1.5})
    assert set(result.plan["action"]) == {"hide"}
    info = next(action["commitInfo"] for action in commits(path)[-1] if "commitInfo" in action)
    assert info["tags"] == {"delta.rowTracking.preserved": "false"}


def test_rules_hold_for_moved_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = {"id": pl.Int64(), ROW: pl.Int64(), "price": pl.Float64(), "cents": pl.Int64()}
    notes = {"id": IDENTITY, "cents": {"delta.generationExpression": "CAST(price * 100 AS BIGINT)"}}
    ruled(path, schema, notes, columns=[ROW], constraints={"cheap": "price < 100"})
    enable_vectors(path)
    prices = pl.DataFrame({ROW: range(COUNT), "price": [number / 4 for number in range(COUNT)]})
    qbeast.write_table(prices, path, mode="append")
    table = qbeast.open_table(path)
    ids = dict(table.read(columns=[ROW, "id"]).iter_rows())
    mark = high_water_mark(path, "id")
    with pytest.raises(qbeast.ConstraintViolationError, match="cheap"):
        table.update(SOME, {"price": "price + 90"})
    assert not vector_files(path)
    result = table.update(SOME, {"price": "price + 0.5"})
    merged = table.merge(pl.DataFrame({ROW: [5, 900], "price": [1.5, 2.5]}), ROW)
    assert set(result.plan["action"]) | set(merged.plan["action"]) == {"hide"}
    after = prices.with_columns(
        price=pl.when(NUMBER == 5).then(1.5).when(SOME).then(pl.col("price") + 0.5).otherwise("price")
    )
    after = pl.concat([after, pl.DataFrame({ROW: [900], "price": [2.5]})])
    after = after.with_columns(cents=(pl.col("price") * 100).cast(pl.Int64))
    assert_same_rows(table.read(columns=after.columns), after)
    found = dict(table.read(columns=[ROW, "id"]).iter_rows())
    assert mark is not None
    assert found == {**ids, 900: mark + 1}
    assert high_water_mark(path, "id") == mark + 1
    assert_same_rows(rows_of_others(path).select(after.columns), after)


@pytest.mark.parametrize("name", ["delete", "update", "merge"])
def test_tables_of_a_jvm_hide_no_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    before = rows().drop("d")
    qbeast.write_table(before, path, columns=[ROW, "a"], dialect="qbeast-spark")
    DeltaTable(path).alter.set_table_properties(ENABLED)  # ours refuses it
    table = qbeast.open_table(path)
    changes: dict[str, tuple[Callable[[], qbeast.ChangeResult], pl.DataFrame]] = {
        "delete": (lambda: table.delete(SOME), before.filter(~SOME)),
        "update": (
            lambda: table.update(SOME, {"f": 1.5}),
            before.with_columns(f=pl.when(SOME).then(1.5).otherwise("f")),
        ),
        "merge": (
            lambda: table.merge(before.filter(SOME).with_columns(f=pl.lit(1.5)), ROW),
            before.with_columns(f=pl.when(SOME).then(1.5).otherwise("f")),
        ),
    }
    change, after = changes[name]
    assert set(change().plan["action"]) == {"rewrite"}
    assert not vector_files(path)
    assert_same_rows(table.read(), after)


def test_encoded_paths_hide_no_rows(tmp_path: Path) -> None:
    """Polars shows the hidden rows of files whose paths are encoded in the log."""
    path = tmp_path / "t"
    before = rows().with_columns(s=pl.when(NUMBER % 2 == 0).then(pl.lit("a b")).otherwise(pl.lit("c")))
    qbeast.write_table(before, path, columns=[ROW], partition_by=["s"], deletion_vectors=True)
    result = qbeast.open_table(path).delete(SOME)
    assert dict(result.plan.select(pl.col("path").str.contains(" "), "action").iter_rows()) == {
        True: "rewrite",
        False: "hide",
    }
    check(path, before.filter(~SOME), [ROW])


def exact(path: Path, stats: str) -> str:
    """Give the only file other statistics, commit a deletion, and return its statistics then."""
    (add,) = replay(path).values()
    write_log(path, [{"add": {**add, "stats": stats, "dataChange": False}}], first=len(commits(path)))
    assert set(qbeast.open_table(path).delete(SOME).plan["action"]) == {"hide"}
    (add,) = replay(path).values()
    return str(add["stats"])


def test_statistics_keep_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "t"
    qbeast.write_table(rows(), path, columns=[ROW], deletion_vectors=True)
    bounds = '{"x":12345678901234567890.123456789,"y":123456789012345678901234567890,"z":1.0E-7}'
    stats = f'{{"numRecords":{COUNT},"minValues":{bounds},"maxValues":{bounds},"nullCount":{{"x":0}}}}'
    changed_stats = exact(path, stats)
    assert changed_stats.count(bounds) == 2
    assert json.loads(changed_stats)["tightBounds"] is False


@pytest.mark.parametrize("end", [',"tightBounds":true}', ', "tightBounds" : true }', ',"tightBounds":false}'])
def test_tight_bounds_become_wide(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t"
    qbeast.write_table(rows(), path, columns=[ROW], deletion_vectors=True)
    text = '"maxValues":{"s":"\\"tightBounds\\":true"}'
    changed_stats = exact(path, f'{{"numRecords":{COUNT},{text}{end}')
    assert json.loads(changed_stats) == {
        "numRecords": COUNT,
        "maxValues": {"s": '"tightBounds":true'},
        "tightBounds": False,
    }
    assert changed_stats.count("tightBounds") == 2


def test_decimals_keep_their_bounds(tmp_path: Path) -> None:
    path = tmp_path / "t"
    price = pl.Series("price", [f"1234567890123456789012345.{number:03}" for number in range(COUNT)])
    before = rows().with_columns(price=price.cast(pl.Decimal(28, 3)))
    qbeast.write_table(before, path, columns=[ROW], deletion_vectors=True)
    table = qbeast.open_table(path)
    assert set(table.delete(SOME).plan["action"]) == {"hide"}
    last = pl.col("price") == before["price"][-1]
    assert table.read(where=last)[ROW].to_list() == [COUNT - 1]
    assert pl.scan_delta(str(path)).filter(last).collect()[ROW].to_list() == [COUNT - 1]
    query = "SELECT row FROM t WHERE price = CAST('1234567890123456789012345.199' AS DECIMAL(28, 3))"
    assert rows_by_sql(path, query)[ROW].to_list() == [COUNT - 1]
