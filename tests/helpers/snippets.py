"""The Python code of documentation pages, and the output that they show.

Blocks fenced as ```python run in order. Blocks fenced as ```python elsewhere use places that tests create. Blocks
fenced with the name of an engine (```python ray) run where it is installed. Others (```python notest, ```sh) do not
run. A block that prints is followed by ```text output with what it prints; other blocks print nothing
(`tests/helpers/outputs.py` has the rules).
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tests.helpers.outputs import same_output

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "notebooks"),
]
"""All pages but those that a build makes of notebooks, which tests/project/test_notebooks.py runs."""
DATA = "/data"
"""Folder of files for Spark in pages; tests replace it by their own folder."""

_OUTPUT = r"\n+```text output(?: (?P<percent>\d+)%)?\n(?P<output>.*?)^```$"
"""What follows a block whose output is shown."""

_FENCED = r"^```python{}\n(?P<code>.*?)^```$(?:" + _OUTPUT + ")?"


_SHELL = r"^```sh\n(?P<code>.*?)^```$(?:" + _OUTPUT + ")?"


class ShellBlock(NamedTuple):
    """Commands of a shell, and their output if the page shows it."""

    text: str
    output: str
    tolerance: float


class Block(NamedTuple):
    """A block of code, and the output below it."""

    place: str
    text: str
    code: CodeType
    output: str
    tolerance: float

    def run(self, names: dict[str, Any]) -> None:
        """Run the code, and compare what it prints with the page."""
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            exec(self.code, names)  # noqa: S102 - our own text is what is tested
        printed = stream.getvalue().replace(f"{Path.cwd()}/", "")
        if not same_output(self.output, printed, self.tolerance):
            message = f"{self.place} shows\n{self.output}\nbut prints\n{printed}"
            raise AssertionError(message)


def blocks(page: Path, kind: str = "", place: str = DATA, real: Path | str = DATA) -> list[Block]:
    """Compile the blocks of a page with a real place; a traceback shows the page's own lines."""
    text = page.read_text()
    found = list(re.finditer(_FENCED.format(kind), text, re.MULTILINE | re.DOTALL))
    starts = [text.count("\n", 0, at.start("code")) for at in found]
    return [
        Block(
            f"{page.name}:{start}",
            at["code"],
            compile("\n" * start + at["code"].replace(place, str(real)), str(page), "exec"),
            (at["output"] or "").replace(place, str(real)),
            int(at["percent"] or 0) / 100,
        )
        for at, start in zip(found, starts, strict=True)
    ]


def blocks_of_engine(page: Path, engine: str) -> list[str]:
    """Return the text of the blocks that an engine runs, in order."""
    return re.findall(rf"^```python {engine}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def blocks_without_spark(page: Path) -> list[Block]:
    """Return the blocks before the first one that uses a session `spark`."""
    code = blocks(page)
    return code[: next((number for number, block in enumerate(code) if _uses_spark(block)), len(code))]


def blocks_elsewhere(page: Path, place: str, real: Path | str) -> list[Block]:
    """Compile the blocks that use a place, with a real place instead."""
    return [block for block in blocks(page, " elsewhere", place, real) if place in block.text]


def shell_blocks(page: Path) -> list[ShellBlock]:
    """Return the commands that a page runs in a shell, in order."""
    return [
        ShellBlock(at["code"], at["output"] or "", int(at["percent"] or 0) / 100)
        for at in re.finditer(_SHELL, page.read_text(), re.MULTILINE | re.DOTALL)
    ]


def _uses_spark(block: Block) -> bool:
    return "spark" in block.code.co_names
