"""HTTP header fields: their names, how values are encoded, and the standard headers that repeat parts of the body.

2026-07-28 `basic/transports/streamable-http`, section Request Metadata. The module `param_headers` handles the headers
made from a tool's arguments.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
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
    "NAMED_BY",
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
# These two headers are only for the legacy era: the modern era has neither sessions nor resumable streams.
SESSION_ID: Final = "Mcp-Session-Id"
LAST_EVENT_ID: Final = "Last-Event-ID"

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

MAX_URL: Final = 8000
"""The longest URL accepted from a peer, in characters: the length that RFC 9110, section 4.1, recommends supporting."""

# The parameters are collected from the method table. A method has the same parameter in every modern revision, so the
# revision is not part of the key.
NAMED_BY: Final = {
    spec.method: spec.name_header
    for revision in MODERN_REVISIONS
    for spec in methods_of(revision).values()
    if spec.name_header
}
"""For each method, the parameter that the `NAME` header repeats."""

# A value that a header can't carry unchanged is sent as Base64 between this prefix and this suffix (section Value
# Encoding).
_PREFIX, _SUFFIX = "=?base64?", "?="
_PLAIN = re.compile(r"[\x20-\x7e]*")
# RFC 9110, section 5.5, also tolerates bytes above 0x7f (obs-text). MCP requires that a text is encoded if it would
# contain such bytes.
_FIELD_VALUE = re.compile(r"[\x20-\x7e\t]*")


class Headers:
    """The header fields of one HTTP message: lookups ignore case, and values have no surrounding white space.

    Args:
        pairs: Names and values as received, as bytes or text.
    """

    __slots__ = ("_values",)

    def __init__(self, pairs: Iterable[tuple[bytes | str, bytes | str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            # Latin-1 decodes any byte, so nothing fails here; later checks refuse unusual characters where they matter.
            key = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            self._values.setdefault(key, []).append(text.strip(" \t"))  # RFC 9110, section 5.5

    def adding(self, pairs: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return a copy with further fields, which must have new names."""
        more = Headers(pairs)
        more._values |= self._values
        return more

    def drop(self, names: Iterable[str]) -> None:
        """Remove the fields with the given names, which must be in lower case."""
        for name in names:
            self._values.pop(name, None)

    def get(self, name: str) -> str | None:
        """Return the value of a field, or None.

        The values of a field that was sent more than once are joined by commas: that is what repeating a field means
        (RFC 9110, section 5.3).
        """
        values = self._values.get(name.lower())
        return None if values is None else ", ".join(values)

    @property
    def media_type(self) -> str:
        """The media type of the body, in lower case and without parameters; empty if there is no Content-Type."""
        return (self.get("Content-Type") or "").partition(";")[0].strip().lower()

    def as_dict(self) -> dict[str, str]:
        """Return all fields as a dict, with names in lower case."""
        # HTTP/2 may split a cookie into several fields, which belong together as one cookie (RFC 9113, section 8.2.3).
        return {name: ("; " if name == "cookie" else ", ").join(values) for name, values in self._values.items()}

    def all(self, name: str) -> list[str]:
        """Return the values of a field, one for each time that it was sent."""
        return list(self._values.get(name.lower(), ()))

    def count(self, name: str) -> int:
        """Return how many times a field was sent."""
        return len(self._values.get(name.lower(), ()))


def encode_value(text: str) -> str:
    """Encode a string so that it survives as a header value (section Value Encoding).

    An empty string is encoded, too: some intermediaries drop empty fields.

    Raises:
        ValueError: If the string contains a lone surrogate, which UTF-8 can't carry.
    """
    plain = text and _PLAIN.fullmatch(text) and text == text.strip(" ")
    # A plain string that happens to look encoded must be encoded, or the receiver would decode it.
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return _PREFIX + base64.b64encode(text.encode()).decode() + _SUFFIX


def decode_value(value: str) -> str:
    """Decode a header value written by `encode_value` or by another implementation.

    Raises:
        ValueError: If the value contains characters that a header must not contain, or Base64 that an encoder would
            never write.
    """
    if not _FIELD_VALUE.fullmatch(value):
        raise ValueError("contains invalid characters")
    if len(value) < len(_PREFIX + _SUFFIX) or not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    payload = value[len(_PREFIX) : -len(_SUFFIX)]
    try:
        data = base64.b64decode(payload, validate=True)
        text = data.decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("is not valid Base64 of UTF-8") from None
    # Python's decoder ignores stray bits in the last character, but each value must have only one spelling.
    if base64.b64encode(data).decode() != payload:
        raise ValueError("is not canonical Base64")
    return text


def standard_headers(request: Request, named_by: Mapping[str, str] = NAMED_BY) -> dict[str, str]:
    """Return the headers ``Mcp-Method`` and ``Mcp-Name`` of a modern request; the version header is added elsewhere.

    Args:
        request: The request.
        named_by: The parameter that ``Mcp-Name`` repeats, for each method that has one.

    Raises:
        ValueError: If the method can't be sent in a header, or the name contains a lone surrogate.
    """
    if not request.method or encode_value(request.method) != request.method:
        # Unlike the name, the method has no encoding: the specification sends it verbatim.
        raise ValueError(
            f"can't send the method {shown(request.method)} over HTTP: the header {METHOD} must repeat it verbatim"
        )
    headers = {METHOD: request.method}
    parameter = named_by.get(request.method)
    name = None if parameter is None or request.params is None else request.params.get(parameter)
    # A name that is not a string is not sent: the server refuses such a request for its invalid params.
    if type(name) is str:
        headers[NAME] = encode_value(name)
    return headers


def check_standard_headers(
    headers: Headers, request: Request, more: Mapping[str, str | None] | None = None
) -> ErrorData | None:
    """Check that the standard headers of a request agree with its body (section Server Validation).

    The version header is not checked: it decides which rules apply, so the caller has checked it already.

    Args:
        headers: The header fields.
        request: The body.
        more: For each method of an extension, the parameter that the `NAME` header repeats, or None.

    Returns:
        The error to respond with, or None if they agree.
    """
    # A repeated header is refused although RFC 9110 would join its values: intermediaries differ in which value they
    # use.
    methods = headers.all(METHOD)
    if not methods:
        return mismatch(f"the header {METHOD} is missing; the body says {shown(request.method)}")
    if len(methods) > 1:
        return mismatch(f"the header {METHOD} was sent more than once")
    # Methods are case-sensitive and never encoded, so they are compared without decoding.
    if methods[0] != request.method:
        return mismatch(f"the header {METHOD} says {shown(methods[0])}, but the body {shown(request.method)}")
    parameter, show = NAMED_BY.get(request.method), shown
    if parameter is None and more is not None:
        parameter, show = more.get(request.method), _hidden
    if parameter is None:
        return None
    source = f"params.{parameter}"
    name, names = (request.params or {}).get(parameter), headers.all(NAME)
    if type(name) is not str:
        name = None
    if not names:
        return None if name is None else mismatch(f"the header {NAME} is missing; {source} is {show(name)}")
    if len(names) > 1:
        return mismatch(f"the header {NAME} was sent more than once")
    given = names[0]
    # In most requests the header is the unencoded name, so there is nothing to decode.
    if given == name and _PLAIN.fullmatch(given) and not given.startswith(_PREFIX):
        return None
    try:
        decoded = decode_value(given)
    except ValueError as exc:
        return mismatch(f"the header {NAME} {exc}")
    if decoded != name:
        body = "missing or not a string" if name is None else show(name)
        return mismatch(f"the header {NAME} says {show(decoded)}, but {source} is {body}")
    return None


def _hidden(text: str) -> str:
    # The parameter of an extension's method may be a secret, as the id of a task is.
    return f"a text of {len(text)} characters"


def not_accepted(headers: Headers, *kinds: str) -> list[str]:
    """Return those of ``kinds`` that the client's ``Accept`` rules out.

    A client that sends no such header accepts everything (RFC 9110, section 12.5.1).
    """
    accept = headers.get("Accept")
    if accept is None:
        return []
    taken: dict[str, bool] = {}
    for part in accept.lower().split(","):
        name, *parameters = part.split(";")
        taken[name.strip()] = not any(map(_is_zero, parameters))
    return [kind for kind in kinds if not _is_taken(kind, taken)]


def _is_taken(kind: str, taken: Mapping[str, bool]) -> bool:
    ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
    return next((taken[each] for each in ranges if each in taken), False)  # the most specific range decides


def _is_zero(parameter: str) -> bool:
    # RFC 9110, section 12.4.2: a weight of 0, written with up to three decimals, means "not acceptable".
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and value.strip().rstrip("0") in ("0.", "0", "", ".")


def mismatch(reason: str) -> ErrorData:
    """Return the error for headers that don't match the body."""
    return ErrorData(HEADER_MISMATCH, f"Header mismatch: {reason}")


def shown(text: str) -> str:
    """Return a text from a peer, quoted for a message: shortened, and with control characters escaped."""
    return repr(text if len(text) <= 100 else text[:100] + "…")
