"""`import qbeast` stays cheap: no Spark, no object store, no second data frame library, no test helpers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAVY = {
    "duckdb",
    "hypothesis",
    "matplotlib",
    "obstore",
    "pandas",
    "pyspark",
    "pyspark_qbeast",
    "qbeast_spark_bridge",
}


def test_import_loads_nothing_heavy() -> None:
    # A fresh interpreter: this process has imported half of the index by now.
    code = "import sys, qbeast; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True, cwd=ROOT).split()
    assert not HEAVY & set(loaded)
