"""How `make docs` builds the site: Markdown pages, and the API from the docstrings."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version as version_of
from itertools import count

from sphinx.application import Sphinx

project = "qbeast"
release = version_of("qbeast")
version = release
copyright = "the authors of qbeast"  # noqa: A001 -- Sphinx calls it so

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "images", "static"]
nitpicky = False  # docstrings name types of Polars and Python, whose inventories a build without a network cannot ask
show_warning_types = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Docstrings put code between single backticks.
default_role = "literal"
autodoc_typehints = "none"  # numpydoc's sections say the types
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"qbeast {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_logo = "static/logo.svg"
html_favicon = "static/logo.svg"
html_sidebars = {"index": [], "recipes": []}
autosummary_generate = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 1,
    "navbar_center": ["navbar-nav"],  # a tab for each page in the list of index.md
    "logo": {"text": f"qbeast {release}"},
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    # The list of versions stands beside the folders of versions: see docs/build.py.
    "switcher": {"json_url": "../switcher.json", "version_match": release},
    "check_switcher": False,
    "navbar_end": ["version-switcher", "theme-switcher"],
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    """Print how many pages are read and written, every twenty: a quiet build prints faults alone."""
    app.connect("source-read", _counting("read"))
    app.connect("html-page-context", _counting("written"))


def _counting(done: str) -> Callable[..., None]:
    numbers = count(1)

    def count_page(*_: object) -> None:
        if (number := next(numbers)) % 20 == 0:
            print(f"      {number} pages {done}", flush=True)

    return count_page
