"""Spark sessions for tests: small, quiet, bound to this machine, and leaving nothing outside one directory."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
# Neither UTC nor the zone of a usual machine, and with daylight saving: what confuses zones shows.
ZONE = "America/New_York"
LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def settings(directory: Path) -> dict[str, str]:
    """What every session of the tests runs under; `directory` takes all that Spark writes by itself."""
    log4j = directory / "log4j2.properties"
    log4j.write_text(LOG4J)
    # A session of a minute or two never pays back what the optimizing compiler and a parallel collector cost it:
    # without them a test file takes half the processor time. Classes of a release need no proof that they are sound.
    brief = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    brief += " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    # What is compiled stays compiled: the 48 MB that this compiler has by itself were full, and to look for code to
    # throw away took 10 s of 143, before it was compiled again. New objects get room, for most die soon.
    brief += " -XX:ReservedCodeCacheSize=240m -Xms1g -Xmn600m"
    java = f"-Dlog4j2.configurationFile={log4j.as_uri()} -Djava.io.tmpdir={directory} {brief}"
    return {
        "spark.driver.memory": "1500m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": ZONE,
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def environment() -> dict[str, str]:
    """Return the variables by which Spark's processes find this Python and the project's modules."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": path}


def home(directory: Path) -> Path:
    """Make a home for Spark without the archive of PySpark, which every Python process would compile anew.

    The same modules come from where this process has them.
    """
    place = directory / "home"
    place.mkdir()
    for name in ("bin", "jars"):
        (place / name).symlink_to(Path(pyspark.__file__).resolve().parent / name)
    return place


def classic(directory: Path, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Start `local[2]` in a JVM of this process."""
    with _quiet_launch():
        chosen = settings(directory) | dict(extra or {})
        return SparkSession.builder.master("local[2]").config(map=chosen).getOrCreate()


def connect(directory: Path) -> SparkSession:
    """Start a Connect server with `local[2]` on a port of its own, and a client of it."""
    port = free_port()
    extra = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    # The client of remote("local[2]") looks at port 15002, where somebody else's server may listen.
    core = import_module("pyspark.sql.connect.client.core")  # classic sessions do without its dependencies
    core.DefaultChannelBuilder.default_port = staticmethod(lambda: port)
    with _quiet_launch():
        return SparkSession.builder.remote("local[2]").config(map=settings(directory) | extra).getOrCreate()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def _quiet_launch() -> Iterator[None]:
    with warnings.catch_warnings():
        # PySpark starts its JVM with a preexec_fn, which Python 3.12 warns of where threads run (those of Polars).
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        # The Connect client sends all settings again to the server that was started with them.
        warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
        yield
