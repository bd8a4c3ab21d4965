"""A client reads the card of a server that it does not know: every hostile one is one clear error."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio

from tests.auth.io.test_fetching import Body, Sink, answer
from tests.injection import cancel_everywhere
from tests.waiting import eventually
from trio_mcp.auth import UrlPolicy
from trio_mcp.auth.fetching import Fetcher
from trio_mcp.server_card import CardError, ServerCard, discover_card
from trio_mcp.server_card.discovery import MAX_DEPTH, card_url, read_card

SERVER = "https://mcp.example.com/mcp"
TYPE = "application/mcp-server-card+json"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
RIGHT: dict[str, Any] = {
    "$schema": SCHEMA,
    "name": "com.example/weather",
    "version": "1.2.0",
    "description": "What the weather is.",
    "remotes": [{"type": "streamable-http", "url": SERVER}],
}


def card(kind: str = TYPE, **members: Any) -> httpx.Response:
    return answer(json.dumps({**RIGHT, **members}).encode(), content_type=kind)


def body(content: bytes) -> httpx.Response:
    return answer(content, content_type=TYPE)


def remote(url: str, **members: Any) -> httpx.Response:
    return card(remotes=[{"type": "streamable-http", "url": url, **members}])


def moved(location: str, status: int = 302) -> httpx.Response:
    return answer(b"", status, location=location)


async def read(
    respond: Callable[[httpx.Request], Any], url: str = SERVER, urls: UrlPolicy | None = None, **names: Any
) -> ServerCard:
    target, policy = card_url(url), urls or UrlPolicy()
    return await read_card(target, Fetcher(target, policy, network=Sink(respond, **names)).flow(), policy)


# --- what is read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TYPE, f"{TYPE}; charset=utf-8", "application/json"])
async def test_a_card_is_read(kind: str) -> None:
    asked: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return card(kind, other={"kept": None}, _meta={"com.example/price": 5})

    found = await read(respond)
    assert (found.name, found.version, found.description) == (RIGHT["name"], "1.2.0", RIGHT["description"])
    assert found.to_wire() == {**RIGHT, "other": {"kept": None}, "_meta": {"com.example/price": 5}}
    assert [(each.method, str(each.url.path), each.headers["accept"]) for each in asked] == [
        ("GET", "/mcp/server-card", TYPE)
    ]
    assert "authorization" not in asked[0].headers


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://host.example/mcp", "https://host.example/mcp/server-card"),
        ("https://host.example/mcp/", "https://host.example/mcp/server-card"),
        ("https://host.example", "https://host.example/server-card"),
        ("https://host.example/mcp?tenant=a", "https://host.example/mcp/server-card"),
        ("https://HOST.example:443/a/mcp/server-card", "https://host.example/a/mcp/server-card"),
        ("http://[::1]:8000/mcp", "http://[::1]:8000/mcp/server-card"),
    ],
)
def test_where_a_card_is(url: str, target: str) -> None:
    assert card_url(url) == target


@pytest.mark.parametrize(
    "url", ["", "host", "ftp://host/", "wss://host/mcp", "https://", "https://u@h/", "https://h/#f"]
)
async def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url "):
        await discover_card(url)


async def test_what_is_not_even_a_string() -> None:
    with pytest.raises(TypeError, match="url must be a string, got 5"):
        await discover_card(5)  # type: ignore[arg-type]


async def test_a_redirection_within_the_origin_is_followed() -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        return card() if request.url.path == "/cards/weather" else moved("/cards/weather", 301)

    assert (await read(respond)).name == RIGHT["name"]


async def test_a_server_on_this_machine_may_have_a_remote_on_it() -> None:
    url = "http://127.0.0.1:8000/mcp"
    found = await read(lambda request: remote("http://localhost:8001/mcp"), url)
    assert found.remotes is not None
    found = await read(lambda request: remote(url), "http://localhost:8000/mcp", localhost=[["127.0.0.1"]])
    assert found.remotes is not None


async def test_a_host_that_is_trusted_may_be_private() -> None:
    policy = UrlPolicy(hosts=["10.0.0.5"])
    assert (await read(lambda request: remote("http://10.0.0.5/mcp"), urls=policy)).remotes is not None


# --- hostile cards -----------------------------------------------------------------------------------------------


@attrs.frozen
class Loop:
    """Redirects within the origin, without an end."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        return moved(f"{request.url.path}x")


HOSTILE: dict[str, tuple[Callable[[httpx.Request], Any], str]] = {
    "too big": (lambda request: body(b" " * 70_000), "has more than 65536 bytes"),
    "without an end": (
        lambda request: answer(Body(b"x" * 1000, count=1e9), content_type=TYPE),
        "more than 65536 bytes",
    ),
    "slow": (lambda request: answer(Body(b" ", count=1e9, pause=1), content_type=TYPE), "within 10 seconds"),
    "compressed": (lambda request: answer(b"", content_type=TYPE, content_encoding="gzip"), "is encoded as 'gzip'"),
    "two ends": (
        lambda request: answer(b"{}", content_type=TYPE, content_length="2", transfer_encoding="chunked"),
        "both Content-Length and Transfer-Encoding",
    ),
    "a page": (
        lambda request: answer(b"<html>", content_type="text/html"),
        "has the type 'text/html', not application/",
    ),
    "no type": (lambda request: answer(b"{}"), "has the type '', not application/mcp-server-card+json"),
    "no card": (lambda request: answer(b"", 404), "the response has the status 404: the server publishes none"),
    "a login": (lambda request: answer(b"", 401), "the response has the status 401: it is behind a login"),
    "a failure": (lambda request: answer(b"", 500), "the response has the status 500"),
    "a broken connection": (lambda request: httpx.ReadError("reset"), "reset"),
    "another origin": (lambda request: moved("https://evil.example/card"), "leads to another origin"),
    "another port": (lambda request: moved("https://mcp.example.com:8443/card"), "leads to another origin"),
    "another scheme": (lambda request: moved("http://mcp.example.com/card"), "is not followed"),
    "this machine": (lambda request: moved("https://127.0.0.1/card"), "leads to another origin"),
    "no end of redirections": (Loop(), "redirected more than 3 times"),
    "invalid UTF-8": (lambda request: body(b'{"name": "\xff"}'), "it is not valid UTF-8"),
    "no JSON": (lambda request: body(b"{"), "it is not valid JSON: "),
    "nothing": (lambda request: body(b""), "it is not valid JSON: "),
    "not a number": (lambda request: body(b'{"a": NaN}'), "it is not valid JSON: NaN is not JSON"),
    "a number of many digits": (lambda request: body(b"1" * 5000), "it is not valid JSON: "),
    "a key twice": (
        lambda request: body(json.dumps(RIGHT)[:-1].encode() + b', "name": "com.evil/x"}'),
        "the key 'name' is there twice",
    ),
    "deep": (lambda request: body(b"[" * 30_000 + b"]" * 30_000), "nested"),
    "deep, but not too deep for Python": (
        lambda request: card(_meta={"a": json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)}),
        f"it is nested more than {MAX_DEPTH} levels deep",
    ),
    "a list": (lambda request: body(b"[]"), "the document: "),
    "a null": (lambda request: card(title=None), "title: is null; leave it out instead"),
    "no name": (lambda request: body(json.dumps({**RIGHT, "name": 5}).encode()), "name: "),
    "a name of another form": (lambda request: card(name="weather"), "name: 'weather' is not of the form"),
    "another schema": (
        lambda request: card(**{"$schema": "https://evil.example"}),
        "is not the schema of server cards",
    ),
    "a long description": (lambda request: card(description="x" * 101), "description: has 101 characters"),
    "a range": (lambda request: card(version=">=1.0"), "version: '>=1.0' is not one version"),
    "control characters": (lambda request: card(name="com.example/\x1b[31m\n"), "is not of the form"),
    "an unknown transport": (lambda request: card(remotes=[{"type": "stdio", "url": SERVER}]), "remotes[0].type: "),
    "a file": (
        lambda request: remote("file:///etc/passwd"),
        "remotes[0].url: 'file:///etc/passwd' begins neither with",
    ),
    "a remote without TLS": (lambda request: remote("http://mcp.example.com/mcp"), "is not https"),
    "a remote on this machine": (
        lambda request: remote("http://localhost:8000/mcp"),
        "leads to this machine, but the MCP",
    ),
    "a remote in a private network": (lambda request: remote("https://10.0.0.1/mcp"), "leads to a private network"),
    "a remote at the metadata of a cloud": (lambda request: remote("https://169.254.169.254/x"), "is never allowed"),
    "a remote that hides its address": (lambda request: remote("https://2130706433/mcp"), "has no valid host"),
    "a remote that hides it in hex": (lambda request: remote("https://0x7f000001/mcp"), "has no valid host"),
    "a remote of IPv6": (lambda request: remote("https://[::1]/mcp"), "leads to this machine"),
    "a remote with a password": (lambda request: remote("https://u:p@mcp.example.com/"), "contains a user name"),
    "an icon without a URL": (lambda request: card(icons=[{"src": "\x00"}]), "icons[0].src: "),
    "surrogates": (lambda request: card(name="\ud800/x"), "name: "),
}


def test_there_are_thirty_hostile_cards_and_more() -> None:
    assert len(HOSTILE) >= 30


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_card_is_one_clear_error(name: str, autojump_clock: trio.testing.MockClock) -> None:
    respond, said = HOSTILE[name]
    with pytest.raises(CardError) as caught:
        await read(respond)
    text = str(caught.value)
    assert text.startswith(f"no server card at '{SERVER}/server-card': ")
    assert said in text
    assert text.isprintable()
    assert len(text) < 1000
    assert caught.value.url == f"{SERVER}/server-card"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "169.254.169.254"])
async def test_a_name_that_leads_elsewhere_by_now(address: str) -> None:
    """The origin stays the same, but what it leads to does not: the redirection is to the address of the first time."""
    asked: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return moved("/other") if len(asked) == 1 else card()

    public = "93.184.216.34"
    with pytest.raises(CardError):
        # Resolved for the exchange, then for the second one, then as what is near.
        await read(respond, mcp_example_com=[[public], [address], [public]])
    assert asked == [public]


async def test_cancelled_anywhere_it_leaves_no_connection_behind() -> None:
    connections: set[trio.SocketStream] = set()
    content = json.dumps({key: value for key, value in RIGHT.items() if key != "remotes"}).encode()
    response = f"HTTP/1.1 200 OK\r\nContent-Type: {TYPE}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content

    async def respond(stream: trio.SocketStream) -> None:
        connections.add(stream)
        try:
            async with stream:
                await stream.receive_some()
                await stream.send_all(response)
                while await stream.receive_some():
                    pass
        except trio.BrokenResourceError:
            pass
        finally:
            connections.discard(stream)

    async with trio.open_nursery() as nursery:
        listener = (await nursery.start(partial(trio.serve_tcp, respond, 0, host="127.0.0.1")))[0]
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"

        async def once() -> None:
            assert (await discover_card(url)).name == RIGHT["name"]

        async def all_closed() -> None:
            await eventually(lambda: not connections)

        assert await cancel_everywhere(once, all_closed) > 5
        nursery.cancel_scope.cancel()
