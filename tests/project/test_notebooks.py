"""The notebooks of examples/ run from top to bottom, and every cell shows what its stored output shows."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from pathlib import Path

import matplotlib.image
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SHOWN = {
    "tour": [
        "columns=[",
        "WriteResult",
        "Table flights",
        "Plan of flights",
        "ChangeResult",
        "Check of flights",
        "OK: no faults",
    ],
    "estimates": ["Estimate of flights", "error met", "enter a sample together"],
}


def test_notebooks_exist() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)


@pytest.mark.sweep
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_expected_output(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    stored, run = (nbformat.read(path, as_version=4) for _ in range(2))
    for cell in run.cells:
        cell.pop("outputs", None)
    client = NotebookClient(run, timeout=300, resources={"metadata": {"path": str(EXAMPLES.parent)}})
    asyncio.run(client.async_execute())  # an error of a cell is one here
    assert [kinds(cell) for cell in run.cells] == [kinds(cell) for cell in stored.cells], (
        "run: make notebooks"
    )
    report = text_of(run)
    assert not [words for words in SHOWN[path.stem] if words not in report]
    assert not [item for item in outputs(run) if item.get("name") == "stderr"]
    check_values([item.data for item in outputs(run) if item.output_type == "execute_result"])
    check_pictures([item.data["image/png"] for item in outputs(run) if "image/png" in item.get("data", {})])


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [item for cell in notebook.cells for item in cell.get("outputs", [])]


def kinds(cell: NotebookNode) -> list[list[str]]:
    """What each output of a cell is; `print` may come in pieces."""
    actual = [sorted(item.get("data", {item.output_type: ""})) for item in cell.get("outputs", [])]
    return [item for number, item in enumerate(actual) if number == 0 or item != actual[number - 1]]


def text_of(notebook: NotebookNode) -> str:
    parts = [
        part for item in outputs(notebook) for part in (item.get("text"), *item.get("data", {}).values())
    ]
    return re.sub(r"<[^>]+>", " ", " ".join(part for part in parts if part))


def check_values(values: list[NotebookNode]) -> None:
    """Tables, plans and results come as HTML, pictures as pictures without any magic: no bare `<Figure ...>`."""
    assert len(values) >= 4
    for value in values:
        assert {"text/html", "image/png"} & set(value), value
        if "text/html" in value:
            assert value["text/html"].count("<table") == value["text/html"].count("</table>") > 0


def check_pictures(pictures: list[str]) -> None:
    """Dark ink on opaque white: so a page may be light or dark."""
    assert pictures
    for data in pictures:
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png")
        np.testing.assert_array_equal(pixels[[0, 0, -1, -1], [0, -1, 0, -1]], 1.0)
        assert pixels.shape[2] == 3 or (pixels[..., 3] == 1.0).all()
        assert pixels[..., :3].min() < 0.35
