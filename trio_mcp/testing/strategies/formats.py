"""Texts of the formats of JSON Schema (2020-12 validation, section 7.3).

Hosts are below ``example.invalid`` where a program might connect to them: that name leads nowhere (RFC 6761).
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


# For `regex` a fixed list: random text is hardly ever a regular expression, and a tool compiles it in the dialect of
# its own language, so only syntax that all dialects share may occur.
def _of(*texts: str) -> Callable[[Choices], str]:
    return lambda choices: one_of(choices, texts)


def _joined(choices: Choices, separator: str, words: tuple[str, ...], low: int, high: int) -> str:
    return separator.join(words[choices.integer(0, len(words) - 1)] for _ in range(choices.integer(low, high)))


def _date(choices: Choices) -> str:
    # From 1972 to 2054: after 1970, because not every program can count seconds backwards from there, and beyond 2038,
    # where signed 32 bits overflow. The simplest choice is a day that is easy to read in a report.
    return (datetime.date(2000, 1, 1) + datetime.timedelta(choices.integer(-10_000, 20_000))).isoformat()


def _time(choices: Choices) -> str:
    # No leap second: RFC 3339 allows 60, but most libraries for dates refuse it, which would be blamed on the tool.
    hours, minutes, seconds = choices.integer(0, 23), choices.integer(0, 59), choices.integer(0, 59)
    fraction = ("", ".5", ".123456")[choices.integer(0, 2)]
    zone = ("Z", "+00:00", "+05:30", "-08:00")[choices.integer(0, 3)]
    return f"{hours:02}:{minutes:02}:{seconds:02}{fraction}{zone}"


def _duration(choices: Choices) -> str:
    days, hours = choices.integer(0, 30), choices.integer(0, 23)
    # A "T" must be followed by a part of the time (RFC 3339, appendix A). Weeks, months and years are left out: not
    # every library can express a duration that has no fixed length.
    return f"P{days}DT{hours}H" if hours else f"P{days}D"


def _hostname(choices: Choices) -> str:
    return _joined(choices, ".", _LABELS, 1, 2) + ".example.invalid"


def _email(choices: Choices) -> str:
    return f"{_joined(choices, '.', _LABELS, 1, 2)}@example.com"


def _path(choices: Choices) -> str:
    return "/" + _joined(choices, "/", _WORDS, 0, 3)


def _uri(choices: Choices) -> str:
    # Always https and a host, as a tool that takes a URI mostly means the web; a bare `urn:` would be refused by most,
    # rightly.
    query = ("", "?a=b", "#part")[choices.integer(0, 2)]
    return f"https://{_hostname(choices)}{_path(choices)}{query}"


def _ipv6(choices: Choices) -> str:
    # 2001:db8::/32 is for documentation (RFC 3849).
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
    "ipv4": lambda choices: f"192.0.2.{choices.integer(0, 255)}",  # for documentation, too (RFC 5737)
    "ipv6": _ipv6,
    "uri": _uri,
    "url": _uri,
    "iri": _uri,
    "uri-reference": lambda choices: (_uri, _path)[choices.integer(0, 1)](choices),
    "iri-reference": lambda choices: (_uri, _path)[choices.integer(0, 1)](choices),
    "uri-template": lambda choices: _path(choices) + "/{id}",
    # Version 4, as validators that look at the version and variant bits accept it everywhere.
    "uuid": lambda choices: str(uuid.UUID(int=choices.integer(0, 2**128 - 1), version=4)),
    "json-pointer": _path,
    "relative-json-pointer": lambda choices: f"{choices.integer(0, 9)}{_path(choices)}",
    "regex": _of("a", "^a+$", "[a-z]*", "a|b"),
    # Of OpenAPI, not of JSON Schema: schemas that were generated from an API carry it.
    "byte": _base64,
}
"""Format -> what makes a text of it. A format that is not here asks for nothing."""
