"""Every transformation is known wherever something depends on it; a new one fails with the list of what is missing."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import polars as pl
import pytest
from deltalake import write_deltalake

import qbeast
import qbeast_core
from qbeast_core.table.index.live_index import Index
from qbeast_core.table.index.revision import growth_of
from qbeast_core.table.snapshot.snapshot import load_snapshot
from tests.cli.running import run_json
from tests.helpers.tables import assert_same_rows
from tests.helpers.transformations import CLASSES, EXAMPLES, IN_MEMORY, Example, revision_of

PACKAGE = Path(inspect.getfile(qbeast_core)).parent

pytestmark = [
    pytest.mark.filterwarnings("ignore::qbeast.DesignEffectWarning"),
    pytest.mark.filterwarnings("ignore::qbeast.HiddenColumnWarning"),
]


def rows_of(example: Example) -> pl.DataFrame:
    values = pl.concat([example.values] * 8)
    return pl.DataFrame(
        {"row": range(len(values)), "x": values, "y": pl.int_range(len(values), eager=True) % 5}
    )


def written(example: Example, path: Path) -> pl.DataFrame:
    """Write a table whose columns ``x`` and ``y`` have this transformation and a hash."""
    rows = rows_of(example)
    if not example.is_space:
        write_deltalake(path, rows)
        qbeast.convert_table(path, ["x", "y"])
        return rows
    kind = "quantiles" if rows["x"].dtype == pl.String else "linear"
    qbeast.write_table(rows.clear(), path, columns=[f"x:{kind}", "y:hash"], cube_size=10)
    log = path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (configuration,) = (action["metaData"]["configuration"] for action in actions if "metaData" in action)
    stored = json.loads(configuration["qbeast.revision.1"])
    own = json.loads(revision_of(example).to_json())
    for key in ("columnTransformers", "transformations"):
        stored[key][0] = own[key][0]
    configuration["qbeast.revision.1"] = json.dumps(stored)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    for part in (rows[::2], rows[1::2]):
        assert not qbeast.write_table(part, path, mode="append").new_revision
    return rows


def _read(example: Example, path: Path, rows: pl.DataFrame) -> None:
    table, value = qbeast.open_table(path), example.values.drop_nulls().to_list()[:1]
    assert table.revisions[-1].transformations[0] == example.transformation
    x = pl.col("x")
    compared = [item for existing in value for item in (x == existing, x >= existing, x < existing)]
    for expected in (*compared, x == example.other, x.is_null(), x.is_not_null()):
        assert_same_rows(table.rows().lazy().filter(expected).collect(), rows.filter(expected), "row")
    drawn = table.read(sample=0.5)
    assert_same_rows(drawn, rows.filter(pl.col("row").is_in(drawn["row"].to_list())), "row")


def _checked(_: Example, path: Path, __: pl.DataFrame) -> None:
    report = qbeast.open_table(path).check()
    assert report.ok, report.faults


def _grown(_: Example, path: Path, __: pl.DataFrame) -> None:
    snapshot = load_snapshot(path)
    revision = snapshot.config.latest
    assert revision is not None
    growth = growth_of(snapshot.files, revision, cubes=Index(snapshot).tree(revision).cube_count)
    is_clamped = "Quantiles" in type(revision.transformations[0]).__name__
    assert growth.outside_rows == ({"x": 0.0} if is_clamped else {})


def _superseded(example: Example, path: Path, rows: pl.DataFrame) -> None:
    more = rows.with_columns(row=pl.col("row") + 1000, x=pl.lit(example.other, rows["x"].dtype))
    qbeast.write_table(more, path, mode="append")
    table = qbeast.open_table(path)
    assert_same_rows(table.read(), pl.concat([rows, more]), "row")
    table.optimize(into="newest")
    assert_same_rows(table.rows().lazy().filter(pl.col("x") == example.other).collect(), more, "row")
    assert table.check().ok


def _counted(_: Example, path: Path, rows: pl.DataFrame) -> None:
    assert sum(item.rows for item in qbeast.open_table(path).metrics().revisions) == rows.height
    assert sum(item["rows"] for item in run_json("metrics", path)["revisions"]) == rows.height


def _drawn(example: Example, path: Path, _: pl.DataFrame) -> None:
    table = qbeast.open_table(path)
    if not example.is_space:
        return
    figure = table.plot("space", where=pl.col("x").is_null())
    try:
        assert figure.axes[0].get_xlabel() == ("x, hashed" if example.is_hashed else "x")
        marks = [mark.get_text() for mark in figure.axes[0].get_xticklabels()]
        assert [marks[0], marks[-1]] == example.labels
    finally:
        plt.close(figure)


def _command_line(_: Example, path: Path, rows: pl.DataFrame) -> None:
    assert run_json("show", path)["indexed_columns"] == ["x", "y"]
    actual = run_json("explain", path, "--where", "x IS NULL")
    assert rows["x"].null_count() <= actual["rows_opened"] <= rows.height


def _unused(example: Example, path: Path, _: pl.DataFrame) -> None:
    x = pl.col("x")
    ranges, points = (
        qbeast.open_table(path).rows(item).explain() for item in (x > example.other, x == example.other)
    )
    assert not any("hash" in reason for reason in points.unused_conditions.values())
    actual = any("hash" in reason for reason in ranges.unused_conditions.values())
    assert actual == (example.is_hashed and bool(ranges.unused_conditions))


def _restored(_: Example, path: Path, rows: pl.DataFrame) -> None:
    copy = path.with_name("restored")
    shutil.copytree(path, copy)
    table, snapshot = qbeast.open_table(copy), load_snapshot(copy)
    revision = snapshot.config.latest
    assert revision is not None
    axes = Index(snapshot).axes(revision, 0)
    assert len(axes) == 2
    for axis in axes:
        assert (axis.lowest >= 0).all()
        assert (axis.lowest <= axis.highest).all()
        assert axis.highest.max() == 1
    table.optimize()
    assert_same_rows(table.read(), rows, "row")


def _respelled(example: Example, path: Path, rows: pl.DataFrame) -> None:
    copy = path.with_name("respelled")
    shutil.copytree(path, copy)
    table = qbeast.open_table(copy)
    if example.known_since == "0.8":
        with pytest.raises(qbeast.InvalidColumnsError, match="fails to load"):
            table.switch_dialect("qbeast-spark", jvm="0.7")
    table.switch_dialect("qbeast-spark", jvm=example.known_since)
    assert_same_rows(table.read(), rows, "row")


Stations = dict[str, Callable[[Example, Path, pl.DataFrame], None]]
READS: Stations = {
    "qbeast_core.table.read": _read,
    "qbeast_core.table.read.explain": _unused,
    "qbeast_core.table.check": _checked,
    "qbeast_core.table.index.revision": _grown,
    "qbeast_core.table.inspect.metrics": _counted,
    "qbeast_core.table.inspect.drawings": _drawn,
    "qbeast_core.cli": _command_line,
}
WRITES: Stations = {
    "qbeast_core.table.index.live_index": _restored,
    "qbeast_core.table.maintenance.metadata": _respelled,
    "qbeast_core.table.write": _superseded,
}
"""What each room makes of a table; the last one appends to it."""
ALL = [*IN_MEMORY, *READS, *WRITES]


def complaints(example: Example, path: Path, stations: Stations) -> list[str]:
    """Walk an example through stations, and name those that do not make of it what is expected."""
    actual: list[str] = []

    def stop(station: str, walk: Callable[[], object]) -> None:
        try:
            walk()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 -- every one is reported
            actual.append(f"{station}: {type(error).__name__}: {error}")

    for station, look in IN_MEMORY.items():
        stop(station, lambda look=look: look(example))
    rows = written(example, path)
    for station, try_out in stations.items():
        stop(station, lambda try_out=try_out: try_out(example, path, rows))
    return actual


@pytest.mark.parametrize("stations", [READS, WRITES], ids=["reads", "writes"])
@pytest.mark.parametrize("transformation", CLASSES, ids=lambda item: item.__name__)
def test_transformation_works_everywhere(transformation: type, stations: Stations, tmp_path: Path) -> None:
    known = "\n".join(ALL)
    example = EXAMPLES.get(transformation)
    assert example is not None, (
        f"{transformation.__name__} is new: give an example of it in tests/helpers/transformations.py, and see that it "
        f"is known to all of\n{known}"
    )
    assert not (missing := complaints(example, tmp_path / "t", stations)), "\n".join(missing)


IMPORTED = re.compile(r"^\s*from [\w.]+ import (\([^)]*\)|[^\n(]+)", re.MULTILINE)


def test_examples_cover_all_modules_using_transformations() -> None:
    names = {item.__name__ for item in CLASSES}
    names |= {"OneValueTransformation", "QuantilesTransformation", "TextTransformation"}
    telling = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        if names.intersection(re.findall(r"\w+", " ".join(IMPORTED.findall(path.read_text())))):
            telling.add(module)
    telling = {module for module in telling if not module.startswith("qbeast_core.spec.revision")}
    assert telling, "nothing was looked at"
    assert not telling - set(ALL), "give each of them a station"
