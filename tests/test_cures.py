# ruff: noqa: E501, S307 -- a table: each wrong line and its cure are run
"""Wrong lines of users of other libraries: the message names a call, and the call does what was wanted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import deltalake  # noqa: F401 -- a name of the lines
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


class Typed(NamedTuple):
    """A line, the arguments that were typed, those that its message names, and what is true with them."""

    line: str
    typed: str
    named: str
    holds: str = "True"
    beside: str = ""
    filled: str = ""


COPY = (
    "qbeast.write_table(table.rows(), new, columns=table.indexed_columns)",
    (),
    "same(qbeast.read_table(new), ROWS)",
)
HEAD = "rows().head(...)", ("3",), "result.height == 3"
DISTINCT = "rows().lazy().unique(...)", ("'brand'",), "result.collect().height == 3"
CHANGES = "changes(since=...)", ("-1",), "result.collect().height == 100"
RESTORED = "restore(version)", (), "result.version == 0"
MERGED = "merge(rows, on=...)", ("'id'",), "table.count() == 200"
PROPERTY = "set_properties({...})", ("'owner': 'us'",), "table.properties['owner'] == 'us'"
SHUFFLED = "rows(...).shuffled()", ("",), "sorted(pl.concat(result)['id']) == list(range(100))"
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
    Cured("table.show()", *HEAD),
    Cured("table.display()", *HEAD),
    Cured("table.info()", "metrics()"),
    Cured("table.detail()", "metrics()"),
    Cured("table.stats()", "metrics()"),
    Cured("table.metadata()", "properties"),
    Cured("table.table_config", "properties"),
    Cured("table.protocol()", "snapshot.protocol"),
    Cured("table.index", "indexed_columns", (), "result == ('id', 'price')"),
    Cured("table.agg(pl.len())", "rows().lazy().select(...)", ("pl.len()",), "result.collect().item() == 100"),
    Cured("table.groupby('brand')", "rows().lazy().group_by(...)", ("'brand'",), "result.len().collect().height == 3"),
    Cured("table.groupBy('brand')", "rows().lazy().group_by(...)", ("'brand'",), "result.len().collect().height == 3"),
    Cured("table.value_counts('brand')", "rows().lazy().group_by(...).len()", ("'brand'",), "result.collect().height == 3"),
    Cured("table.drop_duplicates('brand')", *DISTINCT),
    Cured("table.dropDuplicates(['brand'])", *DISTINCT),
    Cured("table.distinct()", *DISTINCT),
    Cured("table.orderBy('id')", "rows().lazy().sort(...)", ("'id'",), "same(result.collect(), ROWS)"),
    Cured("table.sort_values('id')", "rows().lazy().sort(...)", ("'id'",)),
    Cured("table.join(NEW, on='id')", "rows().lazy().join(...)", ("NEW.lazy(), on='id'",)),
    Cured("table.describe()", "rows().lazy().describe(...)", ("",)),
    Cured("table.union(rows)", *APPEND),
    Cured("table.add(rows)", *APPEND),
    Cured("table.insertInto(rows)", *APPEND),
    Cured("table.upsert(rows, on='id')", *MERGED),
    Cured("table.merge_into(rows)", *MERGED),
    Cured("table.replace_where(rows, 'id >= 1000')", 'qbeast.write_table(rows, table.uri, mode="overwrite", where=...)', ("'id >= 1000'",), "qbeast.read_table(path).height == 200"),
    Cured("table.delete_rows('id = 1')", "delete(where)", (), "table.count() == 99"),
    Cured("table.remove('id = 1')", "delete(where)", (), "table.count() == 99"),
    Cured("table.drop_columns(['brand'])", "drop_column(...)", ("'brand', upgrade_protocol=True",), "'brand' not in table.columns"),
    Cured("table.rename_columns({'brand': 'x'})", "rename_column(...)", ("'brand', 'x', upgrade_protocol=True",), "'x' in table.columns"),
    Cured("table.set_property('owner', 'us')", *PROPERTY),
    Cured("table.alter.set_table_properties({})", "add_columns({...})", ("'x': 'int'",), "'x' in table.columns"),
    Cured("table.set_table_properties({'owner': 'us'})", *PROPERTY),
    Cured("table.set_properties(owner='us')", 'set_properties({"owner": "us"})', (), "table.properties['owner'] == 'us'"),
    Cured("table.add_columns(x='int')", 'add_columns({"x": "int"})', (), "'x' in table.columns"),
    Cured("table.deletion_vectors()", 'set_properties({"delta.enableDeletionVectors": "true"})'),
    Cured("table.constraints", "add_constraint(name, expression)", (), "'delta.constraints.positive' in table.properties"),
    Cured("table.load_cdf(starting_version=0)", *CHANGES),
    Cured("table.cdf()", *CHANGES),
    Cured("table.table_changes(0)", *CHANGES),
    Cured("table.read_change_feed()", *CHANGES),
    Cured("table.files()", "rows(...).files(...)", ("", ""), "result.height == 1"),
    Cured("table.generate()", *FILES),
    Cured("table.plan()", "rows(...).explain()", ("'id = 1'",), "result.rows_total == 100"),
    Cured("table.explain('id = 1')", "rows(...).explain(...)", ("'id = 1'", "")),
    Cured("table.cleanup()", "vacuum()"),
    Cured("table.cleanup_metadata()", "deltalake.DeltaTable(table.uri).cleanup_metadata()"),
    Cured("table.coalesce(1)", "optimize()"),
    Cured("table.executeCompaction()", "optimize()"),
    Cured("table.optimize.compact()", "optimize()"),
    Cured("table.optimize.z_order(['brand'])", *CLUSTERS),
    Cured("table.purge()", "optimize(purge=True)"),
    Cured("table.create_index(['brand'])", *CLUSTERS),
    Cured("table.rollback(0)", *RESTORED),
    Cured("table.restoreToVersion(0)", *RESTORED),
    Cured("table.num_records", "count()", (), "result == 100"),
    Cured("table.toPandas()", "rows(...).pandas()", ("",), "len(result) == 100"),
    Cured("table.to_json(new)", "rows().lazy().sink_ndjson(path)", (), "pl.read_ndjson(path).height == 100"),
    Cured("table.duckdb()", "rows().arrow()", (), "result.num_rows == 100"),
    Cured("table.query('SELECT 1')", 'sql("SELECT ... FROM self")', ("count(*)",), "result.collect().item() == 100"),
    Cured("table.createOrReplaceTempView('v')", 'sql("SELECT ... FROM self")', ("count(*)",)),
    Cured("table.iter_batches(shuffle=True)", *SHUFFLED),
    Cured("table.shuffle()", "rows().shuffled()"),
    Cured("table.rows().iter_batches(shuffle=True)", "shuffled()", (), "sorted(pl.concat(result)['id']) == list(range(100))"),
    Cured("table.rows().batches(shuffle=True)", "shuffled(batch_rows=...)", ("10",), "next(result).height == 10"),
    Cured("table.rows().shuffle(1)", "shuffled()"),
    Cured("table.rows().where('id < 3')", "lazy().filter(...)", ("pl.col('id') < 3",), "result.collect().height == 3"),
    Cured("table.rows().sample(0.1)", "read().sample(...)", ("fraction=0.1",), "result.height == 10"),
    Cured("table.rows().sample(fraction=0.1)", "rows(sample=...)", ("0.5",), "0 < result.count() < 100"),
    Cured("table.rows().columns", "lazy().collect_schema().names()", (), "result == ROWS.columns"),
    Cured("table.rows().schema", "lazy().collect_schema()", (), "result == ROWS.schema"),
    Cured("table.rows().agg(pl.len())", "lazy().select(...)", ("pl.len()",), "result.collect().item() == 100"),
    Cured("table.rows().show()", "head(...)", ("3",), "result.height == 3"),
    Cured("table.rows().groupBy('brand')", "lazy().group_by(...)", ("'brand'",)),
    Cured("table.rows().dropDuplicates()", "lazy().unique(...)", ("'brand'",), "result.collect().height == 3"),
    Cured("table.rows()['id']", "read()['id']", (), "sorted(result) == list(range(100))"),
    Cured("table.rows()[0]", "batches()"),
    Cured("table.merge(rows, 'id').when_matched_delete()", 'merge(rows, on=..., when_matched="delete")', ("'id'",), "table.count() == 100"),
    Cured("table.merge(rows, 'id').when_not_matched_by_source_delete()", 'merge(rows, on=..., when_not_matched_by_source="delete")', ("'id'",), "table.count() == 100"),
    Cured("table.merge(rows, 'id').when_matched_update({})", "merge(rows, on=..., update={...})", ("'id'", "'price': '9.5'"), "table.count('price = 9.5') == 100"),
    Cured("table.vacuum(7)", "vacuum(retention_hours=...)", ("700",), "result.dry_run"),
    Cured("table.rows().batches(10)", "batches(batch_rows=...)", ("10",), "next(result).height == 10"),
    Cured("table.rows().read('id < 3')", 'rows("...", columns=[...]).read()', ("id < 3", "'id'"), "result.shape == (3, 1)"),
    Cured("table.read('id < 3', ['id'])", 'read("...", columns=[...])', ("id < 3", "'id'"), "result.shape == (3, 1)"),
    Cured("table.diff(0, 0)", "diff(..., key=[...])", ("0", "'id'"), "result.collect().height == 0"),
    Cured("table.diff(0)", "diff(..., key=[...])", ("0", "'id'")),
    Cured("table.changes()", "changes(since=...)", ("-1",), "result.collect().height == 100"),
    Cured("table.delete()", 'delete("...")', ("id = 1",), "table.count() == 99"),
    Cured("table.delete()", "delete(True)", (), "table.count() == 0"),
    Cured("table.update({'price': 7})", 'update("...", {"...": "..."})', ("id = 1", "price", "7"), "table.count('price = 7') == 1"),
    Cured("table.merge(NEW)", "merge(..., on=[...])", ("NEW", "'id'"), "table.count() == 200"),
    Cured("table.add_columns('z', 'int')", 'add_columns({"...": "double"})', ("z",), "'z' in table.columns"),
    Cured("table.add_constraint({'positive': 'id >= 0'})", 'add_constraint("...", "...")', ("positive", "id >= 0")),
    Cured("table.restore()", "restore(...)", ("0",)),
    Cured("table.advise()", "advise([...])", ("'id < 5'",)),
    Cured("table.rows().folds()", "folds(5)", (), "len(result) == 5"),
    Cured("table.rows().split()", 'split({"train": 0.8, "test": 0.2})', (), "list(result) == ['train', 'test']"),
    Cured("table.check(fix=True)", "repair()"),
    Cured("table.count('SELECT count(*) FROM t')", 'sql("SELECT ... FROM self")', ("count(*)",), "result.collect().item() == 100"),
    Cured("table.count('id < 30 LIMIT 3')", "rows(where).head(...)", ("1",), "result.height == 1"),
    Cured("table.count('id < 30 ORDER BY id')", "rows(where).lazy().sort(...)", ("'id'",)),
    Cured("table.read(shuffle=True)", "qbeast.read_table(path).sample(fraction=1, shuffle=True)", (), "same(result, ROWS)"),
    Cured("qbeast.read_table(path, shuffle=True)", "qbeast.open_table(path).rows().shuffled()"),
    Cured("qbeast.read_table(path, as_pandas=True)", "qbeast.open_table(path).rows().pandas()", (), "len(result) == 100"),
    Cured("qbeast.read_table(path, engine='pandas')", "qbeast.open_table(path).rows().pandas()"),
    Cured("qbeast.read_table(path, 'id < 3')", 'qbeast.read_table(path, where="...")', ("id < 3",), "result.height == 3"),
    Cured("qbeast.scan_table(path, 'id < 3')", 'qbeast.scan_table(path, where="...")', ("id < 3",), "result.collect().height == 3"),
    Cured("qbeast.open_table(path, 0)", "qbeast.open_table(path, version=...)", ("0",), "result.version == 0"),
    Cured("qbeast.open_table(path, columns=['id'])", "qbeast.read_table(path, columns=...)", ("['id']",), "result.columns == ['id']"),
    Cured("(qbeast.drop_table(path, confirm=True), qbeast.write_table(rows))", "qbeast.write_table(rows, path, columns=[...])", ("'id'",)),
    Cured("qbeast.drop_table(path, True)", "qbeast.drop_table(path, confirm=True)"),
    Cured("qbeast.estimate(path)", 'qbeast.estimate(path, "avg(...)", error=0.05)', ("price",), "result.met"),
    Cured("qbeast.estimate(path, 'avg(price)', 0.05)", 'qbeast.estimate(path, "avg(...)", error=0.05)', ("price",)),
    Cured("qbeast.table_exists()", "qbeast.table_exists(path)", (), "result"),
    Cured("qbeast.suggest_columns()", "qbeast.suggest_columns(rows)"),
    Cured("qbeast.upgrade_table(path)", "qbeast.open_table(path).upgrade(...)", ("",)),
    Cured("qbeast.optimize_table(path)", "qbeast.open_table(path).optimize(...)", ("",)),
    Cured("qbeast.history(path)", "qbeast.open_table(path).history(...)", ("",), "result.height == 1"),
    Cured("qbeast.merge(NEW, path)", "qbeast.open_table(path).merge(...)", ("NEW, on='id'",), "result.rows_inserted == 100"),
    Cured("qbeast.upsert(NEW, path)", "qbeast.open_table(path).merge(rows, on=...)", ("'id'",)),
    Cured("qbeast.append(NEW, path)", 'qbeast.write_table(rows, path, mode="append")', (), "qbeast.read_table(path).height == 200"),
    Cured("qbeast.sample(path, 0.1)", "qbeast.open_table(path).read(sample=0.01)"),
    Cured("qbeast.Resources('2GB')", "qbeast.Resources(memory_bytes=...)", ("1 << 30",)),
    Cured("qbeast.write_table(rows, path, mode='upsert')", "qbeast.open_table(path).merge(rows, on=...)", ("'id'",), "result.rows_inserted == 100"),
    Cured("qbeast.write_table(rows, path, mode='delete')", "qbeast.open_table(path).delete(where)", (), "result.rows_deleted == 1"),
    Cured("qbeast.write_table(rows, path, configuration={'owner': 'us'})", "qbeast.open_table(path).set_properties({...})", ("'owner': 'us'",), "result.committed"),
    Cured("qbeast.write_table(rows, path, properties={'owner': 'us'})", "qbeast.open_table(path).set_properties({...})", ("'owner': 'us'",)),
    Cured("table.rows().estimate('count(distinct brand)', error=0.1)", 'qbeast.scan_table(path, columns=["brand"]).select(pl.col("brand").drop_nulls().n_unique()).collect()', (), "result.item() == 3"),
]  # fmt: skip
# A line, the arguments that were typed, those that the message names, and what is true with them.
MERGE = "table.merge(PART, on='id'{})"
CREATE = "qbeast.write_table(ROWS, new, ['id']{})"
ARGUMENTS = [
    Typed(MERGE, "", 'update={"price": "source.price"} and when_not_matched="ignore"', UPDATED),
    Typed("table.merge(PART, on='id', when_not_matched='ignore'{})", "", 'update={"price": "source.price"}', UPDATED),
    Typed("table.merge(PART, on='id', when_matched='ignore'{})", "", 'insert={"id": "source.id", "price": "source.price"}', "table.count() == 101 and table.count('brand IS NULL') == 1"),
    Typed("table.merge(PART.select('id'), on='id'{})", "", 'schema_mode="merge"', "table.count() == 101 and table.count('price = 9.5') == 0"),
    Typed("table.merge(PART.select('id'), on='id'{})", "", 'when_matched="ignore" and insert={"id": "source.id"}', "table.count() == 101 and table.count('price IS NULL') == 1"),
    Typed(MERGE, "", 'schema_mode="merge"', "table.count('price = 9.5') == 6"),
    Typed(MERGE, ", how='inner'", 'when_not_matched="ignore"', UPDATED, 'update={"price": "source.price"}'),
    Typed("table.merge(NEW, 'id'{})", ", when_matched_delete=True", 'when_matched="delete"', "table.count() == 200"),
    Typed("table.merge(NEW, 'id'{})", ", when_matched='update_all'", 'when_matched="update"', "table.count() == 200"),
    Typed("table.merge(NEW, 'id'{})", ", when_not_matched='insert_all'", 'when_not_matched="insert"', "table.count() == 200"),
    Typed("table.merge(NEW, 'id'{})", ", when_not_matched='skip'", 'when_not_matched="ignore"', "table.count() == 100"),
    Typed("table.merge(NEW, 'id'{})", ", insert=False", 'when_not_matched="ignore"', "table.count() == 100"),
    Typed("table.merge(NEW, 'id'{})", ", when_matched={'price': 'source.price'}", 'update={"price": "source.price"}', "table.count() == 200"),
    Typed("table.merge(NEW, 'id'{})", ", update=['price']", 'update={"price": "source.price"}', "table.count() == 200"),
    Typed("table.merge(NEW, 'id'{})", ", mergeSchema=True", 'schema_mode="merge"', "table.count() == 200"),
    Typed("table.merge(NEW, {})", "on='target.id = source.id'", 'on=["id"]', "table.count() == 200"),
    Typed("table.merge(NEW, {})", "predicate='t.id = s.id AND t.price = s.price'", 'on=["id", "price"]', "table.count() == 200"),
    Typed("table.merge(NEW, {})", "condition='t.id == s.id'", 'on=["id"]', "table.count() == 200"),
    Typed("table.update('id = 1', {})", "'price = 7'", 'set={"price": "7"}', "table.count('price = 7') == 1"),
    Typed("table.delete({})", "{'id': 1}", 'where="id = 1"', "table.count() == 99"),
    Typed("table.count({})", "{'id': 1, 'brand': 'b1'}", "where=\"id = 1 AND brand = 'b1'\"", "result == 1"),
    Typed("table.count({})", "[('id', '<', 3)]", 'where="id < 3"', "result == 3"),
    Typed("table.count({})", "1", "where='id = 1'", "result == 1"),
    Typed("table.count({})", "ROWS['id'] > 5", "where='id > 5'", "result == 94"),
    Typed("table.count({})", "lambda row: row.id > 5", "where='id > 5'", "result == 94"),
    Typed("table.set_properties({})", "{'deletion_vectors': True}", '{"delta.enableDeletionVectors": "true"}', "table.properties['delta.enableDeletionVectors'] == 'true'"),
    Typed("table.set_properties({})", "{'enableDeletionVectors': 'true'}", '{"delta.enableDeletionVectors": "true"}'),
    Typed("table.set_properties({})", "{'delta.appendOnly': True}", '{"delta.appendOnly": "true"}', "table.properties['delta.appendOnly'] == 'true'"),
    Typed("table.set_properties({})", "{'level': 3}", '{"level": "3"}', "table.properties['level'] == '3'"),
    Typed("table.changes({})", "starting_version=0", "since=-1", "result.collect().height == 100"),
    Typed("table.vacuum(retention_hours=0{})", ", enforce_retention_duration=False", "allow_short_retention=True"),
    Typed("table.repair({})", "dry=True", "dry_run=True"),
    Typed("table.rows().shuffled(1{})", ", batch_bytes=100", "batch_rows=...", "next(result).height == 10", filled="10"),
    Typed("table.rows().split({{'a': 0.5}}{})", ", random_state=1", "seed=...", filled="1"),
    Typed("table.rows().estimate('avg(price)'{})", ", group_by='brand'", "by=...", "result.frame.height == 3", filled="'brand'"),
    Typed("qbeast.estimate(path, 'avg(price)'{})", ", groupby='brand'", "by=...", "result.frame.height == 3", filled="'brand'"),
    Typed("qbeast.drop_table(path{})", ", force=True", "confirm=True", "not qbeast.table_exists(path)"),
    Typed(CREATE, ", vectors=True", "deletion_vectors=True", "qbeast.open_table(new).properties['delta.enableDeletionVectors'] == 'true'"),
    Typed(CREATE, ", enable_deletion_vectors=True", "deletion_vectors=True"),
    Typed(CREATE, ", cdf=True", "change_feed=True", "qbeast.open_table(new).properties['delta.enableChangeDataFeed'] == 'true'"),
    Typed(CREATE, ", enableChangeDataFeed=True", "change_feed=True"),
    Typed(CREATE, ", memory_limit='2GB'", "resources=qbeast.Resources(memory_bytes=...)", filled="1 << 30"),
    Typed(CREATE, ", tmp_dir='.'", "resources=qbeast.Resources(spill_dir=...)", filled="'.'"),
    Typed(CREATE, ", target_file_size=1 << 20", "cube_size=...", "qbeast.open_table(new).cube_size == 50", filled="50"),
    Typed(CREATE, ", mode='create'", 'mode="error"'),
    Typed(CREATE, ", mode='errorifexists'", 'mode="error"'),
    Typed(CREATE, ", mode='ErrorIfExists'", 'mode="error"'),
    Typed(CREATE, ", mode='replace'", 'mode="overwrite"'),
    Typed(CREATE, ", mode='w'", 'mode="overwrite"'),
    Typed(CREATE, ", mode='a'", 'mode="append"'),
    Typed(CREATE, ", overwrite=True", 'mode="overwrite"'),
    Typed(CREATE, ", append=True", 'mode="append"'),
    Typed(CREATE, ", compression='gzip'", 'compression="zstd"'),
    Typed("qbeast.write_table(ROWS, path, mode='append'{})", ", schema_mode='evolve'", 'schema_mode="merge"', "qbeast.read_table(path).height == 200"),
    Typed("qbeast.write_table(ROWS, path, mode='append'{})", ", merge_schema=True", 'schema_mode="merge"', "qbeast.read_table(path).height == 200"),
    Typed("qbeast.write_table(ROWS, path, ['id'], mode='overwrite'{})", ", overwriteSchema=True", 'schema_mode="overwrite"'),
]  # fmt: skip
# A condition that is not SQL, what its message names, and the right one with the number of its rows.
CONDITIONS = [
    ("brand = None", "IS NULL", "brand IS NULL", 0),
    ("brand is None", "IS NULL", "brand IS NULL", 0),
    ("isnull(brand)", "IS NULL", "brand IS NULL", 0),
    ("price is nan", "isnan(...)", "isnan(price)", 0),
    ("id is 5", "= or <>", "id = 5", 1),
    ("id is not 5", "= or <>", "id <> 5", 99),
    ("id > 90 && id < 95", "AND", "id > 90 AND id < 95", 4),
    ("(id < 3) & (price > 0)", "AND", "id < 3 AND price > 0", 2),
    ("id < 3 || id > 97", "OR", "id < 3 OR id > 97", 5),
    ("id < 3 | id > 97", "OR", "id < 3 OR id > 97", 5),
    ("~(id < 3)", "NOT (...)", "NOT (id < 3)", 97),
    ("id.isin([1, 2])", "IN (1, 2)", "id IN (1, 2)", 2),
    ("pl.col('id') < 3", "without quotes", pl.col("id") < 3, 3),
    ("brand.str.contains('1')", "without quotes", pl.col("brand").str.contains("1"), 33),
    ("id => 98", ">=", "id >= 98", 2),
    ("id =< 1", "<=", "id <= 1", 2),
    ("df.id < 3", "Write id", "id < 3", 3),
    ("[id] < 3", 'names doubly: "..."', '"id" < 3', 3),
    ("id between 3", "BETWEEN 1 AND 5", "id BETWEEN 1 AND 5", 5),
    ("id = %s", "the value itself", "id = 5", 1),
    ("WHERE id < 3", "leave WHERE out", "id < 3", 3),
    ("brand = b1", "quote it singly: 'b1'", "brand = 'b1'", 33),
]
# A query with another name of the table, and the right one that its message names.
QUERIES = [
    ("SELECT count(*) FROM table", "SELECT count(*) FROM self"),
    ("SELECT count(*) FROM t WHERE id < 3", "SELECT count(*) FROM self WHERE id < 3"),
    ("SELECT count(*) FROM delta.`t`", "SELECT count(*) FROM self"),
]
# What has no counterpart: a line whose message says to leave it out, and the line without it.
LEFT_OUT = [
    ("table.checkpoint()", "table.version"),
    ("table.create_checkpoint()", "table.version"),
    ("table.close()", "table.version"),
    ("table.merge(NEW, 'id').when_matched_update_all()", "table.merge(NEW, 'id')"),
    ("table.merge(NEW, 'id').execute()", "table.merge(NEW, 'id')"),
    ("table.merge(NEW, 'id', when_matched_update_all=True)", "table.merge(NEW, 'id')"),
    ("table.merge(NEW, 'id', update_all=True)", "table.merge(NEW, 'id')"),
    ("table.merge(NEW, 'id', update=True)", "table.merge(NEW, 'id')"),
    ("table.merge(NEW, 'id', source_alias='s', target_alias='t')", "table.merge(NEW, 'id')"),
    ("table.rows().shuffled(shuffle=True)", "next(table.rows().shuffled())"),
    ("table.rows().torch(shuffle=True)", "table.rows()"),
    ("table.rows().folds(5, shuffle=True)", "table.rows().folds(5)"),
    ("table.optimize(partition_filters=[('id', '=', 1)])", "table.optimize()"),
    ("table.optimize(max_concurrent_tasks=2)", "table.optimize()"),
    ("table.optimize(target_size=1 << 20)", "table.optimize()"),
    ("qbeast.open_table(path, without_files=True)", "qbeast.open_table(path)"),
    ("qbeast.read_table(path, use_pyarrow=True)", "qbeast.read_table(path)"),
    ("qbeast.scan_table(path, sample=0.1, with_replacement=True)", "qbeast.scan_table(path, sample=0.1).collect()"),
]  # fmt: skip
# A name or a key that a result does not have, and the one that its message names.
OF_RESULTS = [
    ("table.merge(NEW, 'id').num_inserted_rows", "rows_inserted", "table.merge(NEW, 'id').rows_inserted == 100"),
    ("table.merge(NEW, 'id')['rows_inserted']", ".rows_inserted", "table.merge(NEW, 'id').rows_inserted == 100"),
    ("table.merge(NEW, 'id')['num_output_rows']", ".to_dict()", "table.merge(NEW, 'id').to_dict()['rows_inserted'] == 100"),
    ("qbeast.estimate(path, 'count(*)')['count(*)']", ".frame['count(*)']", "qbeast.estimate(path, 'count(*)').frame['count(*)'].item() == 100"),
    ("qbeast.estimate(path, 'count(*) AS n').value", 'frame["..."]', "qbeast.estimate(path, 'count(*) AS n').frame['n'].item() == 100"),
    ("qbeast.estimate(path, 'count(*) AS n').low", '"<name>_low"', "qbeast.estimate(path, 'count(*) AS n').frame['n_low'].item() == 100"),
    ("qbeast.estimate(path, 'count(*)').height", "frame.height", "qbeast.estimate(path, 'count(*)').frame.height == 1"),
    ("table.rows().explain().skipped", "bytes_opened", "table.rows().explain().bytes_opened > 0"),
]  # fmt: skip
RENAMED = [
    ("table.merge(NEW, predicate='source.id > id')", "on", "table.merge(NEW, on='id')"),
    ("table.rows().folds(k=5)", "count", "table.rows().folds(count=5)"),
    ("table.rows().folds(n_splits=5)", "count", "table.rows().folds(count=5)"),
    ("table.changes(0, ending_version=0)", "until", "table.changes(-1, until=0)"),
    ("qbeast.estimate('t', 'avg(price)', rel_error=0.1)", "error", "qbeast.estimate('t', 'avg(price)', error=0.1)"),
    ("qbeast.estimate('t', 'avg(price)', tolerance=0.1)", "error", "qbeast.estimate('t', 'avg(price)', error=0.1)"),
    ("qbeast.estimate('t', 'avg(price)', confidence_level=0.9)", "confidence", "qbeast.estimate('t', 'avg(price)', confidence=0.9)"),
    ("qbeast.write_table(ROWS, new, ['id'], desired_cube_size=50)", "cube_size", "qbeast.write_table(ROWS, new, ['id'], cube_size=50)"),
    ("table.vacuum(retention=700)", "retention_hours", "table.vacuum(retention_hours=700)"),
    ("qbeast.connect('t')", "open_table", "qbeast.open_table('t')"),
    ("qbeast.table('t')", "open_table", "qbeast.open_table('t')"),
    ("qbeast.forPath('t')", "open_table", "qbeast.open_table('t')"),
    ("qbeast.from_pandas(ROWS)", "write_table", "qbeast.write_table(ROWS, new, columns=['id'])"),
    ("qbeast.save(ROWS, new)", "write_table", "qbeast.write_table(ROWS, new, columns=['id'])"),
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
UNKNOWN = ("table.approx_count_distinct('id')", "table.melted('id')", "table.enrich()", "qbeast.list_tables()", "qbeast.write_table(ROWS, new, ['id'], epochs={})")  # fmt: skip


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    qbeast.write_table(ROWS, "t", columns=["id", "price"])
    usual = {"path": "t", "new": "new", "rows": NEW, "where": "id = 1", "version": 0, "same": same}
    usual |= {"name": "positive", "expression": "id >= 0"}
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
    if not call.startswith(("qbeast.", "deltalake.")):
        rows = ".rows()" if case.wrong.startswith("table.rows(") and not call.startswith("rows(") else ""
        call = f"table{rows}.{call.removeprefix('Table.')}"
    names["result"] = eval(call, names)
    assert eval(case.holds, names)


@pytest.mark.parametrize("case", ARGUMENTS, ids=lambda case: f"{case.line} {case.typed} {case.named}")
def test_arguments_of_a_message_work(case: Typed, names: dict[str, Any]) -> None:
    comma = ", " if not case.typed or case.typed.startswith(", ") else ""
    message = message_of(case.line.format(case.typed + (case.beside and f", {case.beside}")), names)
    assert case.named in message, message
    right = ", ".join(filter(None, [case.named.replace(" and ", ", "), case.beside]))
    names["result"] = eval(case.line.format(comma + right.replace("...", case.filled)), names)
    assert eval(case.holds, names)


@pytest.mark.parametrize(("wrong", "named", "right", "count"), CONDITIONS)
def test_condition_that_a_message_names_works(
    wrong: str, named: str, right: str | pl.Expr, count: int, names: dict[str, Any]
) -> None:
    assert named in message_of(f"table.count({wrong!r})", names)
    assert names["table"].count(right) == count


@pytest.mark.parametrize(("wrong", "right"), QUERIES)
def test_query_that_a_message_names_works(wrong: str, right: str, names: dict[str, Any]) -> None:
    assert f'write "{right}"' in message_of(f"table.sql({wrong!r})", names)
    assert names["table"].sql(right).collect().item() in (3, 100)


@pytest.mark.parametrize(("wrong", "right"), LEFT_OUT)
def test_words_without_counterpart_can_be_left_out(wrong: str, right: str, names: dict[str, Any]) -> None:
    assert re.search("[Ll]eave it out|by default", message_of(wrong, names))
    names["table"].restore(0)
    eval(right, names)


@pytest.mark.parametrize(("wrong", "named", "holds"), OF_RESULTS)
def test_part_of_a_result_that_a_message_names_exists(
    wrong: str, named: str, holds: str, names: dict[str, Any]
) -> None:
    assert named in message_of(wrong, names)
    names["table"].restore(0)
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
