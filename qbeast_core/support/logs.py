"""The logger ``qbeast``: reads, plans, writes, commits and retries; silent without a handler.

Examples
--------
>>> import logging
>>> logging.getLogger("qbeast").setLevel(logging.INFO)  # changes and retries; DEBUG: reads and plans too
"""

from __future__ import annotations

import logging
from typing import Final

from qbeast_core.support.plain_text import for_people

# Each message is one line, without passwords of addresses and terminal codes.
LOG: Final = logging.getLogger("qbeast")


def _clean(record: logging.LogRecord) -> bool:
    record.msg, record.args = for_people(record.getMessage()), None
    return True


LOG.addHandler(logging.NullHandler())
LOG.addFilter(_clean)
