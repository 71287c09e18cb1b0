"""Names of Unity Catalog on Spark: tasks read and write with credentials that the catalog lends, without its token."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable
from polars.testing import assert_frame_equal
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType
from pyspark.sql.udtf import AnalyzeArgument

import qbeast
import qbeast_spark_bridge as bridge
from qbeast_core.io.catalog.lent import Lent, LentOptions
from qbeast_spark_bridge.catalog import view_of
from qbeast_spark_bridge.datasource.functions import Estimate, History
from qbeast_spark_bridge.datasource.source import QbeastDataSource
from qbeast_spark_bridge.engine.workers import is_connect
from qbeast_spark_bridge.worker.call import batches_of_task
from tests.helpers.lent_keys import Lending, lending
from tests.helpers.unity_service import TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = pl.DataFrame({"id": range(500), "x": [n * 7919 % 101 for n in range(500)]})
_NUMBERS = count()


@pytest.fixture(scope="module")
def running() -> Iterator[Lending]:
    with lending() as started:
        yield started


@pytest.fixture
def lender(running: Lending) -> Lending:
    """The catalog and the store, without requests and with all grants."""
    return running.reset()


@pytest.fixture
def stored(lender: Lending) -> dict[str, str]:
    """Options of `format("qbeast")`."""
    return {f"storage.{key}": value for key, value in lender.options.items()}


@pytest.fixture
def place() -> str:
    """An address where nothing is."""
    return f"s3://bucket/t{next(_NUMBERS)}"


@pytest.fixture
def name(lender: Lending, place: str) -> str:
    """The name of a table at this address."""
    qbeast.write_table(ROWS, place, columns=["id"], cube_size=100, storage_options=lender.own)
    return lender.catalog.add(f"shop.raw.t{next(_NUMBERS)}", place)


def rows_at(place: str, lender: Lending) -> pl.DataFrame:
    rows = pl.from_arrow(DeltaTable(place, storage_options=lender.own).to_pyarrow_table())
    assert isinstance(rows, pl.DataFrame)
    return rows.select("id", "x").sort("id")


def test_rows_of_a_name_are_read_by_tasks(
    spark: SparkSession, lender: Lending, name: str, place: str
) -> None:
    expected = rows_at(place, lender)
    rows = bridge.read_table(spark, name, where="x < 50", storage_options=lender.options)
    assert_frame_equal(
        pl.DataFrame(rows.toArrow()).sort("id"), expected.filter(pl.col("x") < 50), check_row_order=False
    )
    table = bridge.open_table(spark, name, storage_options=lender.options)
    assert table.rows("x < 50").count() == rows.count()
    totals = table.sql("SELECT sum(x) AS total FROM self").collect()
    assert [row.total for row in totals] == [expected["x"].sum()]
    sample = qbeast.read_table(place, sample=0.3, storage_options=lender.own)
    assert sorted(row.id for row in table.read(sample=0.3).select("id").collect()) == sorted(sample["id"])


def test_table_is_changed_by_its_name(spark: SparkSession, lender: Lending, name: str, place: str) -> None:
    more = spark.range(500, 520).selectExpr("id", "CAST(1 AS BIGINT) AS x")
    bridge.write_table(more, name, mode="append", storage_options=lender.options)
    table = bridge.open_table(spark, name, storage_options=lender.options)
    assert table.delete("id < 10").rows_deleted == 10
    assert table.update("id >= 510", {"x": "x + 1"}).rows_updated == 10
    assert table.merge(more.where("id >= 515"), on="id").rows_updated == 5
    assert table.optimize(full=True).rows == 510
    added = pl.DataFrame({"id": range(500, 520), "x": [1] * 10 + [2] * 5 + [1] * 5})
    assert_frame_equal(rows_at(place, lender), pl.concat([ROWS[10:], added]))


def test_new_table_is_registered_and_replaced(spark: SparkSession, lender: Lending, place: str) -> None:
    full_name = f"shop.raw.t{next(_NUMBERS)}"
    name, rows = f"uc://{full_name}", spark.range(100).selectExpr("id", "id % 7 AS x")
    bridge.write_table(rows, place, columns=["id"], register=name, storage_options=lender.options)
    assert lender.catalog.entries[full_name]["storage_location"] == place
    bridge.write_table(rows.where("id < 50"), name, mode="overwrite", storage_options=lender.options)
    assert rows_at(place, lender)["id"].to_list() == list(range(50))


def test_data_source_reads_writes_and_streams_names(
    spark: SparkSession,
    lender: Lending,
    name: str,
    place: str,
    stored: dict[str, str],
    tmp_path: Path,
) -> None:
    bridge.register(spark)
    rows = spark.range(500, 510).selectExpr("id", "CAST(1 AS BIGINT) AS x")
    rows.write.format("qbeast").mode("append").options(**stored).save(name)
    actual = spark.read.format("qbeast").options(**stored, where="id >= 495").load(name)
    expected = rows_at(place, lender)
    assert sorted(row.id for row in actual.collect()) == expected["id"].to_list()[-15:]

    target = f"{place}_copy"
    qbeast.write_table(ROWS[:1], target, columns=["id"], storage_options=lender.own)
    other = lender.catalog.add(f"shop.raw.t{next(_NUMBERS)}", target)
    stream = spark.readStream.format("qbeast").options(**stored).load(name)
    writer = stream.writeStream.format("qbeast").options(**stored).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start(other).awaitTermination()
    assert len(rows_at(target, lender)) == 1 + len(expected)


def test_name_in_sql_takes_inserts_and_follows_changes(
    spark: SparkSession, lender: Lending, name: str
) -> None:
    bridge.register_table(spark, name, "lent", storage_options=lender.options)
    spark.sql("INSERT INTO lent VALUES (500, 1)").collect()
    bridge.refresh(spark, "lent")
    lender.catalog.requests.clear()
    assert spark.table("lent").count() == 501
    # A server of Connect logs the options of requests, so that it does not get the token.
    assert bool(lender.catalog.requests) != is_connect(spark)
    assert bridge.open_table(spark, "lent").delete("id < 10").rows_deleted == 10
    assert spark.table("lent").count() == 491
    with pytest.raises(qbeast.InvalidInputError, match="UNITY_ENDPOINT"):  # the name, with these options
        bridge.open_table(spark, "lent", storage_options={"AWS_REGION": "us-east-1"})
    spark.catalog.dropTempView("lent")


@pytest.mark.classic  # views of Connect have the credentials of the client
def test_refresh_gives_a_name_new_credentials(spark: SparkSession, lender: Lending, name: str) -> None:
    bridge.register_table(spark, name, "lent", storage_options=lender.options)
    assert spark.table("lent").count() == 500
    location = bridge.open_table(spark, "lent").snapshot.location
    known = [
        bridge.open_table(spark, name, storage_options=lender.options).snapshot.location for _ in range(2)
    ]
    assert view_of("lent", known[0]) is view_of("lent", known[1]) is view_of("lent", location)
    for key in set(lender.keys.keys) - {"k", location.storage_options["aws_access_key_id"]}:
        lender.keys.keys[key] = (0.0, True)
    with pytest.raises(
        PySparkException, match=r"credentials have expired.*make frames and views of it again"
    ):
        spark.table("lent").count()
    bridge.refresh(spark, "lent")
    assert spark.table("lent").count() == 500
    spark.catalog.dropTempView("lent")


class _WithDelta:
    """A session that claims to have Delta, whose reader would have no credentials."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.conf = {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)


def test_lent_table_is_no_table_of_delta(spark: SparkSession, lender: Lending, name: str) -> None:
    session: Any = _WithDelta(spark)
    assert bridge.register_table(session, name, "lent", storage_options=lender.options) == "`lent`"
    assert spark.table("lent").count() == 500
    spark.catalog.dropTempView("lent")


def test_token_is_not_sent_to_tasks(
    spark: SparkSession, lender: Lending, name: str, stored: dict[str, str]
) -> None:
    table = bridge.open_table(spark, name, storage_options=lender.options)
    source = QbeastDataSource({**stored, "path": name})
    schema = source.schema()
    reader, stream = source.reader(schema), source.streamReader(schema)
    writer = source.writer(schema, overwrite=False)
    into = QbeastDataSource({**stored, "path": name, "txnappid": "a"})
    sink = into.streamWriter(schema, overwrite=False)
    first, last = stream.initialOffset(), dict(stream.stream.end().json())
    sent = [reader, stream, writer, sink, table.rows().tasks(), table.snapshot.location]
    pickles = [cloudpickle.dumps(one) for one in sent]
    pickles += [part.value for part in [*reader.partitions(), *stream.partitions(first, last)]]
    assert all(b"lent-" in text for text in pickles)
    assert not [
        text for text in pickles if TOKEN.encode() in text or lender.catalog.endpoint.encode() in text
    ]


@pytest.mark.classic  # a client of Connect has no plans
def test_plans_and_errors_do_not_show_secrets(
    spark: SparkSession, name: str, stored: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    bridge.register(spark)
    rows = spark.read.format("qbeast").options(**stored).load(name)
    rows.createOrReplaceTempView("shown")
    rows.where("id < 0").write.format("qbeast").mode("append").options(**stored).save(name)
    executions: Any = spark._jsparkSession.sharedState().statusStore().executionsList()  # noqa: SLF001
    texts = [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    spark.sql("INSERT INTO shown VALUES (1, 2)").explain(extended=True)
    texts.append(capsys.readouterr().out)
    texts += [rows._jdf.queryExecution().toString()]  # noqa: SLF001
    for change in ({"storage.UNITY_TOKEN": "hunter2-wrong"}, {"where": "id +"}):
        with pytest.raises(PySparkException) as caught:
            spark.read.format("qbeast").options(**{**stored, **change}).load(name).collect()
        texts.append(str(caught.value))
    assert "UNITY_TOKEN" in "".join(texts)
    assert not [text for text in texts if "hunter2" in text]
    spark.catalog.dropTempView("shown")


def test_environment_of_the_driver_has_the_catalog(
    lender: Lending, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in lender.options.items():
        monkeypatch.setenv(key, value)
    source = QbeastDataSource({"path": name})
    schema = source.schema()
    constant = partial(AnalyzeArgument, StringType(), isTable=False, isConstantExpression=True)
    history = History.analyze(constant(name))
    counts = Estimate.analyze(constant(name), constant("count(*)"))
    tasks = [part.value for part in source.reader(schema).partitions()]
    for key in lender.catalog.options:  # a worker of a cluster does not have these
        monkeypatch.delenv(key)
    batches = [batch for task in tasks for batch in batches_of_task(task)]
    assert sum(batch.num_rows for batch in batches) == len(rows_at(place, lender))
    assert [row[0] for row in History(history).eval(name)] == [0]
    assert next(iter(Estimate(counts).eval(name, "count(*)")))[0] == 500


def test_read_only_credentials_refuse_changes_before_a_job(
    spark: SparkSession, lender: Lending, name: str, stored: dict[str, str]
) -> None:
    lender.catalog.operations = {"READ"}
    table = bridge.open_table(spark, name, storage_options=lender.options)
    with pytest.raises(qbeast.UnsupportedTableError, match="MODIFY"):
        table.delete("id < 10")
    rows = spark.range(10).selectExpr("id", "id AS x")
    with pytest.raises(qbeast.UnsupportedTableError, match="MODIFY"):
        bridge.write_table(rows, name, mode="append", storage_options=lender.options)
    bridge.register(spark)
    with pytest.raises(PySparkException, match="MODIFY"):
        rows.write.format("qbeast").mode("append").options(**stored).save(name)
    assert table.count() == 500


def test_tasks_get_credentials_for_half_of_their_time() -> None:
    hour, now, lent = 3_600_000, [0], iter(range(1, 9))

    def lend() -> Lent:
        return Lent({"aws_session_token": str(next(lent))}, now[0] + hour)

    options = LentOptions(lend, {"aws_region": "r", "aws_session_token": "own"}, lend(), clock=lambda: now[0])
    seen: list[tuple[str, str]] = []
    for time in (0, hour // 2 - 1, hour // 2, hour - 1):
        now[0] = time
        own = options["aws_session_token"]
        seen.append((own, pickle.loads(pickle.dumps(options))["aws_session_token"]))  # noqa: S301
    assert seen == [("1", "1"), ("1", "1"), ("1", "2"), ("2", "2")]
