"""The README's code runs, links lead somewhere, and the format keeps the section numbers that docstrings cite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)")
SECTION = re.compile(r"^## (\d+)\. ", re.MULTILINE)


def test_the_code_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = FENCED.findall((ROOT / "README.md").read_text())
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own text is what is tested


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if not link.startswith("http")]
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_the_format_has_sections_1_to_13() -> None:
    text = (ROOT / "docs" / "format.md").read_text()
    assert [int(number) for number in SECTION.findall(text)] == list(range(1, 14))
