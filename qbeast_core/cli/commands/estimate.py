"""`qbeast estimate`."""

from __future__ import annotations

import click

from qbeast_core.cli.commands.parameters import (
    absolute_paths_option,
    as_mapping,
    command,
    memory_option,
    sample_option,
    table_argument,
    version_option,
    where_option,
)


def _as_numbers(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float] | None:
    given = as_mapping(ctx, parameter, texts)
    try:
        return None if given is None else {name: float(text) for name, text in given.items()}
    except ValueError as error:
        msg = "write it as NAME=NUMBER"
        raise click.BadParameter(msg, param=parameter) from error


def _as_list(_ctx: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> list[str] | None:
    return list(texts) or None


estimate = command(
    "estimate.estimate",
    """Answer aggregates to a promised error, from as small a sample as that takes.

    AGGREGATE is SQL such as "avg(dep_delay)" or "count(*) FILTER (WHERE distance > 1500)", perhaps with a name before
    it: "delay=avg(dep_delay)". One AGGREGATE may be a query: "SELECT carrier, avg(dep_delay) GROUP BY carrier".
    """,
    table_argument,
    click.argument("aggregates", metavar="AGGREGATE...", nargs=-1, required=True),
    click.option(
        "--by",
        metavar="SQL",
        multiple=True,
        callback=_as_list,
        help="Columns or expressions to group by, with commas between: \"date_trunc('month', ts), carrier\".",
    ),
    where_option,
    click.option(
        "--error",
        metavar="FRACTION",
        help="How far an answer may be off, as a fraction of it: 0.02 or 2%.",
    ),
    click.option(
        "--absolute",
        metavar="NAME=NUMBER",
        multiple=True,
        callback=_as_numbers,
        help="The same for one answer, in its own unit; may be repeated.",
    ),
    click.option(
        "--confidence",
        metavar="FRACTION",
        default="95%",
        show_default=True,
        help="How often an answer has to be that near.",
    ),
    sample_option,
    click.option(
        "--simultaneous", is_flag=True, help="All answers at once have to be that near, not each by itself."
    ),
    click.option(
        "--max-fraction",
        metavar="FRACTION",
        default="100%",
        help="Read no more of the keys, even if the error is not reached.",
    ),
    click.option("--max-bytes", type=int, metavar="BYTES", help="The same for bytes of data files."),
    click.option(
        "--min-group-rows",
        type=int,
        metavar="ROWS",
        default=0,
        help="Groups that seem to have fewer rows are listed, but not read on for.",
    ),
    memory_option,
    version_option,
    absolute_paths_option,
    short_help="Answer aggregates to a promised error.",
)
