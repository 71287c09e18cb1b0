"""The demo prints the shares that the tutorial has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.snippets import ROOT

demo = pytest.importorskip("examples.demo")

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
SHARES = re.search(
    r"A sample of 1 % then opens ([\d.]+) % of the bytes,\s+the filter above ([\d.]+) %, and the filter on a sample of "
    r"10 % ([\d.]+) %",
    TUTORIAL,
)


def test_demo_indexes_the_columns_of_the_tutorial() -> None:
    assert SHARES
    assert f"columns={demo.INDEXED!r}".replace("'", '"') in TUTORIAL


@pytest.mark.sweep
def test_tutorial_has_the_shares_that_the_demo_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert SHARES
    demo.main()
    printed = capsys.readouterr().out
    for name, share in zip(("1 % sample", "filter", "filter on a 10 % sample"), SHARES.groups(), strict=True):
        (line,) = re.findall(rf"^  {name}  .* opened .*\(([\d.]+)%\)$", printed, re.MULTILINE)
        assert float(line) == pytest.approx(float(share), rel=0.05), name
    assert {path.name for path in Path("demo-output").glob("*.png")} == {"demo.png", "space.png"}
