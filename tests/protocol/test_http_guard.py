"""Whose requests a server takes: hosts and origins, against DNS rebinding."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard

LOCAL = HostGuard(LOOPBACK_HOSTS)
ANY = HostGuard(None)
NAMED = HostGuard(["example.com:8000", "[2001:db8::1]:*", "Other.example"], ["https://app.example.com", "null"])
OPEN = HostGuard(["example.com"], ["*"])
PAGES = HostGuard(None, ["https://app.example.com"])

# Each row: the guard, the host, the origin (None: not sent), whether the request may pass.
ROWS: list[tuple[HostGuard, str | None, str | None, bool]] = [
    (LOCAL, "localhost", None, True),
    (LOCAL, "localhost:8000", None, True),
    (LOCAL, "LOCALHOST:8000", None, True),
    (LOCAL, "127.0.0.1:1", None, True),
    (LOCAL, "[::1]:8000", None, True),
    (LOCAL, "[::1]", "http://[::1]:3000", True),
    (LOCAL, "evil.example.com", None, False),
    (LOCAL, "evil.example.com:8000", "http://evil.example.com:8000", False),
    (LOCAL, "localhost.evil.example.com", None, False),
    (LOCAL, "localhost:8000@evil.example.com", None, False),
    (LOCAL, "evil.example.com/localhost", None, False),
    (LOCAL, "", None, False),
    (LOCAL, None, None, False),
    (LOCAL, "::1", None, False),
    (LOCAL, "localhost:8000", "http://localhost:8000", True),
    (LOCAL, "localhost:8000", "http://127.0.0.1:3000", True),
    (LOCAL, "localhost:8000", "https://evil.example.com", False),
    (LOCAL, "localhost:8000", "null", False),
    (LOCAL, "localhost:8000", "", False),
    (LOCAL, "localhost:8000", "http://localhost:8000/path", False),
    (ANY, "example.com:8000", None, True),
    (ANY, None, None, True),
    (ANY, "example.com:8000", "https://EXAMPLE.com:8000", False),  # all that a rebound page sends is like this
    (ANY, "192.0.2.1:8000", "http://192.0.2.1:8000", False),
    (ANY, "localhost", "http://localhost", False),
    (ANY, "example.com", "null", False),
    (PAGES, "anything.example", "https://app.example.com", True),
    (PAGES, "evil.example", "http://evil.example", False),
    (ANY, "example.com:8000", "https://example.com", False),
    (ANY, "example.com", "https://evil.example.com", False),
    (ANY, None, "https://example.com", False),
    (NAMED, "example.com:8000", None, True),
    (NAMED, "example.com:8001", None, False),
    (NAMED, "example.com", None, False),
    (NAMED, "[2001:DB8::1]:99", None, True),
    (NAMED, "other.example:1", None, True),
    (NAMED, "example.com:8000", "https://app.example.com", True),
    (NAMED, "example.com:8000", "null", True),
    (NAMED, "example.com:8000", "http://app.example.com", False),
    (NAMED, "example.com:8000", "https://app.example.com:444", False),
    (NAMED, "example.com:8000", "http://example.com:8000", False),
    (OPEN, "example.com", "https://anything.example", True),
    (OPEN, "evil.example", "https://anything.example", False),
]


@pytest.mark.parametrize(("guard", "host", "origin", "passes"), ROWS)
def test_who_may_pass(guard: HostGuard, host: str | None, origin: str | None, passes: bool) -> None:
    """S, Security & Endpoint, 1: an Origin that is present and invalid is refused; so is a foreign Host."""
    pairs = [("Host", host)] if host is not None else []
    pairs += [("Origin", origin)] if origin is not None else []
    fault = guard.check(Headers(pairs))
    assert (fault is None) == passes
    assert fault is None or "allowed_hosts" in fault or "allowed_origins" in fault


def test_the_answer_names_what_was_seen() -> None:
    """The operator learns what to add and where."""
    assert LOCAL.check(Headers([("Host", "mine.example:8000")])) == (
        "a request for the host 'mine.example:8000' is refused; if that is a name of this server, add it to "
        "allowed_hosts"
    )
    fault = LOCAL.check(Headers([("Host", "localhost"), ("Origin", "https://mine.example")]))
    assert fault is not None
    assert "'https://mine.example'" in fault


def test_without_allowed_hosts_the_answer_names_both_settings() -> None:
    """Either tells the pages of the server from those of a name that was made to point at it."""
    assert ANY.check(Headers([("Host", "a.example"), ("Origin", "http://a.example")])) == (
        "a request from the origin 'http://a.example' is refused: set allowed_hosts to the names of this server if "
        "the page is its own, or add the origin to allowed_origins if it is trusted"
    )


def test_two_hosts_are_refused() -> None:
    """A reader of the first and a reader of the last would disagree."""
    assert LOCAL.check(Headers([("Host", "localhost"), ("Host", "localhost")])) is not None


@given(st.text(max_size=30), st.none() | st.text(max_size=30))
def test_a_local_server_takes_local_names_only(host: str, origin: str | None) -> None:
    """Any host that passes has one of the three names, up to its port."""
    pairs = [("Host", host)] + ([] if origin is None else [("Origin", origin)])
    if LOCAL.check(Headers(pairs)) is None:
        assert host.strip(" \t").lower().startswith(LOOPBACK_HOSTS)
        assert host.rstrip(" \t0123456789:").lower().endswith(("localhost", "[::1]", "127.", "127.0.0."))


@pytest.mark.parametrize("entry", ["", "http://example.com", "a b", "example.com:port", "::1", "a/b"])
def test_an_entry_that_is_not_a_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="allowed_hosts"):
        HostGuard([entry])


@pytest.mark.parametrize("entry", ["", "example.com", "https://example.com/", "https://"])
def test_an_entry_that_is_not_an_origin_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="allowed_origins"):
        HostGuard(None, [entry])


@pytest.mark.parametrize(
    ("entries", "said"), [("localhost", "list, got the string 'localhost'"), ([5], "only strings")]
)
def test_anything_but_a_list_of_strings_is_refused(entries: Any, said: str) -> None:
    """The letters of a string would be taken for hosts."""
    with pytest.raises(TypeError, match=f"allowed_hosts must .*{said}"):
        HostGuard(entries)
