"""Read, write, change and maintain qbeast tables with Apache Spark; the only package that imports PySpark."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbeast_spark_bridge.carbondata import import_carbondata, read_carbondata
    from qbeast_spark_bridge.names import (
        ConvertToQbeastCommand,
        QbeastTable,
        computeQuantilesForColumn,
        refresh,
        register_table,
    )
    from qbeast_spark_bridge.session import explain_error, register
    from qbeast_spark_bridge.tables import convert, estimate, open_table, read_table
    from qbeast_spark_bridge.write import write_table

__all__ = [
    "ConvertToQbeastCommand",
    "QbeastTable",
    "computeQuantilesForColumn",
    "convert",
    "estimate",
    "explain_error",
    "import_carbondata",
    "open_table",
    "read_carbondata",
    "read_table",
    "refresh",
    "register",
    "register_table",
    "write_table",
]

_HOMES = {
    "carbondata": ("import_carbondata", "read_carbondata"),
    "names": (
        "ConvertToQbeastCommand",
        "QbeastTable",
        "computeQuantilesForColumn",
        "refresh",
        "register_table",
    ),
    "session": ("explain_error", "load_ipython_extension", "register"),  # the second is what %load_ext calls
    "tables": ("convert", "estimate", "open_table", "read_table"),
    "write": ("write_table",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import modules on first use: workers import parts of this package without a PySpark session."""
    if name not in _MODULES:
        from qbeast_core.support.text import did_you_mean  # noqa: PLC0415 - only for an error

        hint = "" if name.startswith("_") else _call_of(name) or did_you_mean([name], _MODULES)
        msg = f"module {__name__!r} has no attribute {name!r}.{hint}"
        raise AttributeError(msg, name=name, obj=sys.modules[__name__])
    from qbeast_core.support.process import require  # noqa: PLC0415 - only once for each name

    require("pyspark", __name__)
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def _call_of(name: str) -> str:
    """Return how a method of a table is called."""
    from qbeast_core.api.table import Table  # noqa: PLC0415 - only for an error

    return f" Call {__name__}.open_table(spark, path).{name}(...)." if hasattr(Table, name) else ""


def __dir__() -> list[str]:
    return __all__
