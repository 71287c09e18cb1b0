"""Register ``format("qbeast")`` with PySpark, which imports every package named ``pyspark_*``.

An error here would hide the data sources of all other packages, so missing dependencies are ignored.
"""

from __future__ import annotations

import contextlib

__all__: list[str] = []

with contextlib.suppress(ImportError):
    from qbeast_spark_bridge.datasource.source import QbeastDataSource as DefaultSource

    __all__ += ["DefaultSource"]
