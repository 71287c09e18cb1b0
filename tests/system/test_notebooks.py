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
        "Table /",
        "Plan of /",
        "ChangeResult",
        "Check of /",
        "sound: no fault",
    ],
    "estimates": ["Estimate of /", "the error asked for is kept", "enter a sample together"],
}


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """One that was run just now, and the one that is stored."""
    stored = nbformat.read(request.param, as_version=4)
    run = nbformat.read(request.param, as_version=4)
    for cell in run.cells:
        cell.pop("outputs", None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TMPDIR", str(tmp_path_factory.mktemp("notebook")))
        client = NotebookClient(run, timeout=300, resources={"metadata": {"path": str(EXAMPLES.parent)}})
        asyncio.run(client.async_execute())  # an error of a cell is one here
    return request.param.stem, run, stored


def outputs(cell: NotebookNode) -> list[NotebookNode]:
    return cell.get("outputs", [])


def kinds(cell: NotebookNode) -> list[list[str]]:
    """What each output of a cell is; `print` may come in pieces."""
    found = [sorted(one.get("data", {one.output_type: ""})) for one in outputs(cell)]
    return [one for number, one in enumerate(found) if number == 0 or one != found[number - 1]]


def text_of(notebook: NotebookNode) -> str:
    parts = [
        part
        for cell in notebook.cells
        for one in outputs(cell)
        for part in (one.get("text"), *one.get("data", {}).values())
    ]
    return re.sub(r"<[^>]+>", " ", " ".join(part for part in parts if part))


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)


def test_cells_show_what_is_stored(notebook) -> None:
    name, run, stored = notebook
    assert [kinds(cell) for cell in run.cells] == [kinds(cell) for cell in stored.cells], (
        "run: make notebooks"
    )
    told = text_of(run)
    assert not [words for words in SHOWN[name] if words not in told]
    assert not [one for cell in run.cells for one in outputs(cell) if one.get("name") == "stderr"]


def test_what_a_cell_ends_with_is_shown_for_people(notebook) -> None:
    """Tables, plans and results as HTML, pictures as pictures without any magic; no bare `<Figure ...>`."""
    _, run, _ = notebook
    values = [one.data for cell in run.cells for one in outputs(cell) if one.output_type == "execute_result"]
    assert len(values) >= 4
    for value in values:
        assert {"text/html", "image/png"} & set(value), value
        if "text/html" in value:
            assert value["text/html"].count("<table") == value["text/html"].count("</table>") > 0


def test_pictures_have_a_paper_of_their_own(notebook) -> None:
    """Dark ink on white, opaque: so a page may be light or dark."""
    _, run, _ = notebook
    drawn = [
        one.data["image/png"]
        for cell in run.cells
        for one in outputs(cell)
        if "image/png" in one.get("data", {})
    ]
    assert drawn
    for data in drawn:
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)), format="png")
        corners = pixels[[0, 0, -1, -1], [0, -1, 0, -1]]
        np.testing.assert_array_equal(corners, 1.0)
        if pixels.shape[2] == 4:
            assert (pixels[..., 3] == 1.0).all()
        assert pixels[..., :3].min() < 0.35  # ink
