"""Column specs, a user's texts ``name`` or ``name:kind`` for a column to index (format 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from qbeast_core.errors import InvalidColumnsError

ColumnKind: TypeAlias = Literal["auto", "linear", "hashing", "quantiles", "histogram"]

_COLUMN_KINDS: Final[tuple[ColumnKind, ...]] = get_args(ColumnKind)
_KINDS: Final[dict[str, ColumnKind]] = {
    **{kind: kind for kind in _COLUMN_KINDS},
    "hash": "hashing",
    "quantile": "quantiles",
}

# Kinds as the documentation writes them behind the colon of `name:kind`; older names work too.
KINDS: Final = ("linear", "quantiles", "hash")


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column to index and how; ``"auto"`` leaves the choice to the writer.

    >>> str(ColumnSpec("price", "quantiles")), str(ColumnSpec("price"))
    ('price:quantiles', 'price')
    """

    name: str
    kind: ColumnKind = "auto"

    def __str__(self) -> str:
        """Return the text that parses to this spec."""
        plain = self.kind == "auto" and parse_column_spec(self.name).name == self.name
        return self.name if plain else f"{self.name}:{self.kind}"


def parse_column_spec(text: str) -> ColumnSpec:
    """Return the column and the kind of a text.

    What follows the last colon is a kind only if it is a known one (``hash`` and ``quantile`` are accepted
    too); else the colon belongs to the name.

    >>> parse_column_spec("price:quantile")
    ColumnSpec(name='price', kind='quantiles')
    >>> parse_column_spec("ns:price")
    ColumnSpec(name='ns:price', kind='auto')
    """
    head, colon, tail = text.rpartition(":")
    has_kind = colon and tail in _KINDS
    name = head if has_kind else text
    if not name:
        message = f"a column to index has no name: {text!r}. Write 'name' or 'name:kind'."
        raise InvalidColumnsError(message, columns=[text])
    return ColumnSpec(name, _KINDS[tail] if has_kind else "auto")
