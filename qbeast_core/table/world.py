"""The clock and the ids of this machine."""

from __future__ import annotations

import time
import uuid
from typing import Final

from qbeast_core.table.data_files import World

__all__ = ["WORLD"]

WORLD: Final = World(now_ms=lambda: time.time_ns() // 1_000_000, new_id=lambda: str(uuid.uuid4()))
"""Milliseconds since 1970 UTC, and random UUIDs."""
