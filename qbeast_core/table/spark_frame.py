"""What a PySpark DataFrame looks like to those who may not import PySpark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["SparkFrame", "is_spark_frame"]


class SparkFrame(Protocol):
    """A ``pyspark.sql.DataFrame``, of a classic session or of Spark Connect."""

    @property
    def mapInArrow(self) -> Callable[..., Any]:  # noqa: N802 -- the name PySpark gives it
        """Rows made of these rows, batch by batch."""
        ...

    @property
    def sparkSession(self) -> Any:  # noqa: N802 -- the name PySpark gives it
        """The session that the rows belong to."""
        ...


def is_spark_frame(data: object) -> TypeIs[SparkFrame]:
    """Tell whether `data` is a PySpark DataFrame.

    Examples
    --------
    >>> is_spark_frame([1, 2])
    False
    """
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(data).__mro__
    )
