"""The parsers of the heads of requests, h11 and httptools, as far as they differ; the rest is in `heads`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11

from trio_mcp.http.framing import Fields, FramingError

__all__ = ["ParseFields", "httptools_parser", "parse_with_h11"]

ParseFields = Callable[[bytes], Fields]
"""Returns the fields of a whole head, which begins with a valid request line and ends with an empty line.

Names are in lower case. Raises `FramingError` for what is not allowed."""


def parse_with_h11(head: bytes) -> Fields:
    """Parse the fields of a head with h11; see `ParseFields`."""
    # A new object for each head: what a connection object keeps track of is the body, and `Chunks` reads that.
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=len(head))
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        # h11 suggests 501 for every transfer coding but chunked. RFC 9112, section 6.3, demands 400 if chunked is not
        # the last one, as the end of the body is unknown then.
        status = error.error_status_hint
        raise FramingError(400 if status == 501 else status, str(error)) from None
    # Nothing else can come first, and the head is whole.
    assert isinstance(request, h11.Request)
    return list(request.headers)


class _Fields:
    """The callbacks of httptools, which collect the fields that it has parsed."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: Fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # llhttp leaves white space at the end; h11 does not (RFC 9110, section 5.5: it is not a part of the value).
        self.found.append((name.lower(), value.rstrip(b" \t")))


def httptools_parser() -> ParseFields:
    """Return the parser on httptools.

    Raises:
        RuntimeError: If httptools is not installed.
    """
    # It is imported here, as it is an extra that the other runners don't need.
    try:
        import httptools
    except ImportError:
        raise RuntimeError("runner='httptools' needs httptools: pip install 'trio-mcp[fast]'") from None
    parser: Any = httptools.HttpRequestParser

    def parse_with_httptools(head: bytes) -> Fields:
        fields = _Fields()
        # llhttp knows a fixed list of methods, and judges targets differently. The request line has been checked.
        try:
            parser(fields).feed_data(b"POST / HTTP/1.1" + head[head.index(b"\r\n") :])
        except httptools.HttpParserUpgrade:
            pass  # all of the head has been read; whether to change the protocol is the application's choice
        except httptools.HttpParserError as error:
            raise FramingError(400, str(error)) from None
        return fields.found

    return parse_with_httptools
