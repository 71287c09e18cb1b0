"""The code of our pages runs, links lead somewhere, and the format keeps the section numbers that docstrings cite."""

from __future__ import annotations

import contextlib
import doctest
import json
import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
import qbeast_spark_bridge
from benchmarks import drawn
from qbeast_core import errors
from qbeast_core.io import footer
from qbeast_core.spec.blocks import LAYOUT_VERSION
from qbeast_core.sql import parse
from qbeast_core.support.sizing import sizing
from qbeast_core.table.index import revision as column_choice
from qbeast_core.table.write import options
from qbeast_core.tree import grid
from tests.foreign.carbondata.collection import table_path
from tests.format.collection import find
from tests.helpers.outputs import same_output
from tests.helpers.snippets import PAGES, ROOT, blocks, blocks_elsewhere, blocks_without_spark, shell_blocks

DEAR = {
    *(
        "tutorial.md",
        "tutorial-retention.md",
        "tutorial-training.md",
        "choosing-columns.md",
        "sampling.md",
        "samples-in-any-engine.md",
        "other-engines.md",
        "how-it-works.md",
        "guide.md",
        "filters.md",
    ),
    *("larger-than-memory.md", "moving-from-carbondata.md", "keeping-a-table.md", "recipes.md"),
}


def pages(chosen: Callable[[Path], Any]) -> list[Any]:
    """Return the pages with something; those that cost too much run in sweeps."""
    return [
        pytest.param(page, id=page.name, marks=pytest.mark.sweep if page.name in DEAR else ())
        for page in PAGES
        if chosen(page)
    ]


API = ROOT / "docs" / "api"
DOCUMENTED = re.compile(r"^\.\. auto(?:function|class):: (\w+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)")
MODULE = re.compile(r"`([\w/]+\.py)(?::|`)")
SECTION = re.compile(r"^## (\d+)\. ", re.MULTILINE)


@pytest.mark.parametrize("page", pages(blocks_without_spark))  # what needs Spark runs in tests/spark
def test_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(table_path("tx230_basic_3segments"), "old_orders")  # of CarbonData
    names: dict[str, Any] = {}
    for block in blocks_without_spark(page):
        block.run(names)


SESSIONS = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)


def complaints(page: Path, folder: Path) -> str:
    """Run the sessions of a page in a folder, and return where the output differs."""
    code = "".join(SESSIONS.findall(page.read_text()))
    session = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), 0)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert session.examples
    with contextlib.chdir(folder):
        runner.run(session, out=output.append)
    return "".join(output)


@pytest.fixture(scope="module")
def complaints_of_readme(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its million rows cost more than a test may."""
    return complaints(ROOT / "README.md", tmp_path_factory.mktemp("readme"))


def test_readme_shows_the_real_output(complaints_of_readme: str) -> None:
    assert not complaints_of_readme


@pytest.mark.parametrize(
    "page", pages(lambda page: SESSIONS.search(page.read_text()) and page.name != "README.md")
)
def test_page_shows_the_real_output(page: Path, tmp_path: Path) -> None:
    assert not complaints(page, tmp_path)


def test_code_about_jvm_tables_runs() -> None:
    run_elsewhere("coming-from-qbeast-spark.md", "/data/sales", find("qbeast-spark-0.7.1/dims7").path)


@pytest.mark.sweep
def test_code_about_object_stores_runs(
    bucket: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_options.items():
        monkeypatch.setenv(name, value)
    rows = pl.DataFrame({"price": range(1000), "user": range(1000)})
    run_elsewhere("object-stores.md", "s3://bucket/", f"s3://{bucket}/", rows=rows)


def run_elsewhere(page: str, place: str, real: Path | str, **names: Any) -> None:
    actual = blocks_elsewhere(ROOT / "docs" / page, place, real)
    assert actual
    for block in actual:
        block.run(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_output_on_a_page_follows_code_that_runs(page: Path) -> None:
    """What a page shows as output is compared with what its code prints, in whichever test runs it."""
    compared = [block.output for kind in ("", " elsewhere") for block in blocks(page, kind) if block.output]
    if page.name == "cli.md":
        compared += [block.output for block in shell_blocks(page) if block.output]
    assert len(compared) == page.read_text().count("\n```text output")
    assert all(len(line) <= 100 for output in compared for line in output.splitlines())


def test_output_is_compared_within_its_tolerance() -> None:
    shown = "2026-01-05  1,000 rows, 5.3 % of f64\n──── in ... files"
    for rows, date, share, tolerance, same in [
        ("1,000", "2026-01-05", "5.3", 0.0, True),
        ("1,020", "2026-01-05", "5.4", 0.02, True),
        ("1,020", "2026-01-05", "5.3", 0.0, False),
        ("1,021", "2026-01-05", "5.3", 0.02, False),
        ("1,000", "2026-01-06", "5.3", 0.02, False),
        ("1,000", "2026-01-05", "5.5", 0.02, False),
    ]:
        printed = f"{date} {rows} rows, {share} % of f64\n── in 7 files\n"
        assert same_output(shown, printed, tolerance) == same


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if not link.startswith("http")]
    assert not [target for target in targets if not (page.parent / target).exists()]


@pytest.mark.parametrize(
    ("page", "public"), [("spark.md", qbeast_spark_bridge.__all__), ("*.md", qbeast.__all__)]
)
def test_reference_has_every_public_name(page: str, public: list[str]) -> None:
    report = {name for file in API.glob(page) for name in DOCUMENTED.findall(file.read_text())}
    assert (
        set(public) - report - set(vars(errors)) - {"__version__"} == set()
    )  # all errors stand on a page of their own


def test_reference_groups_every_member_of_table() -> None:
    page = (API / "table.md").read_text()
    members = {name for name in vars(qbeast.Table) if not name.startswith("_")}
    for pattern in (r"^   Table\.(\w+)$", r"^\.\. auto(?:method|property):: Table\.(\w+)$"):
        found = re.findall(pattern, page, re.MULTILINE)
        assert sorted(found) == sorted(members)


PICTURES = sorted((ROOT / "docs" / "images").iterdir())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_pictures_are_used_and_made_here(picture: Path) -> None:
    assert any(f"images/{picture.name}" in page.read_text() for page in [*PAGES, ROOT / "CONTRIBUTING.md"])
    makers = [
        ROOT / "docs" / "rooms.py",
        *(ROOT / "benchmarks").glob("*.py"),
        ROOT / "examples" / "pictures.py",
    ]
    assert any(f'"{picture.name}"' in maker.read_text() for maker in makers)


@pytest.mark.parametrize(
    "picture", [path for path in PICTURES if path.suffix == ".png"], ids=lambda path: path.name
)
def test_pictures_are_of_todays_layout(picture: Path) -> None:
    assert drawn.layout_of(picture) == str(LAYOUT_VERSION), "make pictures"


def test_package_diagram_is_up_to_date() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "rooms.py"))
    assert draw["PICTURE"].read_text() == draw["rooms_svg"](), "run: make pictures"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_included_code_is_up_to_date(page: Path) -> None:
    include = runpy.run_path(str(ROOT / "docs" / "included.py"))["with_code"]
    assert page.read_text() == include(page.read_text()), "run: make pictures"


def test_architecture_names_modules_that_exist() -> None:
    packages = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("qbeast*/**/*.py")]
    named = MODULE.findall((ROOT / "docs" / "architecture.md").read_text())
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in packages)}
    assert len(named) > 40
    assert not {name for name in missing if not (ROOT / name).exists()}


def test_architecture_lists_each_module_once() -> None:
    modules_of: Callable[[str], list[Path]] = runpy.run_path(str(ROOT / "docs" / "included.py"))["modules_of"]
    listed = modules_of((ROOT / "docs" / "architecture.md").read_text())
    packages = ("qbeast_carbondata", "qbeast_core", "qbeast_spark_bridge")
    modules = [
        path for name in packages for path in (ROOT / name).rglob("*.py") if path.name != "__init__.py"
    ]
    assert sorted(listed) == sorted(modules)


def test_switcher_lists_existing_versions(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "1.0.0", "_static"):
        (tmp_path / name).mkdir()
    for name in ("0.9.0", "0.10.0", "_static"):  # 1.0.0 was not built to its end
        (tmp_path / name / "index.html").touch()
    runpy.run_path(str(ROOT / "docs" / "build.py"))["list_versions"](tmp_path, "/qbeast/")
    report = json.loads((tmp_path / "switcher.json").read_text())
    assert [(item["version"], item["url"], item["preferred"]) for item in report] == [
        ("0.10.0", "/qbeast/0.10.0/", True),
        ("0.9.0", "/qbeast/0.9.0/", False),
    ]
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()


LIMITS = {
    "| {:,}": [
        (options, "_MAX_ROWS"),
        (options, "_MAX_CHARACTERS"),
        (sizing(), "max_value_bytes"),
        (parse, "MAX_CHARACTERS"),
    ],
    "1 to {};": [(column_choice, "MAX_COLUMNS")],
    "| {} levels": [(grid, "GRID_BITS"), (footer, "_MAX_DEPTH")],
    ", {} conditions": [(parse, "MAX_CONDITIONS")],
    " {} levels": [(parse, "MAX_LEVELS")],
}


def test_documented_limits_match_the_code() -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    report = {
        words.format(getattr(module, name)) for words, names in LIMITS.items() for module, name in names
    }
    assert not {words for words in report if words not in page}


OURS = re.compile(r"pip install [^`\n]*['\" ]qbeast(?![_\w-])")


def test_pages_use_only_available_indexes() -> None:
    """Nothing is released yet: `pip install qbeast` would find nothing, or a stranger's package."""
    texts = [*PAGES, ROOT / "CONTRIBUTING.md", *(ROOT / "examples").glob("*.ipynb")]
    assert OURS.search("pip install 'qbeast[cli]'")
    assert not [path.name for path in texts if OURS.search(path.read_text())]


def test_format_has_sections_1_to_14() -> None:
    text = (ROOT / "docs" / "format.md").read_text()
    assert [int(number) for number in SECTION.findall(text)] == list(range(1, 15))


# Rows of the table of what is missing: a line that raises, and what to write instead.
MISSING = re.findall(
    r"^\| [^|]+ \| `([^`]+)` \| (?:[^|`]*)`([^`]+)`",
    (ROOT / "docs" / "limits.md").read_text().split("## Missing")[1],
    re.MULTILINE,
)


@pytest.fixture
def of_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    rows = pl.DataFrame({"id": range(20), "price": [i % 2 / 2 for i in range(20)]}).with_columns(
        place=pl.struct(x=pl.col("id") * 3)
    )
    qbeast.write_table(rows, "t", columns=["id"])
    write_deltalake("catalog-managed", rows)
    log = next(Path("catalog-managed/_delta_log").glob("*.json"))
    features = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
    protocol = json.dumps({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    log.write_text(
        "\n".join(protocol if "protocol" in line else line for line in log.read_text().splitlines())
    )
    Path("exported").mkdir()
    rows.write_parquet("exported/a.parquet")
    return {
        "qbeast": qbeast,
        "pl": pl,
        "bridge": qbeast_spark_bridge,
        "spark": None,
        "rows": rows,
        "table": qbeast.open_table("t"),
    }


def test_every_missing_thing_has_a_line() -> None:
    table = (ROOT / "docs" / "limits.md").read_text().split("## Missing")[1]
    assert len(MISSING) == table.count("\n|") - 2 > 9


@pytest.mark.parametrize(("line", "instead"), MISSING)
def test_missing_thing_is_refused_and_its_replacement_runs(
    line: str, instead: str, of_limits: dict[str, Any]
) -> None:
    with pytest.raises((qbeast.QbeastError, AttributeError)) as caught:
        eval(line, of_limits)  # noqa: S307 - our own text is what is tested
    assert getattr(caught.value, "name", None) in {None, "clone", "merge", "vacuum"}  # others exist
    result = eval(instead, of_limits)  # noqa: S307 - the same
    assert result is not None
    if isinstance(result, pl.LazyFrame):
        assert result.collect().height == 20
    if qbeast.table_exists("copied"):
        assert qbeast.open_table("copied").count() == 20
