"""HTTP fields: their names, how a value becomes one, and the standard ones that repeat what a request's body says.

2026-07-28 `basic/transports/streamable-http`, section Request Metadata. Headers made of a tool's arguments have
a module of their own, `param_headers`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from trio_mcp.jsonrpc.messages import ErrorData, Request
from trio_mcp.types.error_codes import HEADER_MISMATCH
from trio_mcp.types.methods import methods_of
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = [
    "EVENTS",
    "JSON",
    "LAST_EVENT_ID",
    "MAX_URL",
    "METHOD",
    "NAME",
    "PROTOCOL_VERSION",
    "SESSION_ID",
    "Headers",
    "check_standard_headers",
    "decode_value",
    "encode_value",
    "mismatch",
    "not_accepted",
    "shown",
    "standard_headers",
]

PROTOCOL_VERSION: Final = "MCP-Protocol-Version"
METHOD: Final = "Mcp-Method"
NAME: Final = "Mcp-Name"
# Of the revisions before 2026-07-28
SESSION_ID: Final = "Mcp-Session-Id"
LAST_EVENT_ID: Final = "Last-Event-ID"

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

MAX_URL: Final = 8000
"""The longest URL that is taken from a peer, in characters (RFC 9110, section 4.1)."""

NAMED_BY: Final = {
    spec.method: spec.name_header
    for revision in MODERN_REVISIONS
    for spec in methods_of(revision).values()
    if spec.name_header
}
"""The parameter that `NAME` repeats, by method."""

_PREFIX, _SUFFIX = "=?base64?", "?="
_PLAIN = re.compile(r"[\x20-\x7e]*")
_FIELD_VALUE = re.compile(r"[\x20-\x7e\t]*")


class Headers:
    """The fields of one message, by name in any case; their values without the white space around them.

    Args:
        pairs: Names and values as they came, as bytes or text.
    """

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[bytes | str, bytes | str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            # Latin-1 takes any byte, so that bytes that don't belong there can be refused where it matters.
            key = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            self._values.setdefault(key, []).append(text.strip(" \t"))  # RFC 9110, section 5.5

    def get(self, name: str) -> str | None:
        """The value of a field, or None; where it was sent more than once, all of them joined by a comma.

        That is what repeating a field means (RFC 9110, section 5.3).
        """
        values = self._values.get(name.lower())
        return None if values is None else ", ".join(values)

    @property
    def media_type(self) -> str:
        """The media type of the body, in lower case and without parameters; empty where none is given."""
        return (self.get("Content-Type") or "").partition(";")[0].strip().lower()

    def as_dict(self) -> dict[str, str]:
        """The fields by their names in lower case."""
        return {name: ", ".join(values) for name, values in self._values.items()}

    def count(self, name: str) -> int:
        """How many times a field was sent."""
        return len(self._values.get(name.lower(), ()))


def encode_value(text: str) -> str:
    """Write a text so that it survives as the value of a field (section Value Encoding).

    An empty text is encoded too, as some intermediaries drop an empty field.

    Raises:
        ValueError: It holds a lone surrogate, which UTF-8 can't carry.
    """
    plain = text and _PLAIN.fullmatch(text) and text == text.strip(" ")
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return _PREFIX + base64.b64encode(text.encode()).decode() + _SUFFIX


def decode_value(value: str) -> str:
    """Read what `encode_value`, or another client, has written.

    Raises:
        ValueError: It holds characters that a field must not hold, or its Base64 is not exactly what an encoder writes.
    """
    if not _FIELD_VALUE.fullmatch(value):
        raise ValueError("holds invalid characters")
    if len(value) < len(_PREFIX + _SUFFIX) or not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    payload = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = base64.b64decode(payload, validate=True)
        text = data.decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("is no valid Base64 of UTF-8") from None
    if base64.b64encode(data).decode() != payload:  # the decoder overlooks stray bits in the last character
        raise ValueError("is no canonical Base64")
    return text


def standard_headers(request: Request) -> dict[str, str]:
    """What a client sends along with a request of the modern era besides the version: ``Mcp-Method``, ``Mcp-Name``.

    Raises:
        ValueError: The method can't be sent in a header, or the name holds a lone surrogate.
    """
    if not request.method or encode_value(request.method) != request.method:
        # The method has no encoding, unlike the name.
        raise ValueError(f"the method {shown(request.method)} can't be sent over HTTP: a header repeats it as it is")
    headers = {METHOD: request.method}
    parameter = NAMED_BY.get(request.method)
    name = None if parameter is None or request.params is None else request.params.get(parameter)
    if type(name) is str:
        headers[NAME] = encode_value(name)
    return headers


def check_standard_headers(headers: Headers, request: Request) -> ErrorData | None:
    """Compare what the headers and the body of a request say (section Server Validation).

    The version is not looked at: it decides which rules apply, so whoever calls this has compared it.

    Returns:
        The error to answer with, or None where they agree.
    """
    method = headers.get(METHOD)
    if method is None:
        return mismatch(f"the header {METHOD} is missing; the body says {shown(request.method)}")
    if headers.count(METHOD) > 1:
        return mismatch(f"the header {METHOD} is there more than once")
    if method != request.method:
        return mismatch(f"the header {METHOD} says {shown(method)}, the body {shown(request.method)}")
    parameter = NAMED_BY.get(request.method)
    if parameter is None:
        return None
    source = f"params.{parameter}"
    name, given = (request.params or {}).get(parameter), headers.get(NAME)
    if type(name) is not str:
        name = None
    if given is None:
        return None if name is None else mismatch(f"the header {NAME} is missing; {source} is {shown(name)}")
    if headers.count(NAME) > 1:
        return mismatch(f"the header {NAME} is there more than once")
    if given == name and _PLAIN.fullmatch(given) and not given.startswith(_PREFIX):
        return None
    try:
        decoded = decode_value(given)
    except ValueError as exc:
        return mismatch(f"the header {NAME} {exc}")
    if decoded != name:
        body = "missing or no string" if name is None else shown(name)
        return mismatch(f"the header {NAME} says {shown(decoded)}, but {source} is {body}")
    return None


def not_accepted(headers: Headers, *kinds: str) -> list[str]:
    """Say which media types a client does not take; without a header it takes any (RFC 9110, section 12.5.1)."""
    accept = headers.get("Accept")
    if accept is None:
        return []
    taken: dict[str, bool] = {}
    for part in accept.lower().split(","):
        name, *parameters = part.split(";")
        taken[name.strip()] = not any(map(_is_zero, parameters))
    missing = []
    for kind in kinds:
        for wider in (kind, kind.partition("/")[0] + "/*", "*/*"):  # the most specific range decides
            if wider in taken:
                break
        if not taken.get(wider, False):
            missing.append(kind)
    return missing


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip().rstrip("0") in ("0.", "0", "", ".")


def mismatch(reason: str) -> ErrorData:
    """The error answer for headers that don't match the body."""
    return ErrorData(HEADER_MISMATCH, f"Header mismatch: {reason}")


def shown(text: str) -> str:
    """A text from a peer, short enough for a message and without control characters."""
    return repr(text if len(text) <= 100 else text[:100] + "…")
