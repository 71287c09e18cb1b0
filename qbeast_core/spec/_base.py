"""The base of all values of the format: one pydantic configuration, one error for broken text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from qbeast_core.errors import InvalidMetadataError
from qbeast_core.support.plain_text import shortened

T = TypeVar("T")

# A JSON number, finite, of any size; `0` stays an int and `0.0` a float.
Number: TypeAlias = int | float

_HEAD: Final = 100
_MAX_PROBLEMS: Final = 5


# Build the validator at the first use: most processes use few of them.
DEFERRED: Final = ConfigDict(defer_build=True)


class SpecModel(BaseModel):
    """An immutable value: snake_case in Python, camelCase on disk.

    Unknown keys are kept and written back after the known ones, so that what a newer writer adds survives.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        defer_build=True,  # see `DEFERRED`
        extra="allow",
        allow_inf_nan=False,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Return what `repr` shows: of a long list how many values there are, the first and the last."""
        # The name that the JVM has for a class is the same for all values of one of ours.
        return ((name, shortened(value)) for name, value in super().__repr_args__() if name != "class_name")


class NamedModel(SpecModel):
    """A value with a ``className`` in the log: the JVM's package and the name of the class."""

    # Names that are read, if they differ from the rule. The first one is written.
    class_names: ClassVar[tuple[str, ...]] = ()
    class_name: str = ""

    def __init_subclass__(cls) -> None:
        """Make the class name a constant. Pydantic collects fields afterwards; unions need it as a discriminator."""
        literal: Any = Literal
        names = cls.class_names or (f"io.qbeast.core.transform.{cls.__name__}",)
        cls.__annotations__["class_name"] = literal[names]
        cls.class_name = names[0]


def invalid_metadata(what: str, text: str, problems: Iterable[str]) -> InvalidMetadataError:
    """Return the error for stored text that breaks the format: all problems and the head of the text."""
    all_problems = list(problems)
    listed = "; ".join(all_problems[:_MAX_PROBLEMS])
    more = f"; and {len(all_problems) - _MAX_PROBLEMS} more" if len(all_problems) > _MAX_PROBLEMS else ""
    head = text[:_HEAD] + ("..." if len(text) > _HEAD else "")
    return InvalidMetadataError(
        f"{what} does not follow the Qbeast format: {listed}{more}. It begins with {head!r}; "
        "if another program wrote it, a newer qbeast may be able to read it."
    )


def refuse_repeated_keys(text: str, *, what: str) -> None:
    """Raise `InvalidMetadataError` where JSON text names a key twice: readers differ on which one counts."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise invalid_metadata(what, text, ["a key is repeated"])
        return values

    json.loads(text, object_pairs_hook=once, parse_int=str)  # Python refuses to read very long integers


def read_text(read: Callable[[str], T], text: str, *, what: str) -> T:
    """Return ``read(text)``; what pydantic refuses becomes an `InvalidMetadataError` about `what`."""
    try:
        return read(text)
    except ValidationError as error:
        # Without input and context: the head of the text is quoted once, and values may be long.
        details = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [f"{'.'.join(map(str, detail['loc'])) or 'text'}: {detail['msg']}" for detail in details]
        raise invalid_metadata(what, text, problems) from error
