"""Who else answers questions about users from a sample, and does the answer hold?

    make readers
    python -m benchmarks.bench_users

10 million events of 200,000 users, see `bench_sampling_key`. Questions: distinct users, and distinct users of one week.
Candidates: `estimate` at 5 % error; ClickHouse with `SAMPLE BY` the user, ordered by the user or by month and user,
whose sample of 1 % has no interval; DuckDB's sample of 1 % of the rows of a Parquet file, scaled up; and the sketch of
Spark (`approx_count_distinct`, HyperLogLog++ with a standard error of 5 %), which reads the columns of all rows. Bytes
are compressed column data; of ClickHouse, the rows that it reads times the compressed bytes per row of the columns. A
kept promise is an answer within 5 % of the truth: of 100 different samples of 1 %, of 100 different sketches, and for
`estimate` an interval that holds the truth.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any, cast

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 -- the usual name

import qbeast
from benchmarks import measure
from benchmarks.bench_sampling_key import ROWS, USERS, clicks, keyed_table
from benchmarks.bench_spark_read import session
from benchmarks.report import Figure, table

ERROR, SAMPLES = 0.05, 100
WEEK = (datetime(2025, 3, 3), datetime(2025, 3, 10))  # noqa: DTZ001 - the times of the events have no zone
IN_WEEK = pl.col("at").is_between(*WEEK, closed="left")
SQL_WEEK = f"\"at\" >= '{WEEK[0]}' AND \"at\" < '{WEEK[1]}'"
QUESTIONS = {"users": None, "users of a week": IN_WEEK}


def run() -> list[Figure]:
    rows = clicks()
    truths = {
        what: int((rows if where is None else rows.filter(where))["user"].n_unique())
        for what, where in QUESTIONS.items()
    }
    figures = [*_ours(truths), *_spark(truths)]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "clicks.parquet"
        rows.write_parquet(file, compression_level=1)
        return [*figures, *_duckdb(file, truths), *_clickhouse(file, Path(scratch), truths)]


def _ours(truths: dict[str, int]) -> list[Figure]:
    opened = qbeast.open_table(keyed_table())
    users = {"n": pl.col("user").n_unique()}
    figures = []
    for what, where in QUESTIONS.items():
        answer = opened.rows(where).estimate(users, error=ERROR)
        seconds = _typical(lambda where=where: opened.rows(where).estimate(users, error=ERROR))
        kept = []
        for part in range(SAMPLES):
            sample = part / SAMPLES, (part + 1) / SAMPLES
            row = opened.rows(where, sample=sample).estimate(users).frame.row(0, named=True)
            kept.append(not row["reliable"] or row["n_low"] <= truths[what] <= row["n_high"])
        figures += _figures(what, "qbeast", answer.bytes_opened, seconds, mean(kept))
    return figures


def _spark(truths: dict[str, int]) -> list[Figure]:
    """Count with different sketches: those of the users plus a constant, which has another hash."""
    figures = []
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "clicks.parquet"
        clicks().sort("at").write_parquet(file, compression_level=1)
        sizes = _column_bytes(file)
        spark = session()
        try:
            events = spark.read.parquet(str(file))
            for what, where in (("users", "TRUE"), ("users of a week", SQL_WEEK.replace('"', "`"))):
                matching = events.where(where)
                sketches = [
                    F.approx_count_distinct(F.col("user") + part * USERS, ERROR) for part in range(SAMPLES)
                ]
                counts = matching.agg(*sketches).collect()[0]
                kept = mean(abs(count / truths[what] - 1) <= ERROR for count in counts)
                seconds = _typical(matching.agg(sketches[0]).collect)
                size = sizes["user"] + (sizes["at"] if where != "TRUE" else 0)
                figures += _figures(what, "sketch of Spark", size, seconds, kept)
        finally:
            spark.stop()
    return figures


def _typical(question: Callable[[], object]) -> float:
    """Return the median seconds of a question, after one call that warms up."""
    return measure.interleaved({"": question})[""]


def _column_bytes(file: Path) -> dict[str, int]:
    """Return the compressed bytes of each column of a Parquet file."""
    footer = pq.read_metadata(file)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    sizes: dict[str, int] = {}
    for chunk in chunks:
        sizes[chunk.path_in_schema] = sizes.get(chunk.path_in_schema, 0) + chunk.total_compressed_size
    return sizes


def _duckdb(file: Path, truths: dict[str, int]) -> list[Figure]:
    """Scale up the distinct users of samples of 1 % of the rows, which is what users without another tool do."""
    figures, sizes = [], _column_bytes(file)
    with duckdb.connect() as connection:
        for what, where in (("users", "TRUE"), ("users of a week", SQL_WEEK)):
            query = f"SELECT count(DISTINCT user) FROM '{file}' USING SAMPLE 1% (system, {{seed}})"  # noqa: S608
            if where != "TRUE":
                sampled = f"SELECT * FROM '{file}' USING SAMPLE 1% (system, {{seed}})"  # noqa: S608
                query = f"SELECT count(DISTINCT user) FROM ({sampled}) WHERE {where}"  # noqa: S608
            counts = [
                cast("tuple[int]", connection.execute(query.format(seed=seed)).fetchone())[0]
                for seed in range(SAMPLES)
            ]
            seconds = _typical(lambda query=query: connection.execute(query.format(seed=0)).fetchall())
            kept = mean(abs(100 * count / truths[what] - 1) <= ERROR for count in counts)
            size = 0.01 * (sizes["user"] + (sizes["at"] if where != "TRUE" else 0))
            figures += _figures(what, "sample of DuckDB, scaled", size, seconds, kept)
    return figures


def _clickhouse(file: Path, scratch: Path, truths: dict[str, int]) -> list[Figure]:
    sys.path.append(".venv/readers")  # at the end, because it has another PySpark
    from chdb.session import Session  # noqa: PLC0415 - installed by `make readers`

    session = Session(str(scratch / "clickhouse"))
    session.query("CREATE DATABASE d ENGINE = Atomic")
    figures = []
    for name, order in {"by user": "intHash32(user)", "by month": "(toYYYYMM(at), intHash32(user))"}.items():
        place = f"d.`{name}`"
        options = f"ENGINE = MergeTree ORDER BY {order} SAMPLE BY intHash32(user)"
        source = f"file('{file}', Parquet) SETTINGS schema_inference_make_columns_nullable = 0"
        session.query(f"CREATE TABLE {place} {options} AS SELECT * FROM {source}")  # noqa: S608
        session.query(f"OPTIMIZE TABLE {place} FINAL")
        row_bytes = {
            str(row["name"]): float(row["size"]) / ROWS
            for row in _rows(
                session,
                "SELECT name, data_compressed_bytes AS size FROM system.columns "  # noqa: S608
                f"WHERE database = 'd' AND table = '{name}'",
            )[0]
        }
        for what, where in (("users", "1"), ("users of a week", SQL_WEEK)):
            figures += _clickhouse_figures(
                session, place, what, where, truths[what], f"ClickHouse {name}", row_bytes
            )
    return figures


def _clickhouse_figures(
    session: Any, place: str, what: str, where: str, truth: int, who: str, row_bytes: dict[str, float]
) -> list[Figure]:
    def query(part: int) -> str:
        offset = f"OFFSET {part}/{SAMPLES}" if part else ""
        sample = f"{place} SAMPLE 1/{SAMPLES} {offset}"
        return f"SELECT uniqExact(user) AS n FROM {sample} WHERE {where}"  # noqa: S608

    found = [_rows(session, query(part)) for part in range(SAMPLES)]
    kept = mean(abs(SAMPLES * int(rows[0]["n"]) / truth - 1) <= ERROR for rows, _ in found)
    size = sum(row_bytes[name] for name in (["user"] if where == "1" else ["user", "at"]))
    seconds = _typical(lambda: session.query(query(1)))
    return _figures(what, who, float(np.mean([read for _, read in found])) * size, seconds, kept)


def _rows(session: Any, query: str) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of a query, and the number of rows that it read."""
    answer = json.loads(str(session.query(query, "JSON")))
    return answer["data"], int(answer["statistics"]["rows_read"])


def _figures(what: str, who: str, read_bytes: float, seconds: float, kept: float) -> list[Figure]:
    return [
        Figure(f"{what}: bytes, {who}", read_bytes / 1e6, "MB"),
        Figure(f"{what}: time, {who}", 1e3 * seconds, "ms"),
        Figure(f"{what}: kept promises, {who}", 100 * kept, "%"),
    ]


if __name__ == "__main__":
    print(table(run()))
