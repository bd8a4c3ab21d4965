"""The settings and bounds that the pages about HTTP state are those of the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from tests.docs.pages import ROOT
from tests.docs.test_limits_table import constant, default
from trio_mcp import Backoff, HttpOptions, Server, SqliteEventStore, streamable_http_client
from trio_mcp.http.client import streamable as http_link
from trio_mcp.http.runner.settings import configured
from trio_mcp.http.server.legacy.stores import MemoryEventStore

FIELDS = {field.name: field.default for field in attrs.fields(HttpOptions)}

IN_WORDS = {
    "allowed_hosts": (
        None,
        "`localhost`, `127.0.0.1` and `[::1]` for connections to a loopback address or a Unix socket, else any",
    ),
    "allowed_origins": (None, "those on the `allowed_hosts`; none if any host is accepted"),
}
"""Defaults that the page explains: the value in the code, and the cell."""

ELSEWHERE = {
    "host": default(Server.serve_http, "host"),
    "config.keep_alive_timeout": configured("127.0.0.1", 0).keep_alive_timeout,
}
"""Settings in the tables that are no fields of `HttpOptions`."""


def rows(page: str, header: str) -> Iterator[list[str]]:
    """Yield the rows of all tables of a page that have this header."""
    inside = False
    for line in (ROOT / "docs" / "how-to" / page).read_text().splitlines():
        if line == header:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def read(cell: str) -> Any:
    """Return a value as the tables write it."""
    number, _, unit = cell.partition(" ")
    match unit:
        case "MiB":
            return int(number) * 1024 * 1024
        case "s":
            return float(number)
    return {"off": False, "none": None}.get(cell, int(cell) if cell.isdigit() else cell.strip("`"))


SETTINGS = {row[0].strip("`"): row[1] for row in rows("http_server.md", "| setting | default | what it does |")}


def test_each_setting_has_one_row() -> None:
    found = [row[0].strip("`") for row in rows("http_server.md", "| setting | default | what it does |")]
    assert sorted(found) == sorted([*FIELDS, *ELSEWHERE])


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_the_default_of_the_code(name: str) -> None:
    if name in IN_WORDS:
        assert (FIELDS[name], SETTINGS[name]) == IN_WORDS[name]
    else:
        assert read(SETTINGS[name]) == {**FIELDS, **ELSEWHERE}[name]


BOUNDS = {
    "requests on their way at once, except `subscriptions/listen`": http_link.MAX_CONNECTIONS,
    "requests on their way or waiting": http_link.MAX_EXCHANGES,
    "connections kept for further requests": constant("MAX_KEPT_ALIVE"),
    "seconds for which they are reused if the server does not say how long it keeps them": constant("KEPT_ALIVE"),
    "seconds before the server closes a connection from which on it is not reused": constant("EARLIER"),
    "notifications and responses on their way at once": http_link.MAX_POSTS,
    "seconds for the server to take a notification or a response": http_link.POST_TIMEOUT,
    "bytes of a JSON text or an event": default(streamable_http_client, "max_message_size") // 1024**2,
    "bytes read of the body of an error": constant("MAX_ERROR_BODY"),
    "redirections of one request": constant("MAX_REDIRECTS"),
    "seconds to connect, and again for each write, without an `http_client` of your own": constant("CONNECT_TIMEOUT"),
    "seconds for the body of an error": constant("ERROR_BODY_TIMEOUT"),
    "seconds for the first event of an HTTP+SSE server, which says where messages go": constant("ENDPOINT_TIMEOUT"),
    "seconds for a stream to end after its response; then its connection is not used again": constant("DRAIN_TIMEOUT"),
    "seconds for messages on their way at a close, and again for the DELETE": constant("CLOSE_TIMEOUT"),
    "seconds for the DELETE of a client that is cancelled": constant("CANCELLED_TIMEOUT"),
}


def test_each_bound_of_the_client_is_that_of_the_code() -> None:
    stated = dict(rows("http_client.md", "| what | bound |"))
    assert sorted(stated) == sorted(BOUNDS)
    for what, bound in BOUNDS.items():
        assert f"{bound:g}" in stated[what].replace(",", "").replace(";", "").split(), what


def test_what_is_said_of_trying_again_is_so() -> None:
    """The page says how often a broken stream is resumed."""
    assert "After five attempts it gives up" in (ROOT / "docs" / "how-to" / "http_client.md").read_text()
    assert Backoff().attempts == 5


@pytest.mark.parametrize("store", [MemoryEventStore, SqliteEventStore])
def test_the_bounds_of_a_store_are_those_of_the_code(store: Any) -> None:
    (row,) = (
        row for row in rows("event_stores.md", "| | keeps | bounds, and their defaults |") if store.__name__ in row[0]
    )
    limits = {
        name: each.default for name, each in inspect.signature(store).parameters.items() if name.startswith("max_")
    }
    for name, bound in limits.items():
        assert f"`{name}={bound:g}`" in row[2] or f"`{name}={bound}`" in row[2], name
    assert row[2].count("max_") == len(limits)
