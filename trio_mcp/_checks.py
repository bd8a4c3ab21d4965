"""Checks the values that an application passes.

A value of the wrong type raises a `TypeError`, and a value of the right type that is not allowed a `ValueError`. A
boolean does not count as a number, although Python's `bool` is a subclass of `int`.

The errors show the value, unless it may be secret: see `FilledText`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import sniffio

from trio_mcp import _attrs as attrs
from trio_mcp._patterns import late_pattern

__all__ = [
    "FilledText",
    "as_written",
    "check_choice",
    "check_choices",
    "check_count",
    "check_flag",
    "check_headers",
    "check_hook",
    "check_kind",
    "check_no_loop",
    "check_number",
    "check_on_trio",
    "check_request_headers",
    "check_seconds",
    "check_text",
    "check_url",
    "given_or_default",
    "running_loop",
    "validator",
]

BundleT = TypeVar("BundleT")

# The value of a header field as RFC 9110, section 5.5, defines it, but without the bytes beyond ASCII, which are
# obsolete.
_FIELD_VALUE = late_pattern(r"(?:[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?")


def check_number(name: str, value: Any, *, what: str = "a number") -> None:
    """Check that a value is a number, whatever its size.

    Raises:
        TypeError: If it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be {what}, got {value!r}")


def check_seconds(name: str, value: Any, *, zero: bool = False, finite: bool = False, optional: bool = False) -> None:
    """Check that a value is a length of time in seconds, within the allowed range.

    Args:
        name: The name of the setting, for the error message.
        value: The value given.
        zero: Whether 0 is allowed.
        finite: Whether infinity is refused.
        optional: Whether None is allowed.

    Raises:
        TypeError: If the value is not a number.
        ValueError: If it is out of range.
    """
    if value is None and optional:
        return
    check_number(name, value, what="a number of seconds or None" if optional else "a number of seconds")
    # The condition is written as "not (valid)": every comparison with NaN is false, so NaN is refused as well.
    if not (value >= 0 if zero else value > 0) or (finite and value == math.inf):
        least, most = "at least" if zero else "more than", " and finite" if finite else ""
        raise ValueError(f"{name} must be {least} 0 seconds{most}, got {value!r}")


def check_count(name: str, value: Any, *, least: int = 1, most: float = math.inf) -> None:
    """Check that a value is an integer within the allowed range.

    Args:
        name: The name of the setting, for the error message.
        value: The value given.
        least: The smallest value allowed.
        most: The largest value allowed.

    Raises:
        TypeError: If the value is not an integer.
        ValueError: If it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not least <= value <= most:
        allowed = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Check that a value is a boolean; a string such as "no", for example, would count as true.

    Raises:
        TypeError: If the value is something else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_text(name: str, value: Any) -> None:
    """Check that a value is a string that is not empty.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is empty.
    """
    if not isinstance(value, str) or not value:
        # The error for an empty string and the one for a value that is not a string differ only in their types.
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{name} must be a non-empty string, got {value!r}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Check that a value is one of the allowed strings.

    Raises:
        TypeError: If it is not a string.
        ValueError: If the string is not allowed.
    """
    if not isinstance(value, str) or value not in choices:
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def check_choices(name: str, values: Any, choices: Collection[str]) -> None:
    """Check that a value is a list, or another collection, of allowed strings.

    Raises:
        TypeError: If it is not a collection of strings; a single string does not count as one.
        ValueError: If it contains a string that is not allowed.
    """
    # A string is itself a collection of strings (its characters), but passing one is a mistake.
    strings = isinstance(values, Collection) and all(isinstance(value, str) for value in values)
    if isinstance(values, str) or not strings or not set(values) <= set(choices):
        kind = ValueError if strings and not isinstance(values, str) else TypeError
        raise kind(f"{name} must be a list of values from {', '.join(choices)}; got {values!r}")


def check_url(value: Any, schemes: Collection[str]) -> SplitResult:
    """Check the URL of a server, and return its parts.

    Args:
        value: The URL.
        schemes: The allowed schemes, in lower case.

    Raises:
        TypeError: If it is not a string.
        ValueError: If it is not a valid URL with one of these schemes and a host.
    """
    if not isinstance(value, str):
        raise TypeError(f"url must be a string, got {value!r}")
    # The scheme is checked first, by hand: `urlsplit` accepts nearly everything as a URL.
    scheme, separator, rest = value.partition("://")
    if not separator or not rest or scheme.lower() not in schemes:
        # The message does not quote the URL, because it may contain a secret.
        raise ValueError(f"url must begin with {':// or '.join(schemes)}:// and name a host")
    if any(ord(character) <= 0x20 or ord(character) == 0x7F for character in value):
        raise ValueError("url must not contain spaces or control characters")
    # Text from a terminal or from JSON may contain a lone surrogate. It can't be encoded, so such a URL could be
    # neither sent nor stored.
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("url must not contain half a character, that is, a lone surrogate")
    try:
        parts = urlsplit(value)
        if not parts.hostname:
            raise ValueError("it names no host")
        parts.port  # noqa: B018 - the port is parsed, and checked, only when it is read
    except ValueError as exc:
        raise ValueError(f"url is not a valid URL: {exc}") from None
    return parts


def check_headers(value: Any) -> None:
    """Check header fields that are to be sent, given as a mapping from names to values.

    Raises:
        TypeError: If they don't map strings to strings.
        ValueError: If a name or a value can't be sent.
    """
    # The values may be secrets, so no message shows them.
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for pair in value.items() for item in pair):
        raise TypeError("headers must map strings to strings")
    for name, content in value.items():
        # A name may contain only the characters of a token (RFC 9110, section 5.6.2): a line break, for example, would
        # let one header smuggle in another.
        if not name.isascii() or not all(each.isalnum() or each in "!#$%&'*+-.^_`|~" for each in name) or not name:
            raise ValueError(f"headers contains a name that a header can't have (RFC 9110, section 5.1): {name!r}")
        if not _FIELD_VALUE.fullmatch(content):
            text = "a value must be visible ASCII, without line breaks and without spaces around it"
            raise ValueError(f"headers contains a value for {name!r} that can't be sent: {text}")


# Fields that the protocol, the connection or the authorization of a client sets itself: a request can't have others.
# Those of one connection are in RFC 9110, section 7.6.1, and in RFC 2616, section 13.5.1.
_RESERVED = {
    *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie"),
    *("dpop", "expect", "host", "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade"),
}
_RESERVED_PREFIXES = ("mcp-", "proxy-")


def check_request_headers(value: Any) -> None:
    """Check header fields for a single request, as `check_headers` does, and that they are none of a client's own.

    Raises:
        TypeError: If they don't map strings to strings.
        ValueError: If a name or a value can't be sent, or a field is set by the client itself.
    """
    check_headers(value)
    for name in value:
        if name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES):
            raise ValueError(f"headers contains {name!r}, which a single request can't set: the client sets it itself")


def check_hook(name: str, value: Any, *, sync: bool = False) -> None:
    """Check a callback that an application passes; None is allowed.

    Args:
        name: The name of the setting, for the error message.
        value: The value given.
        sync: Whether the result is not awaited, so that an async function would never run.

    Raises:
        TypeError: If it can't be called, or is async and must not be.
    """
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__}")
    # An object with an async `__call__` counts as async, too. A `functools.partial` needs no check of its own, because
    # `inspect` looks inside it.
    if sync and (inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__)):
        raise TypeError(f"{name} must be a sync function, because its result is not awaited; got an async one")


def check_kind(name: str, value: Any, *, kind: type) -> None:
    """Check that a value is an instance of a class, or None.

    Raises:
        TypeError: If the value is something else.
    """
    if value is not None and not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, got {type(value).__name__}")


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts ``count`` positional arguments; True if that can't be determined."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def given_or_default(name: str, value: BundleT | None, kind: type[BundleT]) -> BundleT:
    """Return a bundle of settings: the one given, or one with the defaults.

    Args:
        name: The name of the setting, for the error message.
        value: The value given.
        kind: The class of the bundle.

    Raises:
        TypeError: If the value is neither None nor such a bundle.
    """
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}(…), got {type(value).__name__}")
    return value


def validator(check: Callable[..., None], **options: Any) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    """Turn a check into an attrs validator: ``attrs.field(validator=validator(check_seconds, zero=True))``."""
    return lambda instance, attribute, value: check(attribute.name, value, **options)


def check_on_trio() -> None:
    """Check that the caller runs on Trio. The library checks this where a program enters it, not on each call.

    Raises:
        RuntimeError: If it runs on another event loop, or on none.
    """
    if (loop := running_loop()) != "trio":
        beside = (
            f"; beside {loop}, run Trio as its guest (see how-to/guest_mode), or call that in a thread" if loop else ""
        )
        raise RuntimeError(
            f"trio_mcp needs Trio, but this code runs {'on ' + loop if loop else 'outside of it'}: "
            "start the program with trio.run(main) or anyio.run(main, backend='trio'), and an ASGI application with "
            f"`hypercorn -k trio module:app`; trio_mcp.blocking.Client works without Trio{beside}"
        )


def check_no_loop(function: str, instead: str) -> None:
    """Check that a function that starts Trio itself is not called while an event loop is running.

    Args:
        function: The call to refuse, for the error message.
        instead: The call to await on Trio instead, for the error message.

    Raises:
        RuntimeError: If an event loop is running already: the call would block it.
    """
    if (loop := running_loop()) is not None:
        outside = f"call it from a plain function, outside of the event loop, or run Trio as the guest of {loop} (see"
        advice = f"await {instead}" if loop == "trio" else f"{outside} how-to/guest_mode) and await {instead} there"
        raise RuntimeError(
            f"{function} starts Trio and blocks until Trio ends, but {loop} is already running here: {advice}"
        )


def running_loop() -> str | None:
    """Return the name of the event loop that runs in this thread; None without one."""
    try:
        return sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return None


# --- values that must not be shown ------------------------------------------------------------------------------------


class FilledText(str):
    """A string from a configuration, with the values of its inputs filled in. Messages show it without these values.

    Attributes:
        shown: The string with the names of the inputs in place of their values.
    """

    shown: str

    def __new__(cls, text: str, shown: str) -> Self:
        made = super().__new__(cls, text)
        made.shown = shown
        return made

    def __repr__(self) -> str:
        return repr(self.shown)


def as_written(text: str) -> str:
    """Return a string as a message may show it: a `FilledText` without the values of its inputs."""
    return text.shown if isinstance(text, FilledText) else text
