"""Column transformations: what the data turned a transformer into; values here, arithmetic in `space`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from qbeast_core.spec.transformation.empty import EmptyTransformation
from qbeast_core.spec.transformation.hashed import HashTransformation
from qbeast_core.spec.transformation.identity import IdentityTransformation, identity_transformation
from qbeast_core.spec.transformation.legacy import (
    IdentityToZeroTransformation,
    NullToZeroTransformation,
    StringHistogramTransformation,
)
from qbeast_core.spec.transformation.linear import LinearTransformation, linear_transformation, typed_number
from qbeast_core.spec.transformation.quantiles import (
    CDFNumericQuantilesTransformation,
    CDFStringQuantilesTransformation,
)

__all__ = [
    "CDFNumericQuantilesTransformation",
    "CDFStringQuantilesTransformation",
    "EmptyTransformation",
    "HashTransformation",
    "IdentityToZeroTransformation",
    "IdentityTransformation",
    "LinearTransformation",
    "NullToZeroTransformation",
    "StringHistogramTransformation",
    "Transformation",
    "identity_transformation",
    "linear_transformation",
    "typed_number",
]

Transformation: TypeAlias = Annotated[
    LinearTransformation
    | IdentityTransformation
    | HashTransformation
    | CDFNumericQuantilesTransformation
    | CDFStringQuantilesTransformation
    | EmptyTransformation
    | StringHistogramTransformation
    | IdentityToZeroTransformation
    | NullToZeroTransformation,
    Field(discriminator="class_name"),
]
"""Any stored transformation, told apart by its ``className``."""
