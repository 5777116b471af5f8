"""The data in a page: compact JSON, as base64 of gzip."""

import base64
import gzip
import json
from typing import Any


def compact_json(document: dict[str, Any] | list[Any]) -> bytes:
    """Return a document as JSON without spaces."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def gzip_text(content: bytes) -> str:
    """Return content as base64 of gzip."""
    # mtime=0: the same report gives the same bytes
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()
