"""Tables by their names in Spark's catalog."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.spark_schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A part of a name, with backticks around it or without.
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")


def located(spark: SparkSession, path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return where a table of the catalog is, given its name in place of a path; other paths are returned as they are.

    A text without separators of a path is a name, unless there is such a file or folder here.
    """
    if not isinstance(path, str) or any(mark in path for mark in "/\\:") or os.path.exists(path):  # noqa: PTH110
        return path
    try:
        return location_of_name(spark, path) or path
    except InvalidInputError:  # not a name
        return path


def location_of_name(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table of the catalog; None if it is unknown, as for temporary views."""
    quoted_name = quoted_parts(name)
    if not spark.catalog.tableExists(quoted_name):
        return None
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted_name}").collect()
    places = [row["data_type"] for row in rows if row["col_name"] == "Location"]
    return str(places[-1]) if places else None


def parts_of(name: str) -> list[str]:
    """Return the parts of a name, such as db.sales.

    >>> parts_of("db.sales"), parts_of("`my.db`.`a``b`")
    (['db', 'sales'], ['my.db', 'a`b'])
    """
    parts = [text.replace("``", "`") or bare for text, bare in _PART.findall(name)]
    if not parts or not _NAME.fullmatch(name):
        msg = f"the name of a table has parts between dots, such as db.sales, not {name!r}"
        raise InvalidInputError(msg, argument="name", value=name)
    return parts


def quoted_parts(name: str) -> str:
    """Return a name for SQL."""
    return ".".join(map(quoted, parts_of(name)))
