"""An endpoint publishes the card of its server (SEP-2127, docs/discovery.md): off unless set, and open to everybody."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio

from trio_mcp import Client, Server
from trio_mcp.auth import ResourceServer
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.server_card import CardRepository, CardSettings, NamedInput, ServerCard, discover_card
from trio_mcp.types import Icon, Implementation
from trio_mcp.types.versions import REVISIONS

URL = "https://weather.example.com/mcp"
CARD = CardSettings(name="com.example/weather", url=URL)
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "Content-Type, If-None-Match",
    "access-control-expose-headers": "ETag",
}
CATALOGS = ("/.well-known/ai-catalog.json", "/.well-known/mcp/catalog.json")
SECRET = "canary"


def made(**info: Any) -> Server:
    said = {"name": "weather", "version": "1.2.0", "description": "What the weather is.", **info}
    server = Server(Implementation(**said), instructions=SECRET)

    @server.tool
    def forecast() -> str:
        """Canary."""
        return SECRET

    return server


@contextlib.asynccontextmanager
async def served(server: Server, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, port=0, **settings))
        async with httpx.AsyncClient(base_url=url.removesuffix("/mcp")) as http:
            yield http
        nursery.cancel_scope.cancel()


RUNNERS = ["hypercorn", "h11", pytest.param("httptools", marks=pytest.mark.again)]


@pytest.mark.parametrize("runner", RUNNERS)
async def test_what_everybody_gets(runner: str) -> None:
    async with served(made(), runner=runner, card=CARD) as http:
        # A bare GET, and one that says what it wants.
        found = await http.get("/mcp/server-card")
        assert (
            await http.get("/mcp/server-card/", headers={"Accept": "application/mcp-server-card+json"})
        ).content == (found.content)
        assert (found.status_code, found.headers["content-type"]) == (200, "application/mcp-server-card+json")
        assert found.json() == {
            "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
            "name": "com.example/weather",
            "description": "What the weather is.",
            "version": "1.2.0",
            "remotes": [
                {"type": "streamable-http", "url": URL, "supportedProtocolVersions": [*reversed(REVISIONS)]},
            ],
        }
        assert found.headers["cache-control"] == "public, max-age=3600"
        assert CORS.items() <= {**found.headers}.items()
        for path in CATALOGS:
            catalog = await http.get(path)
            assert (catalog.status_code, catalog.headers["content-type"]) == (200, "application/ai-catalog+json")
            assert catalog.json() == {
                "specVersion": "1.0",
                "entries": [
                    {
                        "identifier": "urn:air:example.com:mcp:weather",
                        "displayName": "weather",
                        "type": "application/mcp-server-card+json",
                        "url": f"{URL}/server-card",
                    }
                ],
            }
        assert SECRET not in found.text.lower()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("path", ["/mcp/server-card", *CATALOGS])
async def test_methods_and_validators(runner: str, path: str) -> None:
    async with served(made(), runner=runner, card=CARD) as http:
        found = await http.get(path)
        tag = found.headers["etag"]
        head = await http.head(path)
        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
        for given in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            unchanged = await http.get(path, headers={"If-None-Match": given})
            assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
            assert "content-length" not in unchanged.headers
            assert CORS.items() <= {**unchanged.headers}.items()
        assert (await http.get(path, headers={"If-None-Match": '"x"'})).content == found.content
        for method in ("POST", "PUT", "DELETE"):
            refused = await http.request(method, path, content=b"{}" if method != "DELETE" else None)
            assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        asked = {"Origin": "https://other.example", "Access-Control-Request-Method": "GET"}
        preflight = await http.options(path, headers={**asked, "Access-Control-Request-Headers": "if-none-match"})
        assert preflight.status_code == 204
        assert CORS.items() <= {**preflight.headers}.items()


async def test_it_is_off_unless_set() -> None:
    async with served(made()) as http:
        for path in ("/mcp/server-card", *CATALOGS):
            assert (await http.get(path)).status_code == 404


async def test_pages_of_any_origin_read_it_but_may_not_call() -> None:
    """Also where `cors` is on for others: there is one Access-Control-Allow-Origin, and it is the draft's."""
    page = {"Origin": "https://other.example"}
    async with served(made(), card=CARD, cors=True, allowed_origins=["https://app.example"]) as http:
        for headers in (page, {"Origin": "https://app.example"}):
            found = await http.get("/mcp/server-card", headers=headers)
            assert found.headers.get_list("access-control-allow-origin") == ["*"]
        assert (await http.post("/mcp", headers=page, json={})).status_code == 403


async def test_a_protected_server_publishes_its_card_and_nothing_else() -> None:
    auth = ResourceServer(URL, issuers=["https://id.example.com"])
    async with served(made(), card=CARD, auth=auth) as http:
        found = await http.get("/mcp/server-card")
        assert (found.status_code, SECRET in found.text.lower()) == (200, False)
        assert (await http.post("/mcp", json={})).status_code == 401
        assert (await http.get("/mcp")).status_code == 401


async def test_what_a_card_can_hold() -> None:
    icon = Icon(src="https://weather.example.com/i.png", mime_type="image/png", sizes=["48x48"])
    server = made(title="Weather", website_url="https://weather.example.com", icons=[icon])
    key = NamedInput(name="X-Key", is_required=True, is_secret=True)
    card = CardSettings(
        name="com.example/weather",
        url=f"{URL}/",
        description="Forecasts.",
        repository=CardRepository(url="https://github.com/example/weather", source="github"),
        headers=[key],
        max_age=60,
    )
    async with served(server, card=card) as http:
        found = await http.get("/mcp/server-card")
        assert found.headers["cache-control"] == "public, max-age=60"
        read = ServerCard.from_wire(found.json())
        assert (read.title, read.website_url, read.description) == (
            "Weather",
            "https://weather.example.com",
            "Forecasts.",
        )
        assert found.json()["icons"] == [icon.to_wire()]
        assert found.json()["repository"] == {"url": "https://github.com/example/weather", "source": "github"}
        assert found.json()["remotes"][0]["headers"] == [key.to_wire()]
        assert (await http.get(CATALOGS[0])).json()["entries"][0]["url"] == f"{URL}/server-card"


async def test_the_revisions_are_those_that_are_served() -> None:
    server = Server(Implementation(name="w", version="1", description="w"), revisions=["2026-07-28"])
    async with served(server, card=CARD) as http:
        remotes = (await http.get("/mcp/server-card")).json()["remotes"]
        assert remotes[0]["supportedProtocolVersions"] == ["2026-07-28"]


@pytest.mark.parametrize("root", ["", "/weather"])
async def test_in_an_application_of_others(root: str) -> None:
    """The card is below the endpoint; the catalogue is that of the origin, wherever the application is mounted."""
    async with made().asgi_app(card=CARD) as app:

        async def mounted(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "root_path": root}, receive, send)

        transport = httpx.ASGITransport(mounted)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get(f"{root}/mcp/server-card")).json()["name"] == "com.example/weather"
            assert (await http.get(CATALOGS[0])).status_code == 200 if not root else True
            assert (await http.get(f"{root}{CATALOGS[0]}")).status_code == (404 if root else 200)
            unchanged = await http.get(f"{root}/mcp/server-card", headers={"If-None-Match": "*"})
            assert unchanged.status_code == 304


async def test_a_client_reads_it_and_connects_to_what_it_says() -> None:
    async with trio.open_nursery() as nursery:
        # The address must be known before there is a card with it.
        with _free_port() as port:
            url = f"http://127.0.0.1:{port}/mcp"
        card = CardSettings(name="com.example/weather", url=url)
        assert await nursery.start(partial(made().serve_http, port=port, card=card)) == url
        found = await discover_card(url)
        assert await Client.discover_card(url) == found
        assert found.remotes is not None
        async with Client(found.remotes[0].url) as client:
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.version) == ("weather", found.version)
        nursery.cancel_scope.cancel()


@contextlib.contextmanager
def _free_port() -> Any:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"name": "weather"}, ValueError, "'weather' is not of the form namespace/name, such as com.example/weather"),
        ({"name": 5}, ValueError, "name: "),
        ({"name": "x/" + "y" * 200}, ValueError, "name: has 202 characters; at most 200 are allowed"),
        ({"description": "x" * 101}, ValueError, "description: has 101 characters; at most 100 are allowed"),
        ({"description": ""}, ValueError, "description: is empty"),
        ({"url": "weather.example.com"}, ValueError, "url is not an https or http URL"),
        ({"url": None}, TypeError, "url must be a string, got None"),
        ({"url": "http://weather.example.com/mcp"}, ValueError, "is not https, which cards must be served over"),
        ({"url": "wss://weather.example.com/mcp"}, ValueError, "is not the http or https URL of an endpoint"),
        ({"url": f"{URL}?tenant=1"}, ValueError, "without a query"),
        ({"url": "https://me:secret@weather.example.com/mcp"}, ValueError, "contains a user name or a password"),
        ({"max_age": -1}, ValueError, "max_age"),
        ({"max_age": float("inf")}, ValueError, "max_age"),
        ({"headers": ["X-Key"]}, TypeError, "each of the headers must be a NamedInput, got str"),
        ({"repository": "https://github.com/a/b"}, TypeError, "repository must be a CardRepository, got str"),
    ],
)
def test_settings_are_checked_at_once(changed: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        attrs.evolve(CARD, **changed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"card": "com.example/weather"}, TypeError, "card must be a CardSettings of trio_mcp.server_card"),
        ({"card": CardSettings}, TypeError, "card must be a CardSettings of trio_mcp.server_card"),
        (
            {"card": CARD, "path": None, "sse_path": "/sse"},
            ValueError,
            "card describes the endpoint at path=, but path",
        ),
        ({"card": CARD, "health_path": "/mcp/server-card"}, ValueError, "the paths of a server must be distinct"),
    ],
)
def test_options_are_checked(settings: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        HttpOptions(**settings)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"description": None}, "a server card needs a description: give CardSettings one, or the server"),
        ({"description": "x" * 101}, "description: has 101 characters; at most 100 are allowed"),
        ({"title": "x" * 101}, "title: has 101 characters; at most 100 are allowed"),
        ({"version": "^1.0"}, "version: '^1.0' is not one version, such as 1.2.0"),
        ({"icons": [Icon(src="data:image/png;base64," + "A" * 70_000)]}, "bytes, but clients read at most 65536"),
    ],
)
async def test_a_server_that_no_card_can_describe_does_not_begin_to_serve(info: dict[str, Any], said: str) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match=said.replace("^", "."))):
        async with served(made(**info), card=CARD):
            pytest.fail("it serves")
