"""Paths as Spark's Delta writes them; tests/golden/paths/spark.json has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from unicodedata import category

FOLDER: Final = Path(__file__).parent / "paths"
# Written by Spark's Delta: a value of `p` and its folder; the name of a file and its path.
PAIRS: Final = json.loads((FOLDER / "spark.json").read_text())
VALUES: Final = dict(PAIRS["values"])
# A path with U+FFFD may be a damaged one, so it is not followed.
NAMES: Final = {name: text for name, text in PAIRS["names"] if "\ufffd" not in name}
# delta-rs lists no folder that has a control character in a name.
LISTED: Final = [name for name in NAMES if not any(category(character) == "Cc" for character in name)]
