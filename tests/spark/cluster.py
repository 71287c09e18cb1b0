"""A Spark cluster of processes on this machine: a standalone master, its workers, and a Spark Connect server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pyspark

from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 150.0  # seconds; a loaded machine takes its time to start five JVMs
HOME = Path(pyspark.__file__).parent
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Addresses of a running cluster; `directory` holds the logs."""

    master: str
    remote: str
    directory: Path

    def run(self, module: str, *arguments: str, connect: bool, timeout: float = 300) -> str:
        """Run a module of this project as a driver of the cluster, or as a client of its Connect server."""
        address = self.remote if connect else self.master
        command = [sys.executable, "-m", module, address, *arguments]
        done = subprocess.run(
            command,
            text=True,
            timeout=timeout,
            cwd=sessions.ROOT,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout


@contextmanager
def cluster(directory: Path, *, workers: int = 2) -> Iterator[Cluster]:
    """Start a master, workers of two cores each and a Connect server; none of them outlives the block."""
    ensure_java()
    (directory / "local").mkdir(parents=True, exist_ok=True)
    port, web, grpc = (sessions.free_port() for _ in range(3))
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        daemons = _Daemons(stack, directory)
        place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)]
        daemons.start("master", "spark-class", MASTER, *place)
        daemons.wait("the master", lambda: _workers(web) == 0)
        for number in range(workers):
            folder = str(directory / f"worker-{number}")
            # A host each: Spark starts no second copy of a slow task on the host of the first.
            place = ["--host", f"127.0.0.{number + 1}", "--webui-port", "0", "--work-dir", folder]
            size = ["--cores", "2", "--memory", "2g"]
            daemons.start(f"worker-{number}", "spark-class", WORKER, *place, *size, master)
        daemons.wait("the workers", lambda: _workers(web) == workers)
        server = ["--class", SERVER, *_submit(directory, master, grpc), "spark-internal"]
        daemons.start("connect", "spark-submit", *server)
        daemons.wait("the Connect server", lambda: _listens(grpc))
        yield Cluster(master, f"sc://127.0.0.1:{grpc}", directory)


def settings(directory: Path) -> dict[str, str]:
    """Return the settings of an application that takes one core and little memory of each of two workers."""
    return sessions.settings(directory) | {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "700m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
    }


def _submit(directory: Path, master: str, port: int) -> list[str]:
    conf = settings(directory) | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    pairs = [argument for name, value in conf.items() for argument in ("--conf", f"{name}={value}")]
    return ["--master", master, "--name", "connect", *pairs]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | sessions.environment() | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}


class _Daemons:
    """Spark's own scripts, each behind a keeper; all are killed when the stack is left."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack, self._directory = stack, directory
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, script: str, *arguments: str) -> None:
        keeper = [sys.executable, str(Path(__file__).with_name("keeper.py"))]
        # Master and workers are small; the Connect server is a driver, which this setting would shrink as well.
        small = {} if script == "spark-submit" else {"SPARK_DAEMON_MEMORY": "256m"}
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*keeper, str(HOME / "bin" / script), *arguments],
                env=_environment() | small,
                cwd=self._directory,
                start_new_session=True,  # a signal to our group leaves the keeper to its duty
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        self._keepers[name] = process
        self._stack.callback(_end, process)

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and all(keeper.poll() is None for keeper in self._keepers.values()):
            if ready():
                return
            time.sleep(0.2)
        logs = (self._directory / f"{name}.log" for name in self._keepers)
        tails = "\n".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in logs)
        message = f"{what} did not start within {PATIENCE:g} s, or ended\n{tails}"
        raise RuntimeError(message)


def _end(keeper: subprocess.Popen[bytes]) -> None:
    assert keeper.stdin is not None
    keeper.stdin.close()
    keeper.wait(30)


def _workers(web: int) -> int:
    """Count the workers that the master knows; -1 while it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return -1


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
