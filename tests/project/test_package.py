"""What `pip install` gets: the wheel and the sdist hold the packages, and they work where only they are installed."""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep
pytest.importorskip("setuptools", minversion="77", reason="make install brings what the wheel is built by")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("pyspark_qbeast", "qbeast", "qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge")
STEM = f"qbeast-{PROJECT['version']}"

BUILD = """
import os, sys, tarfile
from setuptools import build_meta
source, out = sys.argv[1:]
os.chdir(source)
sdist = build_meta.build_sdist(out)
tarfile.open(os.path.join(out, sdist)).extractall(os.path.join(out, "unpacked"), filter="data")
os.chdir(os.path.join(out, "unpacked", sdist.removesuffix(".tar.gz")))
build_meta.build_wheel(out)
"""
USE = """
import json, sys
from importlib import metadata
sys.path.insert(0, sys.argv[1])
import polars as pl, qbeast, qbeast_core, pyspark_qbeast
qbeast.write_table(pl.DataFrame({"id": range(1000)}), "table", columns=["id"])
(script,) = [one for one in metadata.distribution("qbeast").entry_points if one.group == "console_scripts"]
told = {
    "places": [one.__file__ for one in (qbeast, qbeast_core, pyspark_qbeast)],
    "version": qbeast.__version__,
    "sampled": qbeast.read_table("table", sample=0.1).height,
    "script": [script.name, script.load().__module__],
}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from it, as pip does where there is no wheel."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, source)
    subprocess.run([sys.executable, "-c", BUILD, source, out], check=True, capture_output=True)
    return out


def tried(command: Sequence[str | Path], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program that is told of no other packages by its environment."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, cwd=folder, env=names
    )


def run(command: Sequence[str | Path], folder: Path | None = None) -> str:
    """Return what a program prints; what it says when it fails is in the error."""
    done = tried(command, folder)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def stored() -> set[str]:
    """Return the files of the packages."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*")]
    return {
        str(file.relative_to(ROOT)) for file in files if file.is_file() and "__pycache__" not in file.parts
    }


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    return email.message_from_bytes(wheel.read(f"{STEM}.dist-info/METADATA"))


def test_wheel_holds_only_the_packages(built: Path) -> None:
    with zipfile.ZipFile(built / f"{STEM}-py3-none-any.whl") as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"{STEM}.dist-info/")}
        assert names == stored()
        assert {f"{package}/py.typed" for package in PACKAGES} <= names
        report = metadata_of(wheel)
    assert (report["Name"], report["Version"]) == ("qbeast", PROJECT["version"])
    assert report["Requires-Python"] == PROJECT["requires-python"]
    assert set(report.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert report["Description-Content-Type"] == "text/markdown"
    assert "## Beside what you would use instead" in report.get_payload()


def test_sdist_holds_everything_a_wheel_needs(built: Path) -> None:
    with tarfile.open(built / f"{STEM}.tar.gz") as sdist:
        names = {name.removeprefix(f"{STEM}/") for name in sdist.getnames()}
    assert stored() | {"pyproject.toml", "README.md"} <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/", ".venv"))]


def test_wheel_works_without_the_repository(built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built / f"{STEM}-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path / "installed")  # noqa: S202 -- our own
    output = json.loads(run([sys.executable, "-I", "-c", USE, tmp_path / "installed"], tmp_path))
    assert all(place.startswith(str(tmp_path / "installed")) for place in output["places"])
    assert output["version"] == PROJECT["version"]
    assert 50 < output["sampled"] < 150
    assert output["script"] == ["qbeast", "qbeast_core.cli"]


NEEDS = {
    "plot": ("qbeast.open_table('table').plot('tree')", "matplotlib"),
    "cli": ("from qbeast_core.cli.program import program", "click"),
    "glue": ("import qbeast_core.io.catalog.glue", "boto3"),
    "spark": ("import qbeast_spark_bridge as bridge; bridge.register", "pyspark"),
}
"""What an extra is for, and the package that its absence is told by."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("extra", ["", "cli", "glue", "plot", "spark", "sdist"])
def test_wheel_installs_in_clean_environment(extra: str, built: Path, tmp_path: Path) -> None:
    """By pip, from the index, with the versions that are tested: each extra brings what it is for, and no more."""
    place = tmp_path / "env"
    venv.create(place, with_pip=True)
    python, script = place / "bin" / "python", place / "bin" / "qbeast"
    file = built / (f"{STEM}.tar.gz" if extra == "sdist" else f"{STEM}-py3-none-any.whl")
    expected = f"{file}[{extra}]" if extra in NEEDS else str(file)
    pins = ["-c", ROOT / "constraints.txt", "--build-constraint", ROOT / "constraints.txt"]
    run([python, "-m", "pip", "install", "--quiet", "--upgrade", "-c", ROOT / "constraints.txt", "pip"])
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins, expected])
    run([python, "-m", "pip", "check"])
    output = json.loads(run([python, "-I", "-c", USE, place / "nowhere"], tmp_path))
    assert all(str(place) in item for item in output["places"])
    for name, (code, package) in NEEDS.items():
        request = tried([python, "-I", "-c", f"import qbeast; {code}"], tmp_path)
        assert (request.returncode == 0) is (name == extra), request.stderr
        assert name == extra or package in request.stderr
    shown = tried([script, "show", "table"], tmp_path)
    assert shown.returncode == (0 if extra == "cli" else 11)
    assert ("1,000" in shown.stdout) if extra == "cli" else ("pip install" in shown.stderr)
