"""Read, write, change and maintain qbeast tables with Apache Spark; the only package that imports PySpark."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbeast_spark_bridge.aggregate import estimate
    from qbeast_spark_bridge.carbondata import import_carbondata, read_carbondata
    from qbeast_spark_bridge.change import delete, merge, update
    from qbeast_spark_bridge.changes import read_changes
    from qbeast_spark_bridge.maintenance import add_sample_column, check, convert, optimize, reindex, upgrade
    from qbeast_spark_bridge.names import (
        ConvertToQbeastCommand,
        QbeastTable,
        computeQuantilesForColumn,
        refresh,
        register_table,
    )
    from qbeast_spark_bridge.read import explain, read_table
    from qbeast_spark_bridge.session import explain_error, register
    from qbeast_spark_bridge.write import write_table

__all__ = [
    "ConvertToQbeastCommand",
    "QbeastTable",
    "add_sample_column",
    "check",
    "computeQuantilesForColumn",
    "convert",
    "delete",
    "estimate",
    "explain",
    "explain_error",
    "import_carbondata",
    "merge",
    "optimize",
    "read_carbondata",
    "read_changes",
    "read_table",
    "refresh",
    "register",
    "register_table",
    "reindex",
    "update",
    "upgrade",
    "write_table",
]

_HOMES = {
    "aggregate": ("estimate",),
    "carbondata": ("import_carbondata", "read_carbondata"),
    "change": ("delete", "merge", "update"),
    "changes": ("read_changes",),
    "maintenance": ("add_sample_column", "check", "convert", "optimize", "reindex", "upgrade"),
    "notebook": ("load_ipython_extension",),  # what %load_ext calls
    "names": (
        "ConvertToQbeastCommand",
        "QbeastTable",
        "computeQuantilesForColumn",
        "refresh",
        "register_table",
    ),
    "read": ("explain", "read_table"),
    "session": ("explain_error", "register"),
    "write": ("write_table",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import modules on first use: workers import parts of this package without a PySpark session."""
    if name not in _MODULES:
        from qbeast_core.support.suggestions import did_you_mean  # noqa: PLC0415 - only for an error

        hint = "" if name.startswith("_") else did_you_mean([name], _MODULES)
        msg = f"module {__name__!r} has no attribute {name!r}.{hint}"
        raise AttributeError(msg, name=name, obj=sys.modules[__name__])
    from qbeast_core.support.process import require  # noqa: PLC0415 - only once for each name

    require("pyspark", __name__)
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
