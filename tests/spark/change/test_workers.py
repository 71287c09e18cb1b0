"""Which Python the workers of a session run, and what is said before work is sent to one that cannot do it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import qbeast
from qbeast_core.errors import InvalidInputError
from qbeast_spark_bridge.engine.workers import worker_errors
from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
import json, os, sys, traceback
from pathlib import Path
import qbeast_spark_bridge as bridge
from qbeast_core.errors import InvalidInputError
from tests.spark import sessions

kind, folder, lacking = sys.argv[1:]
spark = getattr(sessions, kind)(Path(folder))
other = spark.newSession()
spark.conf.set("spark.sql.execution.pyspark.python", lacking)
table = f"{folder}/table"
try:
    bridge.write_table(spark.range(100), table, ["id"])
except InvalidInputError as error:
    said = [str(error), ''.join(traceback.format_exception(error)).count('Traceback'), Path(table).exists()]
bridge.write_table(other.range(2_000), table, ["id"])
bridge.open_table(other, table).delete("id < 10")
rows = [bridge.read_table(other, table).count()]
if kind == "classic":
    bridge.register(other)
    rows.append(other.read.format("qbeast").load(table).count())
print(json.dumps({"said": said, "rows": rows}), flush=True)
os._exit(0)  # a Connect server waits for both of its sessions
"""


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_local_workers_run_this_python_without_activation(tmp_path: Path, kind: str) -> None:
    """The environment is not on the path, whose `python3` runs nothing; another one lacks what it needs."""
    ensure_java()
    for name, command in {"python3": "exit 3", "bare": f'exec "{sys.executable}" -S "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{command}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "local").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"])
    added = {"PATH": path, "SPARK_HOME": str(Path(pyspark.__file__).parent), "PYTHONPATH": str(sessions.ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JOB, kind, str(tmp_path), str(tmp_path / "bare")],
        text=True,
        env=kept | added,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = json.loads(done.stdout.splitlines()[-1])
    message, tracebacks, exists = output["said"]
    assert "lacks numpy, pandas, polars" in message
    assert message.endswith("Nothing was changed.")
    assert (tracebacks, exists) == (1, False)
    assert "at org.apache.spark" not in done.stderr
    assert set(output["rows"]) == {1_990}
    assert qbeast.open_table(tmp_path / "table").check().ok


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("Python in worker has different version: 3.9 than that in driver: 3.11", "workers run Python 3.9"),
        ("Python in worker has different version (3, 9) than that in driver 3.11", "workers run Python 3.9"),
        ('java.io.IOException: Cannot run program "no-python": error=2', "the program 'no-python'"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "without the module 'pyarrow'"),
    ],
)
def test_broken_worker_python_is_one_message(spark: SparkSession, said: str, fact: str) -> None:
    with pytest.raises(InvalidInputError, match="Python") as caught, worker_errors(spark):
        raise RuntimeError(said)
    assert fact in str(caught.value)
    assert caught.value.__suppress_context__
