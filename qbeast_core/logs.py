"""The logger ``qbeast``: what is read, planned, written, committed and tried again; silent until somebody listens.

Examples
--------
>>> import logging
>>> logging.getLogger("qbeast").setLevel(logging.INFO)  # changes and retries; DEBUG: reads and plans too
"""

from __future__ import annotations

import logging
from typing import Final

from qbeast_core.plain_text import for_people

# Messages are put together only where somebody listens, are one line each, and show no passwords of addresses
# and no terminal codes.
LOG: Final = logging.getLogger("qbeast")


def _cleaned(record: logging.LogRecord) -> bool:
    record.msg, record.args = for_people(record.getMessage()), None
    return True


LOG.addHandler(logging.NullHandler())
LOG.addFilter(_cleaned)
