"""Paths that Spark's Delta wrote into logs, and a table of this library with paths in an older encoding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "paths"
_PAIRS: Final = json.loads((FOLDER / "spark.json").read_text())

# A value of the partition column `p`, and the folder in the path.
VALUES: Final[dict[str, str]] = dict(_PAIRS["values"])
# The name of a file, and its path. One with U+FFFD may be a damaged one, so it is not followed.
NAMES: Final[dict[str, str]] = {name: text for name, text in _PAIRS["names"] if "\ufffd" not in name}
