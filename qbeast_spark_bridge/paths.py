"""Paths of data files as Spark's own reader takes them."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["can_read", "list_on_driver", "spark_path"]

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[\\*?\[\]{}]")
_THRESHOLD: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_DEFAULT_THRESHOLD: Final = 32
_MANY: Final = 1 << 30


def spark_path(location: str) -> str:
    r"""Return a path that Spark reads as exactly this file.

    Spark takes paths for patterns; ``%`` and blanks mean themselves. Local paths name their file system, since
    Spark's default may be another. Addresses stay as they are but for the escapes.

    Parameters
    ----------
    location : str
        Local path or address of a data file, decoded.

    Examples
    --------
    >>> spark_path("/tables/a b/[1].parquet")
    'file:///tables/a b/\\[1\\].parquet'
    """
    full = location if _is_address(location) else f"file://{Path(location).absolute()}"
    return _GLOB.sub(r"\\\g<0>", full)


def can_read(location: str) -> bool:
    """Tell whether Spark's reader reads a file: some names it passes over in silence, on others it stumbles.

    Parameters
    ----------
    location : str
        Local path or address of a data file, decoded.

    Examples
    --------
    >>> can_read("/tables/_orders/1.parquet"), can_read("/tables/orders/_1.parquet")
    (True, False)
    """
    name = location.rsplit("/", 1)[-1]
    passed_over = (
        (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
    )
    stumbles = ":" in name or (":" in _ADDRESS.sub("", location) and _GLOB.search(location) is not None)
    return not passed_over and not stumbles


@contextmanager
def list_on_driver(spark: SparkSession, locations: list[str]) -> Generator[None]:
    """Let Spark look up many local files one after the other, not by a job with a task for each.

    The session's setting is as before afterwards. Files in object stores are left to Spark's jobs.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    locations : list of str
        Local paths or addresses of the files.
    """
    if len(locations) <= _DEFAULT_THRESHOLD or any(map(_is_address, locations)):
        yield
        return
    before = spark.conf.get(_THRESHOLD, None)
    spark.conf.set(_THRESHOLD, str(_MANY))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_THRESHOLD)
        else:
            spark.conf.set(_THRESHOLD, before)


def _is_address(location: str) -> bool:
    return _ADDRESS.match(location) is not None
