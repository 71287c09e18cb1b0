"""The built site in a browser: nothing is cut or scrolls to the side at four widths, light and dark."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.snippets import ROOT

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (390, 500, 768, 1440)

pytestmark = [pytest.mark.sweep, pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")]

CHECK = """<!doctype html><body><pre id="found"></pre><script>
const wide = (element) => element.scrollWidth > element.clientWidth + 1;
async function look(page, width, theme) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px`;
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; frame.src = page; });
  const root = frame.contentDocument.documentElement;
  root.dataset.theme = theme;
  await Promise.all([...root.querySelectorAll("img")].map((image) => image.decode().catch(() => {})));
  const faults = [];
  if (wide(root)) faults.push("scrolls to the side");
  for (const code of root.querySelectorAll(".bd-article pre"))
    if (wide(code)) faults.push("cuts " + code.textContent.slice(0, 60));
  for (const table of root.querySelectorAll(".bd-article table.table"))
    if (width >= 500 && wide(table)) faults.push("scrolls a table: " + table.textContent.trim().slice(0, 60));
  for (const image of root.querySelectorAll(".bd-article img")) {
    if (!image.naturalWidth) faults.push("lacks " + image.src);
    if (!image.alt) faults.push("has a picture without a text: " + image.src);
  }
  frame.remove();
  return faults.map((fault) => `${page} at ${width}, ${theme}: ${fault}`);
}
(async () => {
  const found = [];
  for (const page of PAGES) for (const width of WIDTHS) for (const theme of THEMES)
    found.push(...await look(page, width, theme));
  document.getElementById("found").textContent = JSON.stringify(found);
  document.title = "done";
})();
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, ROOT / "docs" / "build.py", folder], check=True, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def handle(self) -> None:
        """Serve a connection, which a frame that is removed closes early."""
        with contextlib.suppress(ConnectionError):
            super().handle()


def browse(*arguments: str) -> str:
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def test_nothing_is_cut_at_any_width(site: Path, address: str) -> None:
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    values = {"PAGES": [page for page in pages if page != "check.html"], "WIDTHS": WIDTHS}
    values["THEMES"] = ("light", "dark")
    text = CHECK
    for name, value in values.items():
        text = re.sub(rf"\b{name}\b", json.dumps(value).replace("\\", ""), text)
    (site / "check.html").write_text(text)
    dom = browse("--virtual-time-budget=2000000", "--dump-dom", f"{address}/check.html")
    assert "<title>done</title>" in dom
    found = json.loads(unescape(re.findall(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[0]))
    assert not found, "\n".join(found)


def test_search_finds_texts_of_errors(site: Path) -> None:
    index = (site / version("qbeast") / "searchindex.js").read_text()
    for word in ("commitconflicterror", "allow_short_retent", "deletionvector"):
        assert word in index
