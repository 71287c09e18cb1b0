"""The Python of our pages.

Blocks fenced as ```python are run in order; those as ```python elsewhere speak of places that tests have to make;
others (```python notest, ```sh) are only read.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DATA = "/data"
"""Where pages keep files that Spark reads; tests put a folder of their own in its place."""

_FENCED = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ELSEWHERE = re.compile(r"^```python elsewhere\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *, data: Path | str = DATA) -> list[CodeType]:
    """Compile the blocks of a page; a traceback shows the page's own lines."""
    text = page.read_text()
    return [
        compile("\n" * text.count("\n", 0, at.start(1)) + at[1].replace(DATA, str(data)), str(page), "exec")
        for at in _FENCED.finditer(text)
    ]


def blocks_without_spark(page: Path) -> list[CodeType]:
    """Return the blocks that come before the first that speaks of a session `spark`."""
    found = blocks(page)
    return found[: next((number for number, block in enumerate(found) if _asks_spark(block)), len(found))]


def blocks_elsewhere(page: Path, place: str, real: Path | str) -> list[CodeType]:
    """Compile the blocks that speak of a place, with a real one instead."""
    found = [block for block in _ELSEWHERE.findall(page.read_text()) if place in block]
    return [compile(block.replace(place, str(real)), str(page), "exec") for block in found]


def _asks_spark(block: CodeType) -> bool:
    return "spark" in block.co_names
