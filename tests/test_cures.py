# ruff: noqa: E501, S307 -- a table: each wrong line and its cure are run
"""Wrong lines of users of other libraries: the message names a call, and the call does what was wanted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import qbeast
from qbeast_core.api.keywords import ReadKeywords
from tests.helpers.tables import assert_same_rows

ROWS = pl.DataFrame(
    {
        "id": range(100),
        "price": [i % 7 / 2 for i in range(100)],
        "brand": [f"b{i % 3}" for i in range(100)],
        "few": pl.repeat(1, 100, dtype=pl.Int32, eager=True),
    }
)
NEW = ROWS.with_columns(id=pl.col("id") + 1000)
PART = pl.DataFrame({"id": [*range(5), 5000], "price": [9.5] * 6})


class Cured(NamedTuple):
    """A wrong line, the call that its message names, what the dots stand for, and what is true afterwards."""

    wrong: str
    named: str
    filled: tuple[str, ...] = ()
    holds: str = "True"


COPY = (
    "qbeast.write_table(table.rows(), new, columns=table.indexed_columns)",
    (),
    "same(qbeast.read_table(new), ROWS)",
)
CLUSTERS = "reindex(columns=[...])", ("'brand'",), "table.indexed_columns == ('brand',)"
VERSION = "qbeast.open_table(table.uri, version=...)", ("0",), "result.version == 0"
APPEND = (
    'qbeast.write_table(rows, table.uri, mode="append")',
    (),
    "qbeast.open_table(table.uri).count() == 200",
)
SPLIT = (
    'rows().split({"train": 0.8, "test": 0.2})',
    (),
    "result['train'].collect().height + result['test'].collect().height == 100",
)
FILES = "rows().files()", (), "result.height == 1"
UPDATED = "table.count('price = 9.5') == 5 and table.count() == 100"

CURES = [
    Cured("table.clone()", *COPY),
    Cured("table.copy()", *COPY),
    Cured("table.shallow_clone(new)", *COPY),
    Cured("table.deep_clone(new)", *COPY),
    Cured("qbeast.copy_table('t', new)", "qbeast.write_table(qbeast.scan_table(path), new, columns=[...])", ("'id'",), "same(qbeast.read_table(new), ROWS)"),
    Cured("qbeast.clone('t', new)", "qbeast.write_table(qbeast.scan_table(path), new, columns=[...])", ("'id'",)),
    Cured("table.delete(id=5)", 'delete("id = 5")', (), "table.count() == 99 and table.count('id = 5') == 0"),
    Cured("table.delete(brand='b1')", "delete(\"brand = 'b1'\")", (), "table.count(\"brand = 'b1'\") == 0"),
    Cured("table.delete(brand=\"it's\")", "delete(\"brand = 'it''s'\")", (), "table.count() == 100"),
    Cured("table.read(id=5, brand='b2')", "read(\"id = 5 AND brand = 'b2'\")", (), "result.height == 1"),
    Cured("table.count(id=5)", 'count("id = 5")', (), "result == 1"),
    Cured("table.update(price=0, where='id = 1')", 'update(where, {"price": 0})', (), "table.read(where)['price'].to_list() == [0]"),
    Cured("table.update('id = 1', brand='x')", "update(where, {\"brand\": \"'x'\"})", (), "table.read(where)['brand'].to_list() == ['x']"),
    Cured("table.optimize(zorder=['brand'])", *CLUSTERS),
    Cured("table.optimize(z_order=['brand'])", *CLUSTERS),
    Cured("table.optimize(zorder_by=['brand'])", *CLUSTERS),
    Cured("table.optimize(zOrderBy=['brand'])", *CLUSTERS),
    Cured("table.optimize(cluster_by=['brand'])", *CLUSTERS),
    Cured("table.optimize(columns=['brand'])", *CLUSTERS),
    Cured("table.z_order(['brand'])", *CLUSTERS),
    Cured("table.cluster_by(['brand'])", *CLUSTERS),
    Cured("table.zorder(['brand'])", "optimize()"),
    Cured("table.split(train=0.8, test=0.2)", *SPLIT),
    Cured("table.train_test_split(0.2)", *SPLIT),
    Cured("table.random_split([0.8, 0.2])", *SPLIT),
    Cured("table.randomSplit([0.8, 0.2])", *SPLIT),
    Cured("table.rows().to_arrow()", "arrow()", (), "result.num_rows == 100"),
    Cured("table.rows().to_pandas()", "pandas()", (), "len(result) == 100"),
    Cured("table.rows().iter_batches()", "batches()", (), "same(pl.concat(result), ROWS)"),
    Cured("table.rows().scan_tasks()", "tasks()", (), "len(result) == 1"),
    Cured("table.rows().collect()", "read()", (), "same(result, ROWS)"),
    Cured("table.rows().filter(price=0)", "lazy().filter(...)", ("pl.col('id') < 3",), "result.collect().height == 3"),
    Cured("table.rows().count(where='id < 3')", "rows(where=...).count(...)", ("'id < 3'", ""), "result == 3"),
    Cured("table.rows().read(sample=0.5)", "rows(sample=...).read(...)", ("0.5", ""), "0 < result.height < 100"),
    Cured("table.rows().split(test_size=0.2)", 'split({"test": 0.2})'),
    Cured("table.load_as_version(0)", *VERSION),
    Cured("table.as_of(0)", *VERSION),
    Cured("table.snapshot_at(0)", *VERSION),
    Cured("table.rows(sample=0.5).filter(pl.col('id') < 3)", "lazy().filter(...)", ("pl.col('id') < 3",)),
    Cured("table.rows().estimate('avg(price)', sample=0.5)", "rows(sample=...).estimate(...)", ("0.5", "'avg(price)'"), "result.met is None"),
    Cured("table.delete('id = 1', memory_bytes=1 << 30)", "qbeast.open_table(path, resources=qbeast.Resources(memory_bytes=...))", ("1 << 30",)),
    Cured("table.lazy()", "rows().lazy()", (), "same(result.collect(), ROWS)"),
    Cured("table.pl()", "read()"),
    Cured("table.df()", "read()", (), "same(result, ROWS)"),
    Cured("table.iloc[:3]", "rows().head(...)", ("3",), "result.height == 3"),
    Cured("table.limit(3)", "rows().head(...)", ("3",), "result.height == 3"),
    Cured("table.take(3)", "rows().head(...)", ("3",), "result.height == 3"),
    Cured("table.loc[3]", "read(where=...)", ("'id = 3'",), "result.height == 1"),
    Cured("table.file_uris()", *FILES),
    Cured("table.get_add_actions()", *FILES),
    Cured("table.partitions()", *FILES),
    Cured("table.dtypes", "schema", (), "result == ROWS.schema"),
    Cured("table.width", "columns", (), "result == ROWS.columns"),
    Cured("table.collect_schema()", "schema"),
    Cured("table.printSchema()", "schema"),
    Cured("table.flags", "read().flags"),
    Cured("table.path", "uri", (), "result == table.uri"),
    Cured("table.execute('SELECT 1')", 'sql("SELECT ... FROM self")', ("count(*)",), "result.collect().item() == 100"),
    Cured("table.iterrows()", "rows().batches()"),
    Cured("table.to_parquet(new)", "rows().lazy().sink_parquet(path)", (), "pl.read_parquet(path).height == 100"),
    Cured("table.to_csv(new)", "rows().lazy().sink_csv(path)", (), "pl.read_csv(path).height == 100"),
    Cured("table.to_pyarrow_table()", "rows().arrow()", (), "result.num_rows == 100"),
    Cured("table.to_pyarrow_dataset()", "rows().arrow()"),
    Cured("table.with_column('x')", "rows().lazy().with_columns(...)", ("x=1",)),
    Cured("table.withColumn('x', 1)", "rows().lazy().with_columns(...)", ("x=1",)),
    Cured("table.with_columns(x=1)", "add_columns({...})", ("'x': pl.Int64",), "'x' in table.columns"),
    Cured("table.alter_column('id', 'decimal')", "widen_columns({...})", ("'few': pl.Int64}, **{'upgrade_protocol': True",), "table.schema['few'] == pl.Int64"),
    Cured("table.rename({'brand': 'x'})", "rename_column(...)", ("'brand', 'x', upgrade_protocol=True",), "'x' in table.columns"),
    Cured("table.drop(['brand'])", "drop_column(...)", ("'brand', upgrade_protocol=True",), "'brand' not in table.columns"),
    Cured("table.drop()", "qbeast.drop_table(path, confirm=True)", (), "not qbeast.table_exists('t')"),
    Cured("table.truncate()", "delete(True)", (), "table.count() == 0"),
    Cured("table.extend(rows)", *APPEND),
    Cured("table.append(rows)", *APPEND),
    Cured("table.overwrite(rows)", 'qbeast.write_table(rows, table.uri, mode="overwrite")', (), "same(qbeast.read_table('t'), rows)"),
    Cured("table.snapshots()", "versions()", (), "result.height == 1"),
    Cured("table.manage_snapshots()", "restore(version)"),
    Cured("table.sql('DROP TABLE self')", "qbeast.drop_table(path, confirm=True)", (), "not qbeast.table_exists('t')"),
    Cured("table.sql('TRUNCATE TABLE self')", "Table.delete(True)", (), "table.count() == 0"),
    Cured("table.sql('INSERT INTO self VALUES (1)')", 'qbeast.write_table(rows, path, mode="append")', (), "qbeast.open_table(path).count() == 200"),
    Cured("table.rows().estimate('count(distinct brand)', error=0.1)", 'qbeast.scan_table(path, columns=["brand"]).select(pl.col("brand").drop_nulls().n_unique()).collect()', (), "result.item() == 3"),
]  # fmt: skip
# A line, the arguments that were typed, those that the message names, and what is true with them.
MERGE = "table.merge(PART, on='id'{})"
ARGUMENTS = [
    (MERGE, "", 'update={"price": "source.price"} and when_not_matched="ignore"', UPDATED),
    ("table.merge(PART, on='id', when_not_matched='ignore'{})", "", 'update={"price": "source.price"}', UPDATED),
    ("table.merge(PART, on='id', when_matched='ignore'{})", "", 'insert={"id": "source.id", "price": "source.price"}', "table.count() == 101 and table.count('brand IS NULL') == 1"),
    ("table.merge(PART.select('id'), on='id'{})", "", 'schema_mode="merge"', "table.count() == 101 and table.count('price = 9.5') == 0"),
    ("table.merge(PART.select('id'), on='id'{})", "", 'when_matched="ignore" and insert={"id": "source.id"}', "table.count() == 101 and table.count('price IS NULL') == 1"),
    (MERGE, "", 'schema_mode="merge"', "table.count('price = 9.5') == 6"),
]  # fmt: skip
RENAMED = [
    ("table.merge(NEW, predicate='source.id = id')", "on", "table.merge(NEW, on='id')"),
    ("table.merge(NEW, left_on='id', right_on='id')", "on", "table.merge(NEW, on='id')"),
    ("table.merge(PART, on='id', set={'price': 'source.price'})", "update", "table.merge(PART, on='id', when_not_matched='ignore', update={'price': 'source.price'})"),
    ("table.merge(NEW, on='id', values={'id': 'source.id'})", "insert", "table.merge(NEW, on='id', insert={'id': 'source.id'})"),
    ("table.rows().batches(batch_size=10)", "batch_rows", "next(table.rows().batches(batch_rows=10))"),
    ("table.rows(row_filter='id = 5')", "where", "table.rows(where='id = 5').read()"),
    ("qbeast.write_table(ROWS, new, zorder=['id'])", "columns", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.write_table(ROWS, new, z_order_by=['id'])", "columns", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.write_table(ROWS, new, cluster_by=['id'])", "columns", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.write_table(ROWS, new, clustering_columns=['id'])", "columns", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.write_table(ROWS, new, columnsToIndex=['id'])", "columns", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.write_table(ROWS, 't', mode='append', merge_schema=True)", "schema_mode", "qbeast.write_table(ROWS, 't', mode='append', schema_mode='merge')"),
    ("qbeast.read_table('t', as_of=0)", "version", "qbeast.read_table('t', version=0)"),
    ("qbeast.read_table('t', versionAsOf=0)", "version", "qbeast.read_table('t', version=0)"),
    ("qbeast.DeltaTable('t')", "open_table", "qbeast.open_table('t')"),
    ("qbeast.load_table('t')", "open_table", "qbeast.open_table('t')"),
    ("qbeast.create_table(new)", "write_table", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.is_table('t')", "table_exists", "qbeast.table_exists('t')"),
    ("qbeast.exists('t')", "table_exists", "qbeast.table_exists('t')"),
    ("qbeast.drop('t')", "drop_table", "qbeast.drop_table('t', confirm=True)"),
    ("qbeast.convert('t')", "convert_table", "qbeast.convert_table('t', ['id', 'price'])"),
]  # fmt: skip
UNKNOWN = ("table.approx_count_distinct('id')", "table.value_counts('id')", "table.orderBy('id')", "qbeast.list_tables()", "qbeast.write_table(ROWS, new, ['id'], configuration={})")  # fmt: skip


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    qbeast.write_table(ROWS, "t", columns=["id", "price"])
    usual = {"path": "t", "new": "new", "rows": NEW, "where": "id = 1", "version": 0, "same": same}
    return {**globals(), **usual, "table": qbeast.open_table("t")}


def same(actual: pl.DataFrame, expected: pl.DataFrame) -> bool:
    assert_same_rows(actual, expected, key="id")
    return True


def message_of(wrong: str, names: dict[str, Any]) -> str:
    with pytest.raises((AttributeError, TypeError, qbeast.QbeastError)) as caught:
        eval(wrong, names)
    return str(caught.value)


@pytest.mark.parametrize("case", CURES, ids=lambda case: case.wrong)
def test_call_of_a_message_does_what_was_wanted(case: Cured, names: dict[str, Any]) -> None:
    message = message_of(case.wrong, names)
    assert re.search(rf"(?<![\w.]){re.escape(case.named)}(?!\w)", message), message
    call = case.named
    for text in case.filled:
        call = call.replace("...", text, 1)
    if "sink_" in call:
        names["path"] = "rows.file"
    if not call.startswith("qbeast."):
        rows = ".rows()" if case.wrong.startswith("table.rows(") and not call.startswith("rows(") else ""
        call = f"table{rows}.{call.removeprefix('Table.')}"
    names["result"] = eval(call, names)
    assert eval(case.holds, names)


@pytest.mark.parametrize(("line", "typed", "named", "holds"), ARGUMENTS)
def test_arguments_of_a_message_work(
    line: str, typed: str, named: str, holds: str, names: dict[str, Any]
) -> None:
    message = message_of(line.format(typed), names)
    assert named in message, message
    names["result"] = eval(line.format(f", {named.replace(' and ', ', ')}"), names)
    assert eval(holds, names)


@pytest.mark.parametrize(("wrong", "name", "right"), RENAMED)
def test_name_of_a_message_is_accepted(wrong: str, name: str, right: str, names: dict[str, Any]) -> None:
    assert message_of(wrong, names).endswith(f"Did you mean {name!r}?")
    assert name in right
    eval(right, names)


@pytest.mark.parametrize("wrong", UNKNOWN)
def test_unlike_names_are_not_suggested(wrong: str, names: dict[str, Any]) -> None:
    assert re.search(r"(no attribute|keyword argument) '\w+'\.$", message_of(wrong, names))


def test_every_argument_of_rows_is_passed_to_rows(names: dict[str, Any]) -> None:
    for name in ("where", *ReadKeywords.__annotations__):
        assert f"Pass it to Table.rows: rows({name}=...)" in message_of(
            f"table.rows().tasks({name}=1)", names
        )


def test_source_of_other_types_is_not_called_partial(names: dict[str, Any]) -> None:
    text = message_of("table.merge(ROWS.cast({'price': pl.String}), on='id')", names)
    assert "Cast the columns of the source." in text
    assert "update=" not in text
    assert "update=" not in message_of("table.merge(ROWS.drop('id'), on='id')", names)
