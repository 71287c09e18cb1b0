"""`qbeast metrics`, `check`, `history` and `plot`."""

from __future__ import annotations

import click

from qbeast_core.cli.commands.parameters import (
    absolute_paths_option,
    columns_option,
    command,
    sample_option,
    table_argument,
    version_option,
    where_option,
)

metrics = command(
    "inspect.metrics",
    "Count cubes, blocks, files and rows of the index; no data file is opened.",
    table_argument,
    click.option("--revision", type=int, help="This revision alone; 0 is what is not indexed."),
    version_option,
    short_help="Count cubes, blocks, files and rows.",
)

check = command(
    "inspect.check",
    "Verify a table against the format; exits with 1 if there are faults.",
    table_argument,
    click.option("--log-only", is_flag=True, help="Look at the log alone, not into the data files: fast."),
    version_option,
    absolute_paths_option,
    short_help="Verify a table against the format.",
)

history = command(
    "inspect.history",
    "List what was committed, newest first.",
    table_argument,
    click.option(
        *("-n", "--limit"),
        type=click.IntRange(min=1),
        help="Commits at most; all that the log has by default.",
    ),
    version_option,
)

plot = command(
    "inspect.plot",
    "Draw the tree of cubes, the space with the boxes that a query opens, or the bytes that samples open.",
    table_argument,
    click.argument("kind", type=click.Choice(("tree", "space", "fraction")), default="tree"),
    click.option(
        *("-o", "--output"),
        type=click.Path(),
        help="File of the picture: .png, .svg or .pdf; KIND.png by default.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the file if there is one."),
    columns_option("Of the space: two indexed columns. Of the fraction: columns to return."),
    where_option,
    sample_option,
    click.option("--revision", type=int, help="Which tree or space; the newest in use by default."),
    version_option,
    short_help="Draw tree, space or cost of samples.",
)
