"""Checks a request head, in every runner, for what the runner's parser doesn't check."""

from __future__ import annotations

import re
from itertools import chain

from trio_mcp.http.framing import Fields, FramingError

__all__ = ["check_head"]

_URL = re.compile(rb"https?://(?P<host>[^/?#@]+)(?P<path>(?:[/?][^#]*)?)", re.IGNORECASE)


def check_head(version: bytes, target: bytes, fields: Fields, limit: int) -> tuple[bytes, Fields]:
    """Check a request's head, and return its target and fields. The host of an absolute target replaces the Host field.

    Args:
        version: The HTTP version, such as ``b"1.1"``.
        target: The request target.
        fields: The header fields.
        limit: The maximum number of bytes in the target, and also in the target together with all fields.

    Raises:
        FramingError: If the head is refused.
    """
    if not version.startswith(b"1."):
        raise FramingError(505, "only HTTP/1.0 and HTTP/1.1 are supported")
    # The size is checked again: a parser may check it only while a head is incomplete, so a head that arrived in one
    # piece would pass.
    if len(target) > limit:
        raise FramingError(414, "the target is too long")
    if len(target) + sum(map(len, chain.from_iterable(fields))) > limit:
        raise FramingError(431, "the fields are too long")
    names = {name for name, _ in fields}
    if b"transfer-encoding" in names and (b"content-length" in names or version < b"1.1"):
        # RFC 9112, sections 6.1 and 6.3: a proxy in front may have seen the end of this request elsewhere, and treat
        # the rest as another request (request smuggling).
        raise FramingError(400, "the end of the request is ambiguous")
    if b"://" in target and not target.startswith(b"/"):
        # RFC 9112, section 3.2.2: a server must accept an absolute URL, whose host replaces the Host field; the host
        # guard therefore checks the host of the URL. RFC 9110, sections 4.2.1 and 4.2.4: the URL must have a host, and
        # no user.
        match = _URL.fullmatch(target)
        if match is None:
            raise FramingError(400, "the target is malformed")
        target = match["path"] if match["path"].startswith(b"/") else b"/" + match["path"]
        fields = [(b"host", match["host"]), *((name, value) for name, value in fields if name != b"host")]
    return target, fields
