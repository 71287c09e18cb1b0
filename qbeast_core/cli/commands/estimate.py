"""`qbeast estimate`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from qbeast_core.cli.answer import Answer, facts_of
from qbeast_core.cli.options import (
    absolute_paths_option,
    as_mapping,
    flag,
    memory_option,
    on_table,
    option,
    sample_by_option,
    sample_option,
    version_option,
    where_option,
)

if TYPE_CHECKING:
    import qbeast


def _as_numbers(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, float] | None:
    values = as_mapping(ctx, parameter, texts) or {}
    try:
        return {name: float(text) for name, text in values.items()} or None
    except ValueError as error:
        msg = "write it as NAME=NUMBER"
        raise click.BadParameter(msg, param=parameter) from error


def _as_joins(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[str, list[str], str]] | dict[str, str] | None:
    """Return joins from texts such as ``plans:user`` and ``s3://shop/returns:user,day:anti``, or ``plans=path``."""
    if any(map(_NAMED.fullmatch, texts)):
        return as_mapping(ctx, parameter, texts)
    joins: list[tuple[str, list[str], str]] = []
    for text in texts:
        match = _JOIN.fullmatch(text)
        if match is None:
            msg = f"{text!r} is not TABLE:COLUMNS or TABLE:COLUMNS:HOW"
            raise click.BadParameter(msg, param=parameter)
        joins.append((match["table"], match["columns"].split(","), match["how"] or "left"))
    return joins or None


# A path may have colons, and the names of columns here have none.
_JOIN: Final = re.compile(r"(?P<table>.+?):(?P<columns>[^:/]+?)(:(?P<how>left|inner|semi|anti))?")

# A name and an aggregate: no aggregate begins with a name and a sign of equality.
_NAMED: Final = re.compile(r"\s*([^\W\d]\w*)\s*=(.*)", re.DOTALL)


@on_table(
    "estimating",
    click.argument("aggregates", metavar="AGGREGATE...", nargs=-1, required=True),
    option(
        "--per",
        'Value of a key, an SQL aggregate with a name: "spend=sum(price)"; AGGREGATE then uses these values. May be '
        "repeated.",
        "SQL",
        multiple=True,
    ),
    option(
        "--by",
        "Columns or expressions to group by, separated by commas: \"date_trunc('month', ts), carrier\".",
        "SQL",
        multiple=True,
    ),
    where_option,
    option(
        "--join",
        "A table with the same sampling key, the columns of the key, and optionally inner, semi or anti: "
        "returns:user:anti. For a query with JOIN, the table of a name in it: users=data/users. May be repeated.",
        "TABLE:COLUMNS[:HOW]",
        multiple=True,
        callback=_as_joins,
    ),
    option("--error", "Maximum error of an answer, as a fraction of it: 0.02 or 2%.", "FRACTION"),
    option(
        "--absolute",
        "Maximum error of one answer, in its unit; may be repeated.",
        "NAME=NUMBER",
        multiple=True,
        callback=_as_numbers,
    ),
    option(
        "--confidence",
        "Probability that the error of an answer is not larger.",
        "FRACTION",
        default="95%",
        show_default=True,
    ),
    sample_option,
    sample_by_option,
    flag("--simultaneous", "Apply the confidence to all answers at once, not to each one."),
    option(
        "--max-fraction",
        "Read at most this fraction of the keys, even if the error is not reached.",
        "FRACTION",
        default="100%",
    ),
    option("--max-bytes", "Read at most this number of bytes of data files.", "BYTES", type=int),
    option(
        "--min-group-rows",
        "Groups that are estimated to have fewer rows need not reach the error.",
        "ROWS",
        type=int,
        default=0,
    ),
    memory_option,
    version_option,
    absolute_paths_option,
)
def estimate(
    table: qbeast.Table, *, aggregates: Sequence[str], per: Sequence[str], by: Sequence[str], **options: Any
) -> Answer:
    """Estimate aggregates with a maximum error.

    Reads the smallest sample that is sufficient. AGGREGATE is SQL such as "avg(dep_delay)" or "count(*) FILTER (WHERE
    distance > 1500)", optionally with a name: "delay=avg(dep_delay)". A single AGGREGATE can be a query: "SELECT
    carrier, avg(dep_delay) GROUP BY carrier ORDER BY 2 LIMIT 3", also with values per key: "SELECT median(spend) FROM
    (SELECT user, sum(price) AS spend FROM self GROUP BY user)".
    """
    from qbeast_core.cli.tables import frame_table, remark
    from qbeast_core.support.frames import shown_times
    from qbeast_core.table.estimate.result import readable

    values = _named(per) if per else None
    answer = table.estimate(_named(aggregates), per=values, by=list(by) or None, **options)
    names = ("met", "complete", "confidence", "fraction", "rows_read", "bytes_opened", "bytes_total")
    facts = {
        **facts_of(answer, *names, "design_effect", "notes", "certain_order"),
        "rows": shown_times(answer.frame).to_dicts(),
    }
    shown = frame_table(readable(answer.frame, answer.names, answer.exact), schema=answer.frame.schema)
    parts = (*shown, *map(remark, (answer.summary, *answer.notes)))
    return Answer(parts=parts, data=facts)


def _named(texts: Sequence[str]) -> list[str] | dict[str, str] | str:
    """Return aggregates by name where one is given before a sign of equality; else as they are, a query by itself."""
    from qbeast_core.errors import InvalidInputError

    matches = [_NAMED.fullmatch(text) for text in texts]
    if len(texts) == 1 and matches[0] is None:
        return texts[0]
    aggregates: dict[str, str] = {}
    for text, match in zip(texts, matches, strict=True):
        name, aggregate = (match[1], match[2]) if match else (text, text)
        if name in aggregates:
            msg = f"two aggregates are called {name!r}"
            raise InvalidInputError(msg, argument="aggregates")
        aggregates[name] = aggregate
    return aggregates if any(matches) else list(texts)
