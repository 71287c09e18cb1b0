"""The program as a process: fast to start, quiet in pipes, polite when it is stopped."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.helpers.snippets import ROOT

HEAVY = {"deltalake", "matplotlib", "numpy", "orjson", "polars", "pyarrow", "pydantic", "qbeast", "rich"}
RUN = [sys.executable, "-W", "error", "-m", "qbeast_core.cli"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def loaded_by(code: str, **more: str) -> set[str]:
    """Return the packages that a fresh interpreter has loaded at its end; they come last on stdout."""
    text = f"import atexit, sys\natexit.register(lambda: print(*{{n.partition('.')[0] for n in sys.modules}}))\n{code}"
    actual = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**more),
    )
    return set(actual.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["show"],
        *(pytest.param(item, marks=pytest.mark.sweep) for item in (["write", "--help"], ["--version"])),
    ],
    ids=" ".join,
)
def test_help_and_usage_errors_load_no_library(arguments: list[str]) -> None:
    assert not HEAVY & loaded_by(f"from qbeast_core.cli import main; main({arguments})")


@pytest.mark.sweep
def test_completion_loads_no_library() -> None:
    arguments = {"COMP_WORDS": "qbeast sample --ov", "COMP_CWORD": "2", "_QBEAST_COMPLETE": "bash_complete"}
    assert not HEAVY & loaded_by("from qbeast_core.cli import main; main([])", **arguments)


@pytest.mark.sweep
@pytest.mark.parametrize("package", ["click", "rich"])
def test_missing_extra_names_the_install_command(package: str, sales: Path) -> None:
    call = f"from qbeast_core.cli import main; main(['history', {str(sales)!r}])"
    code = f"import sys; sys.modules[{package!r}] = None; {call}"
    actual = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert (actual.returncode, actual.stdout) == (11, "")
    assert re.fullmatch(rf"error: .*{package}.*pip install 'qbeast\[cli\]'\n", actual.stderr)


@pytest.mark.sweep
def test_module_and_script_are_the_same_program(sales: Path) -> None:
    script = Path(sys.executable).with_name("qbeast")
    arguments = ["show", str(sales), "--count"]
    for program in (RUN, [str(script)]):
        actual = subprocess.run(
            [*program, *arguments], capture_output=True, text=True, check=True, env=environment()
        )
        assert (actual.stdout, actual.stderr) == ("2,000 rows\n", "")


@pytest.mark.sweep
def test_pipes_get_no_colours_and_no_progress(sales: Path) -> None:
    actual = subprocess.run([*RUN, "check", str(sales)], capture_output=True, check=True, env=environment())
    assert actual.stderr == b""
    assert b"\x1b" not in actual.stdout
    assert b"OK: no faults" in actual.stdout


@pytest.mark.sweep
def test_terminal_progress_goes_to_stderr(sales: Path) -> None:
    master, slave = pty.openpty()
    actual = subprocess.run(
        [*RUN, "check", str(sales), "--json"],
        stdout=subprocess.PIPE,
        stderr=slave,
        check=True,
        env=environment(TERM="xterm"),
    )
    os.close(slave)
    assert json.loads(actual.stdout)["ok"]
    assert b"checking" in os.read(master, 1 << 16)
    os.close(master)


@pytest.mark.sweep
def test_closed_pipe_is_not_an_error(sales: Path) -> None:
    arguments = ["sample", str(sales), "1", "-o", "-", "--format", "csv"]
    with subprocess.Popen(
        [*RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before anything has been written
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.sweep
def test_ctrl_c_stops_a_waiting_program(tmp_path: Path) -> None:
    arguments = ["write", "-", str(tmp_path / "t"), "-c", "a", "--format", "csv"]
    read_end, write_end = os.pipe()  # nobody ever writes
    with subprocess.Popen(
        [*RUN, *arguments], stdin=read_end, stderr=subprocess.PIPE, env=environment()
    ) as process:
        try:
            wait_until_reading(process.pid)
            process.send_signal(signal.SIGINT)
            _, written = process.communicate(timeout=60)
        finally:
            process.kill()  # leaving the block waits for it
    os.close(read_end)
    os.close(write_end)
    assert process.returncode == 130
    complaint = written.decode()
    assert complaint.startswith("error: interrupted")
    assert complaint.count("\n") == 1
    assert not (tmp_path / "t").exists()


def wait_until_reading(pid: int) -> None:
    """Wait until a process reads its standard input (Linux on x86-64 tells, others are given some time)."""
    deadline = time.monotonic() + 60
    with suppress(OSError):
        while time.monotonic() < deadline:
            if Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"]:
                return
            time.sleep(0.05)
    time.sleep(5)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_script(shell: str) -> None:
    assert f"_QBEAST_COMPLETE={shell}_complete" in run("completion", shell).stdout


@pytest.mark.sweep
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        subprocess.run(
            [*RUN, "completion", "bash"], capture_output=True, text=True, check=True, env=environment()
        ).stdout
    )
    where = Path(sys.executable).parent
    typed = (
        f'PATH="{where}:$PATH"; source {script}; COMP_WORDS=(qbeast sample --ov); COMP_CWORD=2; '
        '_qbeast_completion qbeast; echo "${COMPREPLY[@]}"; COMP_WORDS=(qbeast op); COMP_CWORD=1; COMPREPLY=(); '
        '_qbeast_completion qbeast; echo "${COMPREPLY[@]}"'
    )
    actual = subprocess.run(
        ["bash", "-c", typed], capture_output=True, text=True, check=True, env=environment()
    )
    assert actual.stdout.split() == ["--overwrite", "optimize"]
