"""Build the site: a folder for this version, a list of the versions that are there, a page that leads to the newest.

python docs/build.py [folder]

It prints its steps, and how many pages there are.

The switcher in the corner of each page reads that list, so it offers what stands in the folder and nothing else.
Put the folders of earlier versions beside this one before building, and they are in it.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from importlib.metadata import version
from pathlib import Path

from packaging.version import InvalidVersion, Version  # Sphinx asks for it
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parent.parent
STRICT = ("--fail-on-warning", "--keep-going", "--quiet", "--doctree-dir", str(ROOT / "build" / "doctrees"))


def main() -> None:
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    folder = site / version("qbeast")
    print_step(1, "make pages of the notebooks")
    runpy.run_path(str(ROOT / "docs" / "notebooks.py"))["write_pages"]()
    pages = len(list((ROOT / "docs").rglob("*.md")))
    print_step(
        2,
        f"build {pages} pages with Sphinx; it reads those that changed, and writes them and what links to them",
    )
    failed = build_main([*STRICT, str(ROOT / "docs"), str(folder)])
    if failed:
        sys.exit(failed)
    print_step(3, "list the versions")
    list_versions(site, os.environ.get("DOCS_URL", "/"))
    print(f"{len(list(folder.rglob('*.html')))} pages in {site}: open {folder / 'index.html'}")


def print_step(step: int, text: str) -> None:
    """Print a step. Sphinx prints warnings and errors alone."""
    print(f"[{step}/3] {text}", flush=True)


def list_versions(site: Path, address: str) -> None:
    """Write `switcher.json` and `index.html` of a site whose folder will stand at an address, which ends in a slash."""
    actual = sorted((item for item in map(version_of, site.iterdir()) if item is not None), reverse=True)
    names = [
        {"version": str(item), "url": f"{address}{item}/", "preferred": item == actual[0]} for item in actual
    ]
    (site / "switcher.json").write_text(json.dumps(names, indent=2) + "\n")
    newest = f"{actual[0]}/index.html"
    leads = f'<meta http-equiv="refresh" content="0; url={newest}"><a href="{newest}">qbeast {actual[0]}</a>'
    (site / "index.html").write_text(f"<!doctype html>{leads}\n")


def version_of(folder: Path) -> Version | None:
    try:
        return Version(folder.name) if (folder / "index.html").is_file() else None
    except InvalidVersion:
        return None


if __name__ == "__main__":
    main()
