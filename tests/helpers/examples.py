"""Number of Hypothesis examples: few in `make test`, many in `make sweep`."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples", "is_sweep"]


def is_sweep() -> bool:
    """Return whether ``--sweep`` is set, which loads the profile ``sweep``."""
    return settings.get_current_profile_name() == "sweep"


def examples(usual: int, *, sweep: int, parent: settings | None = None) -> settings:
    """Return settings with the number of examples for this run.

    The first example of Hypothesis is the simplest one, so a probe of one real example is ``examples(2, ...)``.
    """
    return settings(parent, max_examples=sweep if is_sweep() else usual)
