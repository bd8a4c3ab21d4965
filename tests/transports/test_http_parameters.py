"""Parameters for a server that is reached by a URL."""

from __future__ import annotations

from typing import Any

import pytest

from trio_mcp import Client, HttpServerParameters


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"url": "ftp://x"}, ValueError, "url must begin with http:// or https://"),
        ({"url": "https://"}, ValueError, "name a host"),
        ({"url": "https://x", "kind": "ws"}, ValueError, "url must begin with ws:// or wss://"),
        ({"url": "https://x y"}, ValueError, "spaces"),
        ({"url": "http://[::1/"}, ValueError, "url is not a valid URL: Invalid IPv6"),
        ({"url": "http://x:99999/"}, ValueError, "url is not a valid URL: Port out of range"),
        ({"url": "http://:80/"}, ValueError, "names no host"),
        ({"url": 5}, TypeError, "url must be a string"),
        ({"url": "https://x", "kind": "quic"}, ValueError, "kind must be one of http, sse, ws"),
        ({"url": "https://x", "headers": {"a b": "c"}}, ValueError, "a header can't have"),
        ({"url": "https://x", "headers": {"": "c"}}, ValueError, "a header can't have"),
        ({"url": "https://x", "headers": [1]}, TypeError, "headers must map strings to strings"),
        ({"url": "https://x", "headers": {"a": "secret\r\nb: c"}}, ValueError, "'a'.*line breaks"),
        ({"url": "https://x", "headers": {"a": "secret "}}, ValueError, "'a'.*without spaces around it"),
        ({"url": "https://x", "headers": {"a": "secret é"}}, ValueError, "'a'.*visible ASCII"),
    ],
)
def test_invalid_parameters_are_refused_and_no_secret_is_shown(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match) as caught:
        HttpServerParameters(**arguments)
    assert "secret" not in str(caught.value)


def test_headers_are_not_in_the_representation() -> None:
    parameters = HttpServerParameters("https://x", headers={"Authorization": "secret"})
    assert parameters.headers == {"Authorization": "secret"}
    assert "secret" not in repr(parameters)


def test_a_client_says_that_it_has_no_transport_for_the_parameters() -> None:
    with pytest.raises(ValueError, match="no transport for wss:// URLs"):
        Client(HttpServerParameters("wss://x", kind="ws"))
