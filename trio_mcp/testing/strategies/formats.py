"""Makes strings in the formats that JSON Schema defines (2020-12 validation, section 7.3).

Hosts that a program might connect to are subdomains of ``example.invalid``, which never resolves (RFC 6761).
"""

from __future__ import annotations

import base64
import datetime
import uuid
from collections.abc import Callable, Mapping

from trio_mcp.testing.strategies.choices import Choices, one_of

__all__ = ["FORMATS"]

_LABELS = ("a", "mcp", "test-1", "x9")
_WORDS = ("a", "b", "name", "value", "item-1", "2")


def _joined(choices: Choices, separator: str, words: tuple[str, ...], low: int, high: int) -> str:
    return separator.join(one_of(choices, words) for _ in range(choices.integer(low, high)))


def _date(choices: Choices) -> str:
    # The days are from 1972 to 2054: some programs can't represent times before 1970, and signed 32 bits overflow in
    # 2038. The simplest day, 2000-01-01, is easy to read in a report.
    return (datetime.date(2000, 1, 1) + datetime.timedelta(choices.integer(-10_000, 20_000))).isoformat()


def _time(choices: Choices) -> str:
    # RFC 3339 allows leap seconds, but most libraries refuse them, and a test would blame the tool for that.
    hours, minutes, seconds = choices.integer(0, 23), choices.integer(0, 59), choices.integer(0, 59)
    fraction = one_of(choices, ("", ".5", ".123456"))
    zone = one_of(choices, ("Z", "+00:00", "+05:30", "-08:00"))
    return f"{hours:02}:{minutes:02}:{seconds:02}{fraction}{zone}"


def _duration(choices: Choices) -> str:
    days, hours = choices.integer(0, 30), choices.integer(0, 23)
    # At least one unit of time must follow the "T" (RFC 3339, appendix A). Weeks, months and years are left out,
    # because many libraries don't support them.
    return f"P{days}DT{hours}H" if hours else f"P{days}D"


def _hostname(choices: Choices) -> str:
    return _joined(choices, ".", _LABELS, 1, 2) + ".example.invalid"


def _email(choices: Choices) -> str:
    return f"{_joined(choices, '.', _LABELS, 1, 2)}@example.com"


def _path(choices: Choices) -> str:
    return "/" + _joined(choices, "/", _WORDS, 0, 3)


def _uri(choices: Choices) -> str:
    # A tool that takes a URI mostly expects a web address, and may refuse a `urn:`.
    return f"https://{_hostname(choices)}{_path(choices)}{one_of(choices, ('', '?a=b', '#part'))}"


def _ipv6(choices: Choices) -> str:
    # 2001:db8::/32 is reserved for documentation (RFC 3849).
    return f"2001:db8::{choices.integer(1, 0xFFFF):x}:{choices.integer(1, 0xFFFF):x}"


def _base64(choices: Choices) -> str:
    data = bytes(choices.integer(0, 255) for _ in range(choices.integer(0, 9)))
    return base64.b64encode(data).decode()


FORMATS: Mapping[str, Callable[[Choices], str]] = {
    "date": _date,
    "date-time": lambda choices: f"{_date(choices)}T{_time(choices)}",
    "time": _time,
    "duration": _duration,
    "email": _email,
    "idn-email": _email,
    "hostname": _hostname,
    "idn-hostname": _hostname,
    "ipv4": lambda choices: f"192.0.2.{choices.integer(0, 255)}",  # addresses reserved for documentation (RFC 5737)
    "ipv6": _ipv6,
    "uri": _uri,
    "url": _uri,
    "iri": _uri,
    "uri-reference": lambda choices: one_of(choices, (_uri, _path))(choices),
    "iri-reference": lambda choices: one_of(choices, (_uri, _path))(choices),
    "uri-template": lambda choices: _path(choices) + "/{id}",
    # All validators accept version 4, including those that look at the version and variant bits.
    "uuid": lambda choices: str(uuid.UUID(int=choices.integer(0, 2**128 - 1), version=4)),
    "json-pointer": _path,
    "relative-json-pointer": lambda choices: f"{choices.integer(0, 9)}{_path(choices)}",
    # A tool compiles the expression in the dialect of its language, so the expression has only syntax that all dialects
    # share.
    "regex": lambda choices: one_of(choices, ("a", "^a+$", "[a-z]*", "a|b")),
    # OpenAPI defines this format, and schemas that were generated from an API use it.
    "byte": _base64,
}
"""For each format, a function that makes a string in it. Any string conforms to a format that is not in this table."""
