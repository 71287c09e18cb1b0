"""How long Hypothesis tries: one test for both, a few examples with every change and a sweep with ``--slow``."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["examples", "is_slow"]


def is_slow() -> bool:
    """Whether this is the run of the slow sweeps: profile ``slow``, which ``--slow`` loads."""
    return settings.get_current_profile_name() == "slow"


def examples(usual: int, *, slow: int, parent: settings | None = None) -> settings:
    """Return settings for as many examples as the run has time for."""
    return settings(parent, max_examples=slow if is_slow() else usual)
