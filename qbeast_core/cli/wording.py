"""Messages of the library in the words of the command line."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["first_line", "one_line", "spoken"]

# Where an option of the library is a command here.
_PHRASES: Final = {
    'Pass mode="append", "overwrite" or "ignore"': "Use `qbeast append`, say --mode overwrite or --mode ignore",
    "Use Table.switch_dialect.": "Table.switch_dialect does that in Python.",
    "Table.files() lists them": "`qbeast explain --files` lists them",
    "give one of `revision`, `files`, `all_revisions` and `fold`": "give one of --revision, --file, --all-revisions "
    "and --fold",
}
_TEXT_OPTION: Final = re.compile(r"\b(mode|schema_mode|dialect|replicated|jvm)=\"([^\"]*)\"")
_FLAG_OPTION: Final = re.compile(
    r"\b(allow_absolute_paths|allow_short_retention|all_revisions|full|fold)=True\b"
)
_NUMBER_OPTION: Final = re.compile(r"\b(retention_hours|cube_size)=(?=[\d.])")
_COLUMNS_OPTION: Final = re.compile(r"(?<!new, )\bcolumns=\[([^\]]*)\]")  # not that of other calls in Python
_COPY: Final = re.compile(r"qbeast\.write_table\(pl\.scan_\w+\('([^']*)'\), new, columns=\[([^\]]*)\]\)")
_CONVERT: Final = re.compile(r"qbeast\.convert_table\('([^']*)', columns=\[([^\]]*)\]\)")


def one_line(text: str) -> str:
    r"""Return a text without line breaks.

    Examples
    --------
    >>> one_line("too many\n  rows ")
    'too many rows'
    """
    return " ".join(text.split())


def first_line(text: str) -> str:
    r"""Return the first line that says something: other libraries print their plans below it.

    Examples
    --------
    >>> first_line("no such column\n\nResolved plan until failure: ...")
    'no such column'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def spoken(message: str) -> str:
    """Return a message with Python's arguments spelled as options, in one line.

    Examples
    --------
    >>> spoken('Replace it with mode="overwrite".')
    'Replace it with --mode overwrite.'
    >>> spoken('Pass columns=["a", "b:quantiles"].')
    'Pass --columns a,b:quantiles.'
    >>> spoken("Copy it: qbeast.write_table(pl.scan_delta('old'), new, columns=['day', ...]).")
    'Copy it: `qbeast write old new --columns day,...`.'
    """
    text = one_line(message)
    for phrase, ours in _PHRASES.items():
        text = text.replace(phrase, ours)
    text = _COPY.sub(lambda found: f"`qbeast write {found[1]} new --columns {_listed(found[2])}`", text)
    text = _CONVERT.sub(lambda found: f"`qbeast convert {found[1]} --columns {_listed(found[2])}`", text)
    text = _COLUMNS_OPTION.sub(lambda found: f"--columns {_listed(found[1])}", text)
    text = _TEXT_OPTION.sub(lambda found: f"--{_dashed(found[1])} {found[2]}", text)
    text = _FLAG_OPTION.sub(lambda found: f"--{_dashed(found[1])}", text)
    return _NUMBER_OPTION.sub(lambda found: f"--{_dashed(found[1])} ", text)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _listed(text: str) -> str:
    return ",".join(part.strip().strip("\"'") for part in text.split(","))
