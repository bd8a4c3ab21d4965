"""Parses request heads with h11 or httptools; what both parsers have in common is in `incoming`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import h11

from trio_mcp.http.framing import Fields, FramingError

__all__ = ["ParseFields", "httptools_parser", "parse_with_h11"]

ParseFields = Callable[[bytes], Fields]
"""A function that returns the fields of a complete request head.

The head begins with a valid request line, and ends with an empty line. The names of the fields are returned in lower
case. The function raises `FramingError` if something in the head is not allowed.
"""


def parse_with_h11(head: bytes) -> Fields:
    """Parse the fields of a head with h11; see `ParseFields`."""
    # Each head gets a new connection object: h11's object would also track the body, but `RequestReader` does that.
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=len(head))
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        # h11 suggests 501 for every transfer coding but chunked. RFC 9112, section 6.3, requires 400 if chunked is not
        # the last one, because the end of the body is unknown then.
        status = error.error_status_hint
        raise FramingError(400 if status == 501 else status, str(error)) from None
    # The first event can only be a request, and the head is complete.
    assert isinstance(request, h11.Request)
    return list(request.headers)


class _Fields:
    """The callbacks for httptools, which collect the fields that it has parsed."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: Fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        # Unlike h11, llhttp keeps white space at the end, which is not part of the value (RFC 9110, section 5.5).
        self.found.append((name.lower(), value.rstrip(b" \t")))


def httptools_parser() -> ParseFields:
    """Return a parser that uses httptools.

    Raises:
        RuntimeError: If httptools is not installed.
    """
    # httptools is imported here, because it is an optional dependency that the other runners don't need.
    try:
        import httptools
    except ImportError:
        raise RuntimeError("runner='httptools' needs httptools: pip install 'trio-mcp[fast]'") from None
    parser: Any = httptools.HttpRequestParser

    def parse_with_httptools(head: bytes) -> Fields:
        fields = _Fields()
        # llhttp accepts only a fixed list of methods, and checks targets differently. So llhttp gets another request
        # line; the real one has already been checked.
        try:
            parser(fields).feed_data(b"POST / HTTP/1.1" + head[head.index(b"\r\n") :])
        except httptools.HttpParserUpgrade:
            pass  # the whole head has been parsed; the application decides whether to change the protocol
        except httptools.HttpParserError as error:
            raise FramingError(400, str(error)) from None
        return fields.found

    return parse_with_httptools
