"""The Python code of documentation pages.

Blocks fenced as ```python run in order. Blocks fenced as ```python elsewhere use places that tests create. Blocks
fenced with the name of an engine (```python ray) run where it is installed. Others (```python notest, ```sh) do not
run.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATA = "/data"
"""Folder of files for Spark in pages; tests replace it by their own folder."""

_FENCED = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"^```python elsewhere\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *, data: Path | str = DATA) -> list[CodeType]:
    """Compile the blocks of a page; a traceback shows the page's own lines."""
    text = page.read_text()
    return [
        compile("\n" * text.count("\n", 0, at.start(1)) + at[1].replace(DATA, str(data)), str(page), "exec")
        for at in _FENCED.finditer(text)
    ]


def blocks_of_engine(page: Path, engine: str) -> list[str]:
    """Return the text of the blocks that an engine runs, in order."""
    return re.findall(rf"^```python {engine}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def blocks_without_spark(page: Path) -> list[CodeType]:
    """Return the blocks before the first one that uses a session `spark`."""
    code = blocks(page)
    return code[: next((number for number, block in enumerate(code) if _uses_spark(block)), len(code))]


def blocks_elsewhere(page: Path, place: str, real: Path | str) -> list[CodeType]:
    """Compile the blocks that use a place, with a real place instead."""
    texts = [block for block in _ELSEWHERE.findall(page.read_text()) if place in block]
    return [compile(block.replace(place, str(real)), str(page), "exec") for block in texts]


def _uses_spark(block: CodeType) -> bool:
    return "spark" in block.co_names
