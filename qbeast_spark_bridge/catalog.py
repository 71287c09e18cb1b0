"""Tables by their names: those of Spark's catalog, and temporary views that `register_table` makes."""

from __future__ import annotations

import os
import re
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException

from qbeast_core.errors import InvalidInputError, QbeastWarning, TableNotFoundError
from qbeast_core.io.catalog.lent import lasting_options
from qbeast_core.io.location import Location
from qbeast_core.support.process import caller_stacklevel
from qbeast_spark_bridge.engine.workers import is_connect
from qbeast_spark_bridge.spark_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A part of a name, with backticks around it or without.
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
_MAX_PLANS: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A temporary view of a table, with the plans that it had in sessions of this process.

    A plan is known by its semantic hash: the same in clones of a session, another one if somebody replaces the view.
    On Sail it is None, so a view is known by its name only.
    """

    # The parts of the name; a temporary view has only the last one.
    parts: list[str]
    location: Location
    plans: deque[int | None] = field(default_factory=lambda: deque[int | None](maxlen=_MAX_PLANS))

    def plan(self, spark: SparkSession) -> str:
        """Make the view, or replace it by a view of the newest version; return its name for SQL."""
        bare, name = self.parts[-1], quoted(self.parts[-1])
        has_plan = spark.catalog.tableExists(name) and _hash_of(spark, name) is not None
        is_cached = has_plan and spark.catalog.isCached(name)
        place, chosen = _for_source(spark, self.location)
        options = {f"storage.{key}": value for key, value in chosen.items()}
        rows = spark.read.format("qbeast").options(**options, stale="refuse").load(place)
        # Sail takes backticks here as a part of the name.
        rows.createOrReplaceTempView(bare if bare.isascii() and bare.isidentifier() else name)
        self.plans.append(_hash_of(spark, name))
        if is_cached:
            spark.catalog.cacheTable(name)
        return name

    def has_name(self, parts: list[str]) -> bool:
        """Return whether a name is that of the view; Spark ignores the case."""
        own = [part.lower() for part in self.parts]
        return [part.lower() for part in parts] in (own, own[-1:])


_VIEWS: Final[list[View]] = []


def view_of(name: str, location: Location) -> View:
    """Return the view of a name and a location, to be planned."""
    parts = parts_of(name)
    for view in _VIEWS:
        if view.parts == parts and _way_to(view.location) == _way_to(location):
            return view
    _VIEWS.append(View(parts, location))
    return _VIEWS[-1]


def _way_to(location: Location) -> tuple[object, ...]:
    """Return what leads to a table, without credentials that a catalog lends: each time they are others."""
    return location.uri, location.name, location.options_of_others, location.trusts_absolute


def _for_source(spark: SparkSession, location: Location) -> tuple[str, Mapping[str, str]]:
    """Return what a data source of the session opens the table with.

    It looks a name up when Spark plans a query or an insert, so that the credentials are new then. But a server of
    Connect writes the options of requests to its event log, so that it gets no token of a catalog.
    """
    if is_connect(spark):
        return location.uri, lasting_options(location.storage_options)
    return location.name, location.options_of_others


def find_view(spark: SparkSession, parts: list[str]) -> View | None:
    """Return the view that a session has by a name; None if `register_table` did not make it in this process."""
    views = [view for view in _VIEWS if view.has_name(parts)]
    if not views or not spark.catalog.tableExists(quoted(parts[-1])):
        return None
    plan = _hash_of(spark, quoted(parts[-1]))
    return next((view for view in views if plan in view.plans), None)


def located(
    spark: SparkSession,
    path: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    *,
    allow_absolute_paths: bool = False,
    may_be_new: bool = False,
) -> Location:
    """Return where a table is, given its path or its name in the session.

    A text that `may_be_new` is the path of a new table, unless `register_table` made it a name.
    """
    name = _bare_name(path)
    view = None if name is None else find_view(spark, parts_of(name))
    if view is not None and storage_options is None:
        return replace(view.location, trusts_absolute=allow_absolute_paths)
    if view is not None:
        path = view.location.name
    elif name is not None and not may_be_new:
        place = location_of_name(spark, name)
        if place is None:
            msg = (
                f"there is no table at {Path.cwd() / name}, and the session has no name {name!r}. Use the path of a "
                f"table, or give it the name: qbeast_spark_bridge.register_table(spark, path, {name!r})."
            )
            raise TableNotFoundError(msg, path=name)
        path = place
    return Location.of(path, storage_options, allow_absolute_paths=allow_absolute_paths)


def plan_views(spark: SparkSession, uri: str) -> None:
    """Plan the names that a session has for a table again, after a change of the table."""
    for view in [view for view in _VIEWS if view.location.uri == uri]:
        try:
            if find_view(spark, view.parts) is view:
                view.plan(spark)
        except PySparkException as error:  # the commit succeeded, which an error of Spark must not hide
            reason = str(error).partition("\n")[0].rstrip(".")
            message = (
                f"the table at {uri} was changed, but Spark failed to plan its name {view.parts[-1]!r} again: "
                f"{reason}. Queries of the name raise an error until "
                "qbeast_spark_bridge.refresh(spark, name) succeeds."
            )
            warnings.warn(message, QbeastWarning, stacklevel=caller_stacklevel())


def _bare_name(path: str | os.PathLike[str]) -> str | None:
    """Return a path that may be a name: a text without separators of a path, if there is no such file or folder."""
    if not isinstance(path, str) or any(mark in path for mark in "/\\:") or os.path.exists(path):  # noqa: PTH110
        return None
    return path if _NAME.fullmatch(path) else None


def _hash_of(spark: SparkSession, name: str) -> int | None:
    """Return the semantic hash of a name's plan; None of a broken view, and on Sail, which has no hashes."""
    try:
        return spark.table(name).semanticHash()
    except (AnalysisException, UnsupportedOperationException):
        return None


def location_of_name(spark: SparkSession, name: str) -> str | None:
    """Return the location of a table of the catalog; None if there is no such name.

    A view has no location that Spark would show.
    """
    quoted_name = quoted_parts(name)
    if not spark.catalog.tableExists(quoted_name):
        return None
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted_name}").collect()
    places = [row["data_type"] for row in rows if row["col_name"] == "Location"]
    if places:
        return str(places[-1])
    msg = (
        f"the session has {name!r}, but not the path of its table: it is a view that register_table did not make here. "
        f"Use the path, or give the table a name: qbeast_spark_bridge.register_table(spark, path, {name!r})."
    )
    raise InvalidInputError(msg, argument="path", value=name)


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
