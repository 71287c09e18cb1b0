"""What every engine has to do: each scenario changes a table and returns the rows that plain Polars computes.

The scenarios know no engine, and an engine knows no scenario. To cover another operation, add a function here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import qbeast
from tests.contract.engines import OperationsOfEngine
from tests.helpers.change_feed import check_feed, enable_feed
from tests.helpers.invariants import check_invariants
from tests.helpers.others import rows_of_others
from tests.helpers.strategies import ROW
from tests.helpers.tables import assert_same_rows, sampled
from tests.write.rules.tables import IDENTITY, ruled

__all__ = ["SCENARIOS", "Scenario", "check"]

COLUMNS = ["a:linear", "s:hash"]
NUMBER = pl.col(ROW)


@dataclass(frozen=True)
class Scenario:
    """A change of a table.

    Attributes
    ----------
    run : callable
        Changes the table at a path with an engine, and returns its rows.
    sampled_by : list of str
        Columns whose hash decides about samples; empty if the table is not sampled by one list of columns.
    is_indexed : bool
        Whether the table has an index.
    """

    run: Callable[[OperationsOfEngine, Path], pl.DataFrame]
    sampled_by: tuple[str, ...] = ("a", "s")
    is_indexed: bool = True


def rows(count: int = 90, first: int = 0) -> pl.DataFrame:
    """Return rows with numbers of their own, nulls, NaN, infinities, and texts that repeat."""
    number = pl.int_range(first, first + count, eager=True).alias(ROW)
    mixed = (number * 7919) % 397
    odd = pl.when(mixed % 31 == 0).then(float("nan")).when(mixed % 37 == 0).then(float("-inf"))
    return pl.select(
        number,
        a=pl.when(mixed % 11 > 0).then(mixed),
        s=pl.when(mixed % 7 > 0).then(pl.format("key {}", mixed % 13)),
        f=odd.otherwise(mixed / 8),
        p=pl.format("ü {}", mixed % 2),
        user=mixed % 17,
    )


def write(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    return rows()


def append_beyond_the_range(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    more = rows(100, 500).with_columns(pl.col("a") + 10_000)
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    engine.write(more, path, mode="append")
    assert qbeast.open_table(path).revisions[-1].revision_id == 2
    return pl.concat([rows(), more])


def overwrite(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    engine.write(rows(80, 1000), path, columns=COLUMNS, cube_size=30, mode="overwrite")
    return rows(80, 1000)


def tables_without_index(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=[])
    engine.write(rows(50, 300), path, mode="append")
    engine.delete(path, "user = 3")
    return pl.concat([rows(), rows(50, 300)]).filter(pl.col("user") != 3)


def partitions(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    first, more = rows(60), rows(20, 200).with_columns(p=pl.lit(None, pl.String))
    engine.write(first, path, columns=COLUMNS, cube_size=20, partition_by=["p"])
    engine.write(more, path, mode="append")
    engine.update(path, "p = 'ü 1' AND user < 9", {"p": "'neu'", "f": "0.5"})
    moved = (pl.col("p") == "ü 1") & (pl.col("user") < 9)
    return pl.concat([first, more]).with_columns(
        p=pl.when(moved).then(pl.lit("neu")).otherwise("p"), f=pl.when(moved).then(0.5).otherwise("f")
    )


def sampling_key(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=["a"], sample_by=["user"], cube_size=20)
    engine.write(rows(60, 200), path, mode="append")
    engine.update(path, "user = 4", {"user": "5"})
    user = pl.when(pl.col("user") == 4).then(5).otherwise("user").cast(pl.Int64)
    expected = pl.concat([rows(), rows(60, 200)]).with_columns(user=user)
    sample = qbeast.read_table(path, sample=0.4)
    users = sample["user"].unique().implode()
    assert sample.height == expected.filter(pl.col("user").is_in(users)).height < expected.height
    return expected


def rules(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    schema = {ROW: pl.Int64(), "price": pl.Float64(), "cents": pl.Int64(), "kind": pl.String()}
    notes = {
        "cents": {"delta.generationExpression": "CAST(price * 100 AS BIGINT)"},
        "kind": {"CURRENT_DEFAULT": "'none'"},
    }
    ruled(path, schema, notes, columns=[ROW, "price"], constraints={"cheap": "price < 100"})
    prices = rows().select(ROW, price=pl.col(ROW) / 4)
    engine.write(prices, path, mode="append")
    with pytest.raises(qbeast.ConstraintViolationError):
        engine.write(prices.with_columns(price=pl.col("price") + 90), path, mode="append")
    engine.update(path, f"{ROW} < 20", {"price": "price + 0.5"})
    engine.merge(pl.DataFrame({ROW: [5, 900], "price": [1.5, 2.5]}), path, ROW)
    price = pl.when(NUMBER == 5).then(1.5).when(NUMBER < 20).then(pl.col("price") + 0.5).otherwise("price")
    changed = pl.concat([prices.with_columns(price=price), pl.DataFrame({ROW: [900], "price": [2.5]})])
    return changed.with_columns(cents=(pl.col("price") * 100).truncate().cast(pl.Int64), kind=pl.lit("none"))


def identity_columns(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    ruled(path, {"id": pl.Int64(), ROW: pl.Int64()}, {"id": IDENTITY}, columns=[ROW])
    engine.write(rows().select(ROW), path, mode="append")
    engine.write(rows(50, 500).select(ROW), path, mode="append")
    engine.merge(pl.DataFrame({ROW: [7, 900]}), path, ROW)
    ids = qbeast.read_table(path, columns=["id", ROW])
    assert ids["id"].n_unique() == ids.height
    assert ids["id"].min() == 1
    # Engines number rows in their own order.
    expected = pl.concat([rows(), rows(50, 500), rows(1, 900)]).select(ROW)
    return expected.join(ids, on=ROW, how="left", validate="1:1").select("id", ROW)


def delete(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    result = engine.delete(path, "a < 300 AND s <> 'key 3'")
    kept = rows().filter(~((pl.col("a") < 300) & (pl.col("s") != "key 3")).fill_null(value=False))
    assert result.rows_deleted == 90 - kept.height > 0
    return kept


def update_beyond_the_range(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    result = engine.update(path, "user IN (3, 8)", {"a": "a + 100000", "s": "upper(s)"})
    chosen = pl.col("user").is_in([3, 8])
    assert result.rows_updated == rows().filter(chosen).height
    assert result.new_revision
    return rows().with_columns(
        a=pl.when(chosen).then(pl.col("a") + 100_000).otherwise("a"),
        s=pl.when(chosen).then(pl.col("s").str.to_uppercase()).otherwise("s"),
    )


def merge_with_all_clauses(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    source = rows(60, 60).with_columns(f=pl.lit(0.25), s=pl.lit("new"))
    result = engine.merge(
        source,
        path,
        ROW,
        matched_if="source.user <> 1",
        delete_if="source.user = 2",
        update={"f": "source.f + a", "s": "source.s"},
        not_matched_if="source.user < 12",
        when_not_matched_by_source="delete",
        not_matched_by_source_if="user = 5",
    )
    matched, user = NUMBER >= 60, pl.col("user")
    expected = rows().filter(~(matched & (user == 2)) & ~(~matched & (user == 5)))
    changed = matched & (user != 1)
    expected = expected.with_columns(
        f=pl.when(changed).then(0.25 + pl.col("a")).otherwise("f"),
        s=pl.when(changed).then(pl.lit("new")).otherwise("s"),
    )
    new = source.filter((NUMBER >= 90) & (user < 12))
    assert result.rows_inserted == new.height > 0
    return pl.concat([expected, new])


def merge_of_doubled_keys(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(40), path, columns=COLUMNS, cube_size=20)
    source = rows(6, 100).with_columns(s=pl.Series(["x", "x", "y", None, None, "x"]))
    with pytest.raises(qbeast.InvalidInputError, match=r"^2 row.*'s': 'x'.*Leave one row per key") as caught:
        engine.merge(source, path, "s")
    assert (caught.value.argument, qbeast.open_table(path).version) == ("duplicates", 0)
    assert engine.merge(source, path, "s", duplicates="insert").rows_inserted == 6
    return pl.concat([rows(40), source])


def change_feed(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    first, kept = rows(50), rows(50).filter(pl.col("user") != 3)
    engine.write(first, path, columns=COLUMNS, cube_size=20)
    enable_feed(path)
    version = engine.delete(path, "user = 3").version
    check_feed(path, version, first, kept, {"delete": first.filter(user=3)[ROW]})
    changed = kept.with_columns(f=pl.when(pl.col("user") < 5).then(1.5).otherwise("f"))
    version = engine.update(path, "user < 5", {"f": "1.5"}).version
    check_feed(path, version, kept, changed, {"update": changed.filter(pl.col("user") < 5)[ROW]})
    return changed


def change_feed_of_merge(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(50), path, columns=COLUMNS, cube_size=20)
    enable_feed(path)
    source = rows(60, 40).with_columns(f=pl.lit(0.25))
    version = engine.merge(source, path, ROW).version
    merged = pl.concat([rows(40), source])
    inserts, updates = source.filter(NUMBER >= 50)[ROW], source.filter(NUMBER < 50)[ROW]
    check_feed(path, version, rows(50), merged, {"insert": inserts, "update": updates})
    return merged


def deletion_vectors(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    kept = with_hidden_rows(engine, path)
    chosen = pl.col("user") == 5
    moved = kept.with_columns(a=pl.when(chosen).then(pl.col("a") + 1000).otherwise("a"))
    updated = engine.update(path, "user = 5", {"a": "a + 1000"})
    check_feed(path, updated.version, kept, moved, {"update": kept.filter(chosen)[ROW]})
    check_hidden(updated)
    return moved


def deletion_vectors_of_merge(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    kept = with_hidden_rows(engine, path)
    source = pl.concat([kept.filter(user=7), kept.filter(user=9), rows(3, 400)]).with_columns(f=pl.lit(0.25))
    merged = engine.merge(source, path, ROW, delete_if="source.user = 9")
    new = source.filter((pl.col("user") != 9) | (NUMBER >= 400))
    result = pl.concat([kept.join(source, on=ROW, how="anti"), new])
    keys = {
        "delete": kept.filter(user=9)[ROW],
        "update": kept.filter(user=7)[ROW],
        "insert": source.filter(NUMBER >= 400)[ROW],
    }
    check_feed(path, merged.version, kept, result, keys)
    check_hidden(merged)
    return result


def with_hidden_rows(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    """Write a table with deletion vectors, delete rows, and return those that stay."""
    first = rows()
    engine.write(first, path, columns=COLUMNS, deletion_vectors=True, change_feed=True)
    kept = first.filter(pl.col("user") != 3)
    deleted = engine.delete(path, "user = 3")
    check_feed(path, deleted.version, first, kept, {"delete": first.filter(user=3)[ROW]})
    check_hidden(deleted)
    return kept


def check_hidden(change: qbeast.ChangeResult) -> None:
    """Assert that a change hid rows of some files. Tasks may write small files, of which more than 30 % match."""
    rewritten = change.plan.filter(pl.col("action") != "hide")
    assert rewritten.height < change.plan.height
    assert change.rows_copied <= rewritten["rows"].sum()


def optimize(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    engine.write(rows(20, 200), path, mode="append")
    engine.optimize(path)
    assert engine.optimize(path, full=True).rows == 110
    return pl.concat([rows(), rows(20, 200)])


def reindex(engine: OperationsOfEngine, path: Path) -> pl.DataFrame:
    engine.write(rows(), path, columns=COLUMNS, cube_size=20)
    engine.reindex(path, ["f", "user:hash"])
    engine.write(rows(30, 700), path, mode="append")
    engine.reindex(path, ["f", "user:hash"], full=True)
    assert {"f", "user"} <= set(qbeast.open_table(path).columns)
    return pl.concat([rows(), rows(30, 700)])


SCENARIOS: dict[str, Scenario] = {
    "write": Scenario(write),
    "append beyond the range": Scenario(append_beyond_the_range),
    "overwrite": Scenario(overwrite),
    "without index": Scenario(tables_without_index, (), is_indexed=False),
    "partitions": Scenario(partitions),
    "sampling key": Scenario(sampling_key, ("user",)),
    "rules": Scenario(rules, (ROW, "price")),
    "identity": Scenario(identity_columns, (ROW,)),
    "delete": Scenario(delete),
    "update beyond the range": Scenario(update_beyond_the_range),
    "merge with all clauses": Scenario(merge_with_all_clauses),
    "change feed": Scenario(change_feed),
    "merge of doubled keys": Scenario(merge_of_doubled_keys),
    "change feed of merge": Scenario(change_feed_of_merge),
    "deletion vectors": Scenario(deletion_vectors),
    "deletion vectors of merge": Scenario(deletion_vectors_of_merge),
    "optimize": Scenario(optimize),
    "reindex": Scenario(reindex, ("f", "user")),
}
"""By name. Each runs once per engine."""


def check(scenario: Scenario, path: Path, expected: pl.DataFrame) -> None:
    """Assert that the table has these rows for us and for others, samples of them, and a valid index."""
    assert_same_rows(qbeast.read_table(path), expected)
    assert_same_rows(rows_of_others(path).select(expected.columns).cast(dict(expected.schema)), expected)
    assert qbeast.open_table(path).check(data=False).ok
    if scenario.is_indexed:
        check_invariants(path, may_stage=True)
        wanted = sampled(expected, [*scenario.sampled_by], 0.3)
        assert_same_rows(qbeast.read_table(path, sample=0.3), wanted)
