"""Decodes and encodes messages. Malformed input becomes a `Malformed` value: nothing from a peer causes an exception.

Envelopes are checked by hand and not by a model, because every message passes through here. The checks use ``type(x) is
int``, because a bool must not pass as an integer.
"""

from __future__ import annotations

import io
import string
from collections.abc import Iterator
from math import isfinite
from typing import Any

from pydantic_core import from_json, to_json

from trio_mcp._checks import check_count
from trio_mcp._patterns import late_pattern
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    is_request_id,
)
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

__all__ = [
    "DEFAULT_MAX_MESSAGE_SIZE",
    "HEAD",
    "TAIL",
    "LineDecoder",
    "Pieces",
    "decode",
    "encode",
    "encode_or_replace",
    "oversize",
    "parse",
    "unparsable",
]

DEFAULT_MAX_MESSAGE_SIZE = 64 * 1024 * 1024
"""The default limit for the size of a message, in bytes (arbitrary): large enough for a photograph in Base64 or a book,
too small for a broken peer to exhaust the memory."""
HEAD = 4096
"""Bytes kept of the beginning of an oversized message (arbitrary): enough for its id, method and first parameters."""
TAIL = 512
"""Bytes kept of the end of an oversized message, where some peers write the id (arbitrary): the longest id that is
accepted there has 400 characters."""

_Item = Request | Notification | Response | ErrorResponse | Malformed

LONG = 4096
"""The size of a JSON text, in bytes for each part of its value, above which the parts are checked one by one for NaN
and infinity: searching the whole text for these words would cost as much as writing the JSON (measured)."""

# An arbitrary limit: a batch is handled as a whole, so one line must not contain an unlimited number of requests.
MAX_BATCH = 1000


def decode(data: bytes | bytearray) -> Incoming:
    """Turn one JSON text into a message, or into a `Malformed` that describes what is wrong with it.

    Args:
        data: One JSON text in UTF-8, without framing. A number beyond the range of a double becomes infinity
            (RFC 8259, section 6, leaves that to the receiver); it can't be sent on, see `encode`.
    """
    # With `allow_inf_nan=False`, the parser refuses the words NaN and Infinity, which are not JSON.
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as exc:
        return unparsable(bytes(data), str(exc))
    return _parse_object(value, len(data)) if type(value) is dict else parse(value, len(data))


def parse(value: Any, size: int = 0) -> Incoming:
    """Turn parsed JSON into a message, or into a `Malformed`.

    Args:
        value: The parsed JSON.
        size: The number of bytes it was parsed from.
    """
    if type(value) is dict:
        return _parse_object(value, size)
    if type(value) is list:
        if not value:  # JSON-RPC 2.0, section 6, requires an error for an empty batch
            return Malformed(INVALID_REQUEST, "a batch must not be empty")
        if len(value) > MAX_BATCH:
            return Malformed(INVALID_REQUEST, f"a batch must have at most {MAX_BATCH} messages, got {len(value)}")
        # The size of each message is not known, so each gets an equal share: only the sum of the sizes is limited.
        share = size // len(value)
        return Batch(
            tuple(
                _parse_object(item, share)
                if type(item) is dict
                else Malformed(INVALID_REQUEST, "a message must be an object")
                for item in value
            )
        )
    return Malformed(INVALID_REQUEST, f"a message must be an object, not {_kind(value)}")


def _parse_object(obj: dict[str, Any], size: int) -> _Item:
    # The order matters: the id has to be known before the rest is checked, so that an error response can carry it.
    method = obj.get("method")
    if method is None and ("result" in obj or "error" in obj):
        return _parse_answer(obj)
    request_id = obj.get("id")
    known_id = request_id if type(request_id) is int or type(request_id) is str else None  # see `is_request_id`
    if obj.get("jsonrpc") != "2.0":
        return Malformed(INVALID_REQUEST, '"jsonrpc" must be "2.0"', known_id)
    if type(method) is not str:
        return Malformed(INVALID_REQUEST, '"method" must be a string', known_id)
    params = obj.get("params")
    if params is not None and type(params) is not dict:
        if "id" in obj and known_id is None:
            return Malformed(INVALID_REQUEST, _BAD_ID)
        # JSON-RPC allows parameters by position, but no method of MCP takes them.
        return Malformed(INVALID_PARAMS, f'"params" must be an object, not {_kind(params)}', known_id, "id" in obj)
    if known_id is not None:
        return Request(known_id, method, params, size)
    if "id" in obj:
        return Malformed(INVALID_REQUEST, _BAD_ID)
    return Notification(method, params, size)


_BAD_ID = '"id" must be a string or an integer'


def _parse_answer(obj: dict[str, Any]) -> Response | ErrorResponse | Malformed:
    # No error response is sent for a malformed response (`expects_answer`): two peers could respond to responses
    # forever.
    answer_id = obj.get("id")
    known_id = answer_id if type(answer_id) is int or type(answer_id) is str else None  # see `is_request_id`

    def broken(reason: str) -> Malformed:
        return Malformed(INVALID_REQUEST, reason, known_id, expects_answer=False)

    if obj.get("jsonrpc") != "2.0":
        return broken('"jsonrpc" must be "2.0"')
    # An error response may have no id, or null, if the peer could not read our id (JSON-RPC 2.0, section 5).
    if known_id is None and answer_id is not None:
        return broken(_BAD_ID)
    if "error" not in obj:
        result = obj["result"]
        if known_id is None:
            return broken('a response with a "result" must have an "id"')
        if type(result) is not dict:
            return broken(f'"result" must be an object, not {_kind(result)}')
        return Response(known_id, result)
    if "result" in obj:
        return broken('a response has either "result" or "error", not both')
    error = obj["error"]
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        return broken('"error" must be an object with an integer "code" and a string "message"')
    return ErrorResponse(known_id, ErrorData(error["code"], error["message"], error.get("data")))


_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "an object")


# --- encoding ---------------------------------------------------------------------------------------------------


def encode(message: Incoming) -> bytes:
    """Turn a message into one JSON text in UTF-8 that contains no newline.

    Raises:
        TypeError: If it is a `Malformed` or a `TransportFailure`, which are only ever received.
        ValueError: If its content can't be written as JSON (NaN, infinity, a lone surrogate, a foreign object).
    """
    plain = _as_json(message)
    try:
        data = to_json(plain)
        # to_json writes NaN and Infinity, which are not JSON. The words may also be part of a string, so the output is
        # compared with one in which these numbers are null. This costs a second pass only if the words occur at all.
        lawful = (
            (len(data) > LONG and _is_finite(plain, len(data) // LONG))
            or not (b"NaN" in data or b"Infinity" in data)
            or data == to_json(plain, inf_nan_mode="null")
        )
    except Exception as exc:  # the content may be any object, whose serializer may raise anything
        raise ValueError(f"{type(exc).__name__}: {exc}") from None
    if not lawful:
        raise ValueError("NaN and infinity are not JSON numbers")
    return data


def _is_finite(value: Any, most: int) -> bool:
    """Return True if a value is JSON data of at most `most` parts without NaN and infinity; otherwise False."""
    waiting = [value]
    for _ in range(most):
        if not waiting:
            return True
        each = waiting.pop()
        kind = type(each)
        if kind is dict and len(each) <= most:
            waiting += each.values()
        elif kind is list and len(each) <= most:
            waiting += each
        elif not (kind is str or kind is int or kind is bool or each is None or (kind is float and isfinite(each))):
            return False
    return False


def encode_or_replace(message: Incoming) -> tuple[bytes | None, str | None]:
    """Encode a message; a response that can't be encoded is replaced by an error response, as the peer waits for one.

    Returns:
        The bytes, or None if nothing can be sent; and a description of the problem, or None if there was none.
    """
    try:
        return encode(message), None
    except ValueError as exc:
        problem = f"it can't be written as JSON: {exc}"
    if type(message) is Batch:  # the responses that can be encoded are still sent
        texts = [text for text, _ in map(encode_or_replace, message.items) if text is not None]
        return (b"[" + b",".join(texts) + b"]" if texts else None), problem
    if type(message) is Response or type(message) is ErrorResponse:
        error = ErrorData(INTERNAL_ERROR, "the result can't be written as JSON")
        try:
            return encode(ErrorResponse(message.id, error)), problem
        except ValueError:
            pass  # even the id can't be written, so it is not one that a peer has sent
    return None, problem


def _as_json(message: Incoming) -> dict[str, Any] | list[Any]:
    # Every message passes through here, so the most frequent types come first, and the dicts are literals.
    if type(message) is Response:
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    if type(message) is Request:
        if message.params is None:
            return {"jsonrpc": "2.0", "id": message.id, "method": message.method}
        return {"jsonrpc": "2.0", "id": message.id, "method": message.method, "params": message.params}
    if type(message) is Notification:
        if message.params is None:
            return {"jsonrpc": "2.0", "method": message.method}
        return {"jsonrpc": "2.0", "method": message.method, "params": message.params}
    if type(message) is ErrorResponse:
        error: dict[str, Any] = {"code": message.error.code, "message": message.error.message}
        if message.error.data is not None:
            error["data"] = message.error.data
        # An id that could not be read is left out, although JSON-RPC has null there: the schema of MCP does not allow
        # null (JSONRPCErrorResponse, 2025-11-25).
        answered = {} if message.id is None else {"id": message.id}
        return {"jsonrpc": "2.0", **answered, "error": error}
    if type(message) is Batch:
        return [_as_json(item) for item in message.items]
    raise TypeError(f"expected a JSON-RPC message, got {type(message).__name__}")


# --- framing ----------------------------------------------------------------------------------------------------


class Pieces:
    """A buffer that joins pieces of bytes, in linear time."""

    # The pieces are not kept in a list, because a peer can send a few bytes at a time, and every bytes object takes
    # many times that. A `BytesIO` is used instead of a bytearray, because it returns its bytes uncopied, while
    # `pydantic_core.from_json` would copy a bytearray.

    __slots__ = ("_first", "_joined")

    def __init__(self) -> None:
        self._first = b""
        self._joined: io.BytesIO | None = None

    def add(self, piece: bytes) -> None:
        """Add a piece."""
        if self._joined is not None:
            self._joined.write(piece)
        elif not self._first:
            self._first = piece  # usually the only piece, which is then not copied
        elif piece:
            self._joined = io.BytesIO()
            self._joined.write(self._first)
            self._joined.write(piece)

    def joined(self) -> bytes:
        """Return everything that was added. Add nothing afterwards: that would cost a copy."""
        return self._first if self._joined is None else self._joined.getvalue()


class LineDecoder:
    """A decoder that cuts a byte stream into lines and parses them, in linear time and within a size limit.

    stdio and all plain byte streams carry one JSON text per line (`basic/transports/stdio`). A line over the limit is
    skipped up to its newline and reported as one `Malformed`; the next line is read as usual.

    Args:
        max_message_size: The maximum length of a line, in bytes, without its newline.
    """

    def __init__(self, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> None:
        check_count("max_message_size", max_message_size)
        self.max_message_size = max_message_size
        self._line = Pieces()
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes | bytearray) -> Iterator[Incoming]:
        """Take bytes read from the stream and yield every message that is now complete.

        Consume the iterator before feeding again.
        """
        data = bytes(data)
        if b"\n" not in data:  # part of a long line; this test takes a fraction of the time of `split`
            self._append(data)
            return
        lines = data.split(b"\n")
        for line in lines[:-1]:
            if not self._size and len(line) <= self.max_message_size:
                # By far the most frequent case is a complete line with nothing buffered, which needs no copy. Blank
                # lines are ignored.
                message = decode(line) if line and not line.isspace() else None
            else:
                self._append(line)
                message = self._finish()
            if message is not None:
                yield message
        if lines[-1]:
            self._append(lines[-1])

    def finish(self) -> Incoming | None:
        """Return the message in the unfinished last line of a stream that has ended, if any."""
        return self._finish(cut_off=True)

    def _append(self, piece: bytes) -> None:
        if not piece:
            return
        # Beyond the limit, `_size` still grows, but only the head and the tail are kept.
        fits = self._size + len(piece) <= self.max_message_size
        self._size += len(piece)
        if fits:
            self._line.add(piece)
            return
        # If this is the first piece beyond the limit, only the two ends of the pieces before it are kept.
        if line := self._line.joined():
            self._head, self._tail = line[:HEAD], line[-TAIL:]
            self._line = Pieces()
        if len(self._head) < HEAD:
            self._head += piece[: HEAD - len(self._head)]
        self._tail = (self._tail + piece[-TAIL:])[-TAIL:]

    def _finish(self, *, cut_off: bool = False) -> Incoming | None:
        if self._size > self.max_message_size:
            # The last bytes of a message that was cut off are not its end, so an id there may be a nested object's.
            tail = b"" if cut_off else self._tail
            message: Incoming | None = oversize(self._head, tail, self._size, self.max_message_size)
        else:
            line = self._line.joined()
            message = decode(line) if line and not line.isspace() else None
        self._line = Pieces()
        self._size = 0
        self._head = self._tail = b""
        return message


# --- what can still be learned from a text that could not be read --------------------------------------------------
#
# If the text still shows which request or response it was, only that call has to fail. A wrong id would fail an
# unrelated call. So an id counts only if the legible part proves that it is the message's own, even if one more byte of
# the text was corrupted.

# The end of pydantic_core's error messages, with the position of the fault.
_PLACE = late_pattern(r"at line (\d+) column (\d+)$")
# The characters of numbers, true, false and null.
_LITERAL = (string.ascii_letters + string.digits + "+-.").encode()
# The last brace of a complete message closes the outermost object, so an id right before it is the message's own.
_LAST_ID = late_pattern(rb'(?<=[{,\s])"id"\s*:\s*(-?\d{1,400}|"(?:[^"\\]|\\.){0,400}")\s*\}\s*$')


def unparsable(data: bytes, fault: str) -> Malformed:
    """Describe a text that is not JSON.

    Args:
        data: The text.
        fault: The parser's error message, with the position in the text.
    """
    if fault.startswith("trailing characters"):  # two texts on one line: an id could belong to either
        return Malformed(PARSE_ERROR, f"invalid JSON: {fault}")
    if fault.startswith("EOF"):  # truncated: the brace at its end, if any, belongs to a nested object
        legible, tail = data, b""
    else:
        legible, tail = data[: _offset(data, fault)], data[-TAIL:]
    return _describe(legible, tail, PARSE_ERROR, f"invalid JSON: {fault}")


def oversize(head: bytes, tail: bytes, size: int, limit: int) -> Malformed:
    """Describe a message that was discarded because it is too large.

    Args:
        head: The first `HEAD` bytes of the message.
        tail: The last `TAIL` bytes of the message; empty if it was cut off.
        size: The size of the message in bytes.
        limit: The maximum size, in bytes.
    """
    return _describe(
        head, tail, INVALID_REQUEST, f"a message of {size} bytes is longer than max_message_size={limit}", limit
    )


def _describe(legible: bytes, tail: bytes, code: int, reason: str, limit: int | None = None) -> Malformed:
    members = _members(legible)
    # The last legible member may be truncated, so it does not count.
    request_id = members.get("id") if members and next(reversed(members)) != "id" else None
    if request_id is None and legible.lstrip()[:1] == b"{" and (last := _LAST_ID.search(tail)):
        request_id = _read(last[1])
    # As in `_parse_object`, a message with a result or an error but no method is a response, which gets no response.
    is_answer = "method" not in members and ("result" in members or "error" in members)
    known_id: RequestId | None = request_id if is_request_id(request_id) else None
    return Malformed(code, reason, known_id, expects_answer=not is_answer, limit=limit)


def _members(legible: bytes, *, again: bool = True) -> dict[str, Any]:
    """Return the members of the outermost object, as far as a truncated text shows them.

    If the legible part is itself invalid, one more attempt is made, with the text before that fault.
    """
    cut = legible.rstrip(_LITERAL)
    # Put a literal in place of the missing or truncated one, so that its member shows up (and can be discounted).
    completed = cut + b"0" if cut.rstrip().endswith(b":") else cut
    for text in (completed, cut):
        try:
            value = from_json(text, allow_inf_nan=False, allow_partial="trailing-strings")
        except ValueError as exc:
            fault = str(exc)
        else:
            return value if type(value) is dict else {}
    return _members(cut[: _offset(cut, fault)], again=False) if again else {}


def _read(token: bytes) -> Any:
    try:
        return from_json(token, allow_inf_nan=False)
    except ValueError:
        return None


def _offset(data: bytes, fault: str) -> int:
    """Return where the parser gave up, in bytes from the start."""
    place = _PLACE.search(fault)
    if place is None:
        return 0
    start = 0
    for _ in range(int(place[1]) - 1):
        start = data.find(b"\n", start) + 1
    return max(start + int(place[2]) - 1, 0)
