"""What can still be learned from a text that could not be read: whose answer or request it was, to settle just that.

A wrong id would fail a call that has nothing to do with it, so an id counts only where what is legible proves that it
is the message's own, even if one more byte of the text is not what was sent.
"""

from __future__ import annotations

import re
import string
from typing import Any

from pydantic_core import from_json

from trio_mcp.jsonrpc.messages import Malformed, RequestId, is_request_id
from trio_mcp.types.error_codes import INVALID_REQUEST, PARSE_ERROR

__all__ = ["HEAD", "TAIL", "oversize", "unparsable"]

HEAD = 4096
"""Bytes kept of the beginning of a message that is too large: enough for its id, method and the first parameters."""
TAIL = 512
"""Bytes kept of its end, where some peers write the id."""

_PLACE = re.compile(r"at line (\d+) column (\d+)$")
_LITERAL = (string.ascii_letters + string.digits + "+-.").encode()
# The brace that ends a whole message ends the outermost object, so an id right before it is the message's own.
_LAST_ID = re.compile(rb'(?<=[{,\s])"id"\s*:\s*(-?\d{1,400}|"(?:[^"\\]|\\.){0,400}")\s*\}\s*$')


def unparsable(data: bytes, fault: str) -> Malformed:
    """Describe a text that is no JSON.

    Args:
        data: The text.
        fault: What the parser says of it, with the place.
    """
    if fault.startswith("trailing characters"):  # two texts in one: nothing tells whose id it is
        return Malformed(PARSE_ERROR, f"invalid JSON: {fault}")
    if fault.startswith("EOF"):  # it breaks off: the brace that ends it, if any, is a nested object's
        legible, tail = data, b""
    else:
        legible, tail = data[: _offset(data, fault)], data[-TAIL:]
    return _describe(legible, tail, PARSE_ERROR, f"invalid JSON: {fault}")


def oversize(head: bytes, tail: bytes, size: int, limit: int) -> Malformed:
    """Describe a message that was not kept because it is too large.

    Args:
        head: Its first `HEAD` bytes.
        tail: Its last `TAIL` bytes; empty if it was cut off.
        size: Its size in bytes.
        limit: The largest size that is taken.
    """
    reason = f"a message of {size} bytes is longer than max_message_size={limit}"
    return _describe(head, tail, INVALID_REQUEST, reason, limit)


def _describe(legible: bytes, tail: bytes, code: int, reason: str, limit: int | None = None) -> Malformed:
    members = _members(legible)
    # The last member that is legible may be cut short, so it does not count.
    request_id = members.get("id") if members and next(reversed(members)) != "id" else None
    if request_id is None and legible.lstrip()[:1] == b"{" and (last := _LAST_ID.search(tail)):
        request_id = _read(last[1])
    is_answer = "method" not in members and ("result" in members or "error" in members)
    known_id: RequestId | None = request_id if is_request_id(request_id) else None
    return Malformed(code, reason, known_id, expects_answer=not is_answer, limit=limit)


def _members(legible: bytes, *, again: bool = True) -> dict[str, Any]:
    """The members of the outermost object, as far as a text that breaks off somewhere shows them."""
    cut = legible.rstrip(_LITERAL)
    # A literal in the place of the one that is missing or cut short, so that the member it belongs to shows.
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
    """Where the parser gave up, in bytes."""
    place = _PLACE.search(fault)
    if place is None:
        return 0
    start = 0
    for _ in range(int(place[1]) - 1):
        start = data.find(b"\n", start) + 1
    return max(start + int(place[2]) - 1, 0)
