"""``progress=True`` draws a bar where somebody looks, and leaves nothing behind, whatever comes of the work."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

import qbeast

pytestmark = pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning")
ROWS = pl.DataFrame({"id": range(2000)})


class Terminal(io.StringIO):
    """What a terminal is to whoever writes to it."""

    def isatty(self) -> bool:
        return True


def operations(path: Path) -> dict[str, Callable[..., Any]]:
    return {
        "writing": lambda **options: qbeast.write_table(ROWS, path, mode="append", **options),
        "optimizing": lambda **options: qbeast.open_table(path).optimize(full=True, **options),
        "deleting": lambda **options: qbeast.open_table(path).delete("id = 3", **options),
        "updating": lambda **options: qbeast.open_table(path).update("id = 4", {"id": 5}, **options),
        "merging": lambda **options: qbeast.open_table(path).merge(ROWS[9:12], on="id", **options),
        "checking": lambda **options: qbeast.open_table(path).check(**options),
        "repairing": lambda **options: qbeast.open_table(path).repair(**options),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    qbeast.write_table(ROWS, tmp_path / "t", columns=["id"])
    return tmp_path / "t"


@pytest.mark.parametrize("doing", operations(Path()))
def test_bar_is_drawn_in_a_terminal(path: Path, doing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    operations(path)[doing](progress=True)
    assert f"{doing}: " in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")  # its line is erased
    before = len(screen.getvalue())
    operations(path)[doing](progress=False)
    assert len(screen.getvalue()) == before


def test_bar_disappears_when_the_work_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(qbeast.TableExistsError):
        qbeast.write_table(ROWS, path, columns=["id"], progress=True)
    assert "\x1b[?25h" in screen.getvalue()  # the cursor is back


def test_progress_is_not_drawn_without_terminal(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    qbeast.write_table(ROWS, path, mode="append", progress=True)
    assert capsys.readouterr() == ("", "")


def test_bar_is_drawn_in_a_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, value: Any) -> None:
            shown.append(value._repr_html_())

    def display(value: Any, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(value._repr_html_())
        return Handle()

    notebook, displays = ModuleType("IPython"), ModuleType("IPython.display")
    notebook.get_ipython = type("Shell", (), {"kernel": object()})
    displays.display = display
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    qbeast.write_table(ROWS, path, mode="append", progress=True)
    assert shown[0].endswith("writing</div>")
    assert "writing: done, 1 of 1 files" in shown[-1]
    assert "100.00%" in shown[-1]


def test_missing_library_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(qbeast.MissingDependencyError, match="rich"):
        qbeast.write_table(ROWS, path, mode="append", progress=True)
    assert qbeast.open_table(path).version == 0
