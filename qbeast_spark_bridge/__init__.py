"""Read, write, change and maintain qbeast tables with Apache Spark; the only package that imports PySpark."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbeast_spark_bridge.aggregate import estimate
    from qbeast_spark_bridge.carbondata import import_carbondata, read_carbondata
    from qbeast_spark_bridge.change import delete, merge, update
    from qbeast_spark_bridge.maintenance import convert, optimize, upgrade
    from qbeast_spark_bridge.planning import explain
    from qbeast_spark_bridge.read import read_table
    from qbeast_spark_bridge.session import register
    from qbeast_spark_bridge.verify import check
    from qbeast_spark_bridge.write import write_table

__all__ = [
    "check",
    "convert",
    "delete",
    "estimate",
    "explain",
    "import_carbondata",
    "merge",
    "optimize",
    "read_carbondata",
    "read_table",
    "register",
    "update",
    "upgrade",
    "write_table",
]

_MODULES = {
    "check": "verify",
    "convert": "maintenance",
    "delete": "change",
    "estimate": "aggregate",
    "explain": "planning",
    "import_carbondata": "carbondata",
    "merge": "change",
    "optimize": "maintenance",
    "read_carbondata": "carbondata",
    "read_table": "read",
    "register": "session",
    "update": "change",
    "upgrade": "maintenance",
    "write_table": "write",
}


def __getattr__(name: str) -> Any:
    """Import modules on first use: workers import parts of this package without a PySpark session."""
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg, name=name, obj=sys.modules[__name__])
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
