"""Render the notebooks of examples/ as pages, with their stored outputs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "notebooks"


def write_pages() -> None:
    """Write a Markdown page for each notebook, and its pictures, to docs/notebooks/."""
    PAGES.mkdir(exist_ok=True)
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        parts = [
            part
            for number, cell in enumerate(notebook.cells)
            for part in _cell(cell, f"{path.stem}-{number}")
        ]
        (PAGES / f"{path.stem}.md").write_text("\n\n".join(parts) + "\n")


def _cell(cell: NotebookNode, name: str) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield cell.source.replace(".ipynb)", ".md)")
        return
    yield f"```python\n{cell.source}\n```"
    for number, output in enumerate(cell.get("outputs", ())):
        yield _output(output, f"{name}-{number}")


def _output(output: NotebookNode, name: str) -> str:
    """Return an output: a picture, a table, or text."""
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    if "image/png" in output.data:
        (PAGES / f"{name}.png").write_bytes(base64.b64decode(output.data["image/png"]))
        return f"![Output of the code above]({name}.png)"
    if "text/html" in output.data:
        return f'```{{raw}} html\n<div class="output">{output.data["text/html"]}</div>\n```'
    return f"```text\n{output.data['text/plain']}\n```"
