"""Pictures show what the table holds and what a query opens, and say what is missing."""

from __future__ import annotations

import io
import sys
from typing import Any

import matplotlib.colors
import matplotlib.image
import matplotlib.style
import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

import qbeast
from qbeast_core.plan.bounds import reach
from qbeast_core.plan.predicate import parse_predicate
from qbeast_core.spec.revision import CDFStringQuantilesTransformation, linear_transformation
from qbeast_core.table.inspect.drawings import axis_ticks
from tests.format.collection import Golden, each
from tests.helpers.tables import small_files

ROWS = pl.DataFrame(
    {"a": range(3000), "b": [i * 37 % 1009 for i in range(3000)], "s": [f"k{i % 50}" for i in range(3000)]}
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> qbeast.Table:
    path = tmp_path_factory.mktemp("plot") / "t"
    with small_files(file_rows=300, page_rows=16):
        qbeast.write_table(ROWS, path, columns=["a:linear", "b", "s:hash"], cube_size=100)
    return qbeast.open_table(path)


def axes_of(figure: Figure) -> Axes:
    return figure.axes[0]


def drawn(figure: Figure) -> bytes:
    """Render; warnings are errors."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=40)
    return data.getvalue()


def boxes_of(axes: Axes) -> list[int]:
    return [len(item.get_paths()) for item in axes.collections if isinstance(item, PolyCollection)]


def test_tree_has_boxes_by_cube_and_depth(table: qbeast.Table) -> None:
    figure = table.plot()
    axes = axes_of(figure)
    cubes = table.blocks().group_by("cube", "depth").agg(pl.col("element_count").sum())
    assert boxes_of(axes) == [cubes.height]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    for depth, label in enumerate(labels):
        ours = cubes.filter(depth=depth)
        assert label.startswith(f"depth {depth}\n{ours.height:,} cube")
        assert label.endswith(f"{ours['element_count'].sum():,} rows")
    assert len(labels) == cubes["depth"].max() + 1
    assert drawn(figure).startswith(b"\x89PNG")


def test_space_separates_opened_and_closed_cubes(table: qbeast.Table) -> None:
    predicate = pl.col("a") < 700
    figure = table.plot("space", columns=["a", "b"], where=predicate)
    axes = axes_of(figure)
    closed, opened = boxes_of(axes)
    assert closed + opened == table.blocks()["cube"].n_unique()
    assert 0 < opened < closed
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        f"opened: {opened:,} cube(s)",
        f"closed: {closed:,} cube(s)",
        "where matches can lie",
    ]
    (query,) = axes.patches
    assert query.get_bbox().x1 == pytest.approx(700 / 2999, abs=1e-3)
    assert f"{table.rows(predicate).explain().share:.1%} of the bytes" in axes.get_title()
    shades = axes.images[0].get_array()
    assert shades is not None
    assert (float(shades.min()), float(shades.max())) == (pytest.approx(0, abs=9), pytest.approx(100))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "750", "1500", "2249", "2999"]
    drawn(figure)


def test_without_a_query_everything_is_opened(table: qbeast.Table) -> None:
    axes = axes_of(table.plot("space", columns=["b", "s"]))
    closed, opened = boxes_of(axes)
    assert (closed, opened) == (0, table.blocks()["cube"].n_unique())
    assert axes.get_ylabel() == "s, hashed"
    assert not axes.patches


def test_sample_opens_the_upper_cubes_alone(table: qbeast.Table) -> None:
    axes = axes_of(table.plot("space", sample=0.02))
    closed, opened = boxes_of(axes)
    assert 0 < opened < closed
    assert "a sample of 0.02" in axes.get_title()


def test_price_of_samples_equals_their_plans(table: qbeast.Table) -> None:
    figure = table.plot("fraction", fractions=[1.0, 0.1, 0.5])
    target, line = axes_of(figure).lines[:2]
    assert target.get_xdata().tolist() == [10.0, 50.0, 100.0]
    assert line.get_ydata().tolist() == [100 * table.rows(sample=f).explain().share for f in (0.1, 0.5, 1.0)]
    assert "3,000 rows" in axes_of(figure).get_title()
    drawn(figure)
    drawn(table.plot("fraction", where=pl.col("a") == 7, columns=["s"]))


@pytest.mark.parametrize("kind", ["tree", "space", "fraction"])
def test_notebook_picture_has_white_paper_and_dark_ink(kind: Any, table: qbeast.Table) -> None:
    with matplotlib.style.context("dark_background"):
        figure = table.plot(kind)
        data = figure._repr_png_()
    assert data.startswith(b"\x89PNG")
    picture = matplotlib.image.imread(io.BytesIO(data), format="png")[..., :3]
    edge = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    assert edge.min() == 1.0, "the paper is white and not transparent"
    written = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert len(written) > 3
    for text in written:
        assert max(matplotlib.colors.to_rgb(text.get_color())) < 0.3, text
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    assert isinstance(figure, Figure)


def test_plot_draws_on_given_axes(table: qbeast.Table) -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert table.plot(axes=left) is figure
    assert table.plot("fraction", axes=right) is figure
    drawn(figure)


SOME = (
    "legacy/v050_mixed_states",
    "qbeast-spark-0.7.1/dims7",
    "qbeast-spark-0.7.1/convert_parquet",
    "qbeast-spark-0.8/empty",
    "qbeast-spark-0.8/quant_string",
)


@each(bundled=SOME)
def test_golden_tables_can_be_drawn(golden: Golden) -> None:
    table = qbeast.open_table(golden.path)
    drawn(table.plot())
    if len(table.indexed_columns) > 1:
        name = table.indexed_columns[0]
        drawn(table.plot("space", where=pl.col(name).is_not_null(), sample=0.5))


def test_revision_without_cubes_has_a_message(table: qbeast.Table) -> None:
    assert axes_of(table.plot(revision=0)).texts[0].get_text() == "revision 0 has no cubes"
    assert axes_of(table.plot("space", revision=0)).texts[0].get_text() == "revision 0 has no blocks"
    drawn(table.plot(revision=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "forest"}, "`kind` must be one of tree, space, fraction, not 'forest'"),
        ({"kind": "space", "columns": ["a"]}, "give two indexed columns of a, b, s"),
        ({"kind": "space", "columns": ["a", "zz"]}, "give two indexed columns of a, b, s"),
        ({"revision": 9}, "`revision` must be one of the table's"),
        ({"kind": "fraction", "fractions": [0.0, 0.5]}, "`fractions` must be above 0"),
        ({"kind": "fraction", "fractions": []}, "`fractions` must be above 0"),
        ({"kind": "fraction", "fractions": [1.5]}, "sample"),
    ],
)
def test_invalid_plots_raise(table: qbeast.Table, options: dict[str, object], message: str) -> None:
    with pytest.raises(qbeast.InvalidInputError, match=message):
        table.plot(**options)


def test_missing_matplotlib_names_the_install_command(
    table: qbeast.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(qbeast.QbeastError, match="pip install matplotlib"):
        table.plot()


def test_ticks_are_at_their_values() -> None:
    days = linear_transformation("DateDataType", min_number=0, max_number=86_400_000 * 100, null_value=0)
    assert axis_ticks(days, "DateDataType", count=2) == [(0.0, "1970-01-01"), (1.0, "1970-04-11")]
    words = CDFStringQuantilesTransformation(quantiles=("a", "b\0", "c" * 40))
    assert axis_ticks(words, "", count=4) == [
        (0.0, "a"),
        (0.5, "b\N{REPLACEMENT CHARACTER}"),
        (1.0, "c" * 13 + "…"),
    ]
    tiny = linear_transformation("DoubleDataType", min_number=-1e-9, max_number=1e12, null_value=0)
    assert axis_ticks(tiny, "DoubleDataType", count=2) == [(0.0, "-1e-09"), (1.0, "1e+12")]
    ages = linear_transformation("TimestampDataType", min_number=-(10**17), max_number=10**17, null_value=0)
    assert axis_ticks(ages, "TimestampDataType", count=2)[0] == (0.0, "-1e+17 ms")


def test_filter_bounds_reach_their_matches() -> None:
    schema = pl.Schema({"x": pl.Int64, "y": pl.Int64})
    linear = linear_transformation("LongDataType", min_number=0, max_number=8, null_value=2)
    for expr, expected in (
        (pl.col("x") >= 4, (0.5, 1.0)),
        ((pl.col("x") >= 2) & (pl.col("x") <= 4) & (pl.col("y") == 3), (0.25, 0.5)),
        ((pl.col("x") == 2) | (pl.col("x") == 6), (0.25, 0.75)),
        ((pl.col("x") < 2) & (pl.col("x") > 6), (0.75, 0.25)),
        (pl.col("x").is_null(), (0.25, 0.25)),
        (pl.col("y") == 1, (0.0, 1.0)),
        (pl.lit(value=False), (1.0, 0.0)),
    ):
        assert reach(parse_predicate(expr, schema), "x", linear) == expected
