"""Why a store failed and what to do, from the error texts of its libraries."""

from __future__ import annotations

import re
from typing import Final

from qbeast_core.support.plain_text import for_people

_NO_BUCKET: Final = (
    "the bucket or container does not exist: check the address and the endpoint, or create the bucket"
)
_OTHER_REGION: Final = (
    "the bucket is in another region: set it in `storage_options` or the environment (AWS_REGION)"
)
_NO_CREDENTIALS: Final = "there are no usable credentials: give them in `storage_options` or the environment"
_PLAIN_HTTP: Final = (
    "the endpoint is http, which has to be allowed: AWS_ALLOW_HTTP='true' in `storage_options`"
)
_NO_STORE: Final = (
    "the store cannot be reached: check the endpoint in `storage_options` or the environment (AWS_ENDPOINT_URL, "
    "a whole address like https://host:port), and the network"
)
_REFUSED: Final = "the store refuses these credentials: check them and their permissions"
_BUSY: Final = "the store is overloaded or has a failure: try again later"
_LATE: Final = "the store did not respond in time: check the network, or try again later"
_REASONS: Final = (
    (r"NoSuchBucket|ContainerNotFound|specified (?:bucket|container) does not exist", _NO_BUCKET),
    (r"PermanentRedirect|AuthorizationHeaderMalformed|incorrectly configured region", _OTHER_REGION),
    (
        r"api/token|169\.254\.169\.254|credentials?\b",
        _NO_CREDENTIALS,
    ),  # the metadata service of a cloud machine
    (r"URL scheme is not allowed", _PLAIN_HTTP),
    (r"dns error|Connection refused|tcp connect|builder error|Executor has crashed", _NO_STORE),
    (r"denied|Unauthorized|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|AuthenticationFailed", _REFUSED),
    (r"InvalidToken|ExpiredToken|lacked the necessary privileges", _REFUSED),
    (r"SlowDown|TooManyRequests|status code\W+(?:429|50[0234])\b", _BUSY),
    (r"timed out|RequestTimeout", _LATE),
)
# Paths of a table, in which any word may stand.
_PATHS: Final = re.compile(r"(?<=for path )\S+|(?<=://)([^/\s]+)/(?!\S*api/token)\S*")


def reason_of_failure(text: str) -> str | None:
    """Return why a store failed, and what to do. None: the text is not known.

    >>> reason_of_failure("GET http://host/denied - 404 Not Found: <Error><Code>NoSuchBucket</Code>")[:40]
    'the bucket or container does not exist: '
    """
    words = _PATHS.sub(r"\1", for_people(text))
    return next((why for pattern, why in _REASONS if re.search(pattern, words, re.IGNORECASE)), None)
