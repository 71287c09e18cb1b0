"""Number of Hypothesis examples: a few by default, many with ``--slow``."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples", "is_slow"]


def is_slow() -> bool:
    """Return whether ``--slow`` is set, which loads the profile ``slow``."""
    return settings.get_current_profile_name() == "slow"


def examples(usual: int, *, slow: int, parent: settings | None = None) -> settings:
    """Return settings with the number of examples for this run."""
    return settings(parent, max_examples=slow if is_slow() else usual)
