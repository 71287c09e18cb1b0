"""What a read would open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbeast_core.cli.answer import Answer, Part
from qbeast_core.cli.bars import progress_bar
from qbeast_core.cli.filters import parse_where
from qbeast_core.cli.grid import grid, size_text
from qbeast_core.cli.jobs.opening import open_table, warnings_told

__all__ = ["explain_read"]


def explain_read(
    path: str,
    *,
    where: str | None,
    sample: float | tuple[float, float] | None,
    select: Sequence[str] | None,
    version: int | str | None,
    allow_absolute_paths: bool,
    list_files: bool,
    storage_options: Mapping[str, str],
) -> Answer:
    """Plan a read without reading rows."""
    table = open_table(path, storage_options, version, allow_absolute_paths=allow_absolute_paths)
    with progress_bar("planning"), warnings_told():
        plan = table.explain(parse_where(where, table.schema), sample, select)
        files = plan.files
    facts = {
        "table": table.uri,
        "version": table.version,
        "where": where,
        "sample": sample,
        "columns": list(plan.columns),
        "files_opened": int(files["opened"].sum()),
        "files_total": files.height,
        "rows_opened": plan.rows_opened,
        "rows_total": plan.rows_total,
        "bytes_opened": plan.bytes_opened,
        "bytes_total": plan.bytes_total,
        "share": plan.share,
        "design_effect": plan.design_effect,
        "design_effect_scope": plan.design_effect_scope,
        "files": files.to_dicts(),
    }
    parts: list[Part] = [repr(plan)]
    if list_files:
        listed = [
            (
                one["path"],
                "yes" if one["opened"] else f"no: {one['reason']}",
                f"{one['pages_opened']} of {one['pages_total']}" if one["pages_total"] else "",
                size_text(one["bytes_opened"]),
            )
            for one in files.iter_rows(named=True)
        ]
        parts += ["", grid(("file", "opened", "pages", "bytes"), listed, right=("pages", "bytes"))]
    return Answer(parts=tuple(parts), data=facts)
