"""The twelve operations of a working day, as users of each engine write them. `bench_day` measures them.

`<engine>_<operation>` takes the folder of a table, and rows if the operation writes rows. It opens the table itself.
Reads return a Polars frame. An operation with `by_hand` is not one of the engine: its users write it with what the
engine has. An operation without a function needs more than ten lines, or a copy that nobody made before.
`<engine>_source` converts rows to the form that the engine takes best, which is not timed. Options are the defaults,
but for three: our deletion vectors, Lance's stable row ids, which its changes need, and the variants at the end.
"""

# ruff: noqa: S608 - the texts in SQL are ours

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

import duckdb
import lance
import polars as pl
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import qbeast

INDEXED = ["l_shipdate", "l_partkey", "id"]
MONTH = "l_shipdate >= DATE '1995-03-01' AND l_shipdate < DATE '1995-04-01'"
IN_MONTH = pl.col("l_shipdate").is_between(date(1995, 3, 1), date(1995, 3, 31))
ICEBERG_MONTH = "l_shipdate >= '1995-03-01' AND l_shipdate < '1995-04-01'"
TWO = ["l_extendedprice", "l_discount"]
POINT = "id = 777777"
DAY = "l_shipdate = DATE '1995-03-15'"
ICEBERG_DAY = "l_shipdate = '1995-03-15'"
SUPPLIER = "l_suppkey = 4242"
GROUP = "l_shipmode"
ANSWERS = {"mean": pl.col("l_extendedprice").mean(), "rows": pl.len()}
FEATURES = ["id", "l_quantity", "l_extendedprice", "l_discount", "l_tax"]
BATCH = 1024
ONE_PERCENT = pl.col("id").hash(7) % 100 == 0

Batches = Iterator[pl.DataFrame]


def by_hand(function: Callable) -> Callable:
    """Mark an operation that the engine does not have."""
    function.by_hand = True
    return function


def ids(batches: Batches) -> pl.DataFrame:
    """Read all batches, as a training does. Return the sum of ids and the number of rows."""
    sums = [(batch["id"].sum(), batch.height) for batch in batches]
    return pl.DataFrame(sums, schema=["id", "rows"], orient="row").sum()


def difference(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of one version that are not in the other."""
    inserted = new.join(old, on=new.columns, how="anti").with_columns(_change_type=pl.lit("insert"))
    deleted = old.join(new, on=new.columns, how="anti").with_columns(_change_type=pl.lit("delete"))
    return pl.concat([inserted, deleted])


def as_frame(rows: pl.DataFrame):
    return rows


def as_arrow(rows: pl.DataFrame):
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


# --- qbeast ---------------------------------------------------------------------------------------------------------

qbeast_source = as_frame


def qbeast_write(place, rows):
    qbeast.write_table(rows, place, columns=INDEXED, deletion_vectors=True)


def qbeast_sample(place):
    return qbeast.read_table(place, sample=0.01)


def qbeast_month(place):
    return qbeast.read_table(place, where=MONTH, columns=TWO)


def qbeast_point(place):
    return qbeast.read_table(place, where=POINT)


def qbeast_upsert(place, rows):
    qbeast.open_table(place).merge(rows, on="id")


def qbeast_replace(place, rows):
    qbeast.write_table(rows, place, mode="overwrite", where=DAY)


def qbeast_delete(place):
    qbeast.open_table(place).delete(SUPPLIER)


def qbeast_rename(place):
    qbeast.open_table(place).rename_column("l_comment", "l_note", upgrade_protocol=True)


def qbeast_changes(place):
    table = qbeast.open_table(place)
    return table.changes(since=table.version - 1).collect()


def qbeast_dashboard(place):
    return qbeast.open_table(place).rows().estimate(ANSWERS, by=GROUP, error=0.02).frame


def qbeast_epoch(place):
    table = qbeast.open_table(place)
    return ids(table.rows(columns=FEATURES).shuffled(7, batch_rows=BATCH))


def qbeast_undo(place):
    table = qbeast.open_table(place)
    table.restore(table.version - 1)


def qbeast_rows(place):
    return qbeast.read_table(place)


# --- deltalake and Polars -------------------------------------------------------------------------------------------

deltalake_source = as_frame


def deltalake_write(place, rows):
    write_deltalake(place, rows)


@by_hand
def deltalake_sample(place):
    return pl.scan_delta(place).filter(ONE_PERCENT).collect()


def deltalake_month(place):
    return pl.scan_delta(place).filter(IN_MONTH).select(TWO).collect()


def deltalake_point(place):
    return pl.scan_delta(place).filter(pl.col("id") == 777_777).collect()


def deltalake_upsert(place, rows):
    merger = DeltaTable(place).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def deltalake_replace(place, rows):
    write_deltalake(place, rows, mode="overwrite", predicate=DAY)


def deltalake_delete(place):
    DeltaTable(place).delete(SUPPLIER)


@by_hand
def deltalake_rename(place):
    rows = pl.read_delta(place).rename({"l_comment": "l_note"})
    write_deltalake(place, rows, mode="overwrite", schema_mode="overwrite")


@by_hand
def deltalake_changes(place):
    table = DeltaTable(place)
    new = pl.read_delta(table)
    old = pl.read_delta(place, version=table.version() - 1)
    return difference(old, new)


def deltalake_dashboard(place):
    return pl.scan_delta(place).group_by(GROUP).agg(**ANSWERS).collect()


@by_hand
def deltalake_epoch(place):
    rows = pl.read_delta(place, columns=FEATURES)
    return ids(rows.sample(fraction=1, shuffle=True, seed=7).iter_slices(BATCH))


def deltalake_undo(place):
    table = DeltaTable(place)
    table.restore(table.version() - 1)


def deltalake_rows(place):
    return pl.read_delta(place)


# --- DuckDB ---------------------------------------------------------------------------------------------------------

duckdb_source = as_arrow


def database(place):
    return duckdb.connect(f"{place}/day.duckdb")


def duckdb_write(place, rows):  # noqa: ARG001 - DuckDB takes rows by the name of the variable
    with database(place) as connection:
        connection.execute("CREATE TABLE lineitem AS SELECT * FROM rows")


def duckdb_sample(place):
    with database(place) as connection:
        return connection.sql("SELECT * FROM lineitem USING SAMPLE 1 % (bernoulli, 7)").pl()


def duckdb_month(place):
    with database(place) as connection:
        return connection.sql(f"SELECT {', '.join(TWO)} FROM lineitem WHERE {MONTH}").pl()


def duckdb_point(place):
    with database(place) as connection:
        return connection.sql(f"SELECT * FROM lineitem WHERE {POINT}").pl()


def duckdb_upsert(place, rows):  # noqa: ARG001
    with database(place) as connection:
        matched = "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        connection.execute(f"MERGE INTO lineitem USING rows USING (id) {matched}")


def duckdb_replace(place, rows):  # noqa: ARG001
    with database(place) as connection:
        connection.execute("BEGIN")
        connection.execute(f"DELETE FROM lineitem WHERE {DAY}")
        connection.execute("INSERT INTO lineitem SELECT * FROM rows")
        connection.execute("COMMIT")


def duckdb_delete(place):
    with database(place) as connection:
        connection.execute(f"DELETE FROM lineitem WHERE {SUPPLIER}")


def duckdb_rename(place):
    with database(place) as connection:
        connection.execute("ALTER TABLE lineitem RENAME l_comment TO l_note")


def duckdb_dashboard(place):
    query = f"SELECT {GROUP}, avg(l_extendedprice) AS mean, count(*) AS rows FROM lineitem GROUP BY ALL"
    with database(place) as connection:
        return connection.sql(query).pl()


@by_hand
def duckdb_epoch(place):
    with database(place) as connection:
        rows = connection.sql(f"SELECT {', '.join(FEATURES)} FROM lineitem").pl()
    return ids(rows.sample(fraction=1, shuffle=True, seed=7).iter_slices(BATCH))


def duckdb_rows(place):
    with database(place) as connection:
        return connection.sql("SELECT * FROM lineitem").pl()


# --- Lance ----------------------------------------------------------------------------------------------------------

lance_source = as_arrow


def lance_write(place, rows):
    lance.write_dataset(rows, place, enable_stable_row_ids=True)


def lance_sample(place):
    dataset = lance.dataset(place)
    return pl.from_arrow(dataset.sample(dataset.count_rows() // 100))


def lance_month(place):
    return pl.from_arrow(lance.dataset(place).to_table(TWO, filter=MONTH))


def lance_point(place):
    return pl.from_arrow(lance.dataset(place).to_table(filter=POINT))


def lance_upsert(place, rows):
    merger = lance.dataset(place).merge_insert("id")
    merger.when_matched_update_all().when_not_matched_insert_all().execute(rows)


@by_hand
def lance_replace(place, rows):
    lance.dataset(place).delete(DAY)
    lance.write_dataset(rows, place, mode="append")


def lance_delete(place):
    lance.dataset(place).delete(SUPPLIER)


def lance_rename(place):
    lance.dataset(place).alter_columns({"path": "l_comment", "name": "l_note"})


def lance_changes(place):
    dataset = lance.dataset(place)
    delta = dataset.delta(compared_against=dataset.version - 1)
    readers = delta.get_inserted_rows(), delta.get_updated_rows()
    return pl.concat([pl.from_arrow(reader.read_all()) for reader in readers])


def lance_dashboard(place):
    rows = lance.dataset(place).to_table([GROUP, "l_extendedprice"])
    return pl.from_arrow(rows).group_by(GROUP).agg(**ANSWERS)


@by_hand
def lance_epoch(place):
    rows = pl.from_arrow(lance.dataset(place).to_table(FEATURES))
    return ids(rows.sample(fraction=1, shuffle=True, seed=7).iter_slices(BATCH))


def lance_undo(place):
    dataset = lance.dataset(place)
    dataset.checkout_version(dataset.version - 1).restore()


def lance_rows(place):
    return pl.from_arrow(lance.dataset(place).to_table())


# --- PyIceberg ------------------------------------------------------------------------------------------------------

pyiceberg_source = as_arrow


def catalog(place):
    return SqlCatalog("day", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")


def iceberg(place):
    return catalog(place).load_table("day.lineitem")


def pyiceberg_write(place, rows):
    tables = catalog(place)
    tables.create_namespace("day")
    tables.create_table("day.lineitem", rows.schema).append(rows)


@by_hand
def pyiceberg_sample(place):
    return iceberg(place).to_polars().filter(ONE_PERCENT).collect()


def pyiceberg_month(place):
    return iceberg(place).scan(ICEBERG_MONTH, selected_fields=tuple(TWO)).to_polars()


def pyiceberg_point(place):
    return iceberg(place).scan(POINT).to_polars()


def pyiceberg_upsert(place, rows):
    iceberg(place).upsert(rows, join_cols=["id"])


def pyiceberg_replace(place, rows):
    iceberg(place).overwrite(rows, overwrite_filter=ICEBERG_DAY)


def pyiceberg_delete(place):
    iceberg(place).delete(SUPPLIER)


def pyiceberg_rename(place):
    with iceberg(place).update_schema() as update:
        update.rename_column("l_comment", "l_note")


@by_hand
def pyiceberg_changes(place):
    table = iceberg(place)
    new = table.scan().to_polars()
    old = table.scan(snapshot_id=table.history()[0].snapshot_id).to_polars()
    return difference(old, new)


def pyiceberg_dashboard(place):
    return iceberg(place).to_polars().group_by(GROUP).agg(**ANSWERS).collect()


@by_hand
def pyiceberg_epoch(place):
    rows = iceberg(place).scan(selected_fields=tuple(FEATURES)).to_polars()
    return ids(rows.sample(fraction=1, shuffle=True, seed=7).iter_slices(BATCH))


def pyiceberg_undo(place):
    table = iceberg(place)
    before = table.history()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(before).commit()


def pyiceberg_rows(place):
    return iceberg(place).scan().to_polars()


# --- Other options --------------------------------------------------------------------------------------------------


def qbeast_write_plain(place, rows):
    """Without deletion vectors, as by default."""
    qbeast.write_table(rows, place, columns=INDEXED)


def qbeast_write_feed(place, rows):
    """With the change data feed, which is off by default."""
    qbeast.write_table(rows, place, columns=INDEXED, deletion_vectors=True, change_feed=True)


def deltalake_write_by_day(place, rows):
    """The rows by ship date, as a user of deltalake may sort them."""
    write_deltalake(place, rows.sort("l_shipdate"))


def deltalake_write_feed(place, rows):
    """With the change data feed, which is off by default."""
    write_deltalake(place, rows, configuration={"delta.enableChangeDataFeed": "true"})


def deltalake_changes_feed(place):
    table = DeltaTable(place)
    return pl.DataFrame(table.load_cdf(starting_version=table.version()))


def duckdb_write_key(place, rows):  # noqa: ARG001
    """With an index on the id."""
    with database(place) as connection:
        connection.execute("CREATE TABLE lineitem AS SELECT * FROM rows")
        connection.execute("CREATE UNIQUE INDEX ids ON lineitem (id)")


def lance_write_indexed(place, rows):
    """With indexes on the id and the ship date."""
    dataset = lance.write_dataset(rows, place, enable_stable_row_ids=True)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("l_shipdate", "BTREE")
