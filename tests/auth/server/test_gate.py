"""Every way into a protected server asks for a token, before anything else is done; a few things need none."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pydantic_core import to_json
from trio.testing import MockClock

from tests.auth.server.guarded import DOCUMENT, META, Exchange, Legacy, Table, ask, modern, person, protected
from tests.http_peer import ACCEPT, request
from tests.injection import cancel_everywhere
from tests.websocket.test_asgi import CONNECT, SCOPE, Driver
from trio_mcp import Context, Principal, Server
from trio_mcp.http.server.options import HttpOptions

APP = "https://app.example.com"
PATHS: dict[str, Any] = {"sse_path": "/sse", "websocket_path": "/ws", "cors": True, "allowed_origins": [APP]}
ALICE = person("alice", "read")


def table(**more: Principal) -> Table:
    return Table({"alice": ALICE, **more})


def told() -> tuple[Server, list[Context[Any]]]:
    server, contexts = Server("told"), list[Context[Any]]()

    @server.tool
    async def who(ctx: Context[Any]) -> str:
        contexts.append(ctx)
        return "unknown" if ctx.principal is None else ctx.principal.subject

    return server, contexts


ENTRANCES = {
    "a modern request": ("POST", "/mcp", {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}),
    "a legacy request": ("POST", "/mcp", {}),
    "an unknown session": ("POST", "/mcp", {"mcp_session_id": "x"}),
    "a stream": ("GET", "/mcp", {"accept": ACCEPT}),
    "a resumption": ("GET", "/mcp", {"mcp_session_id": "x", "last_event_id": "0-1"}),
    "an end": ("DELETE", "/mcp", {"mcp_session_id": "x"}),
    "another method": ("PUT", "/mcp", {}),
    "another type": ("POST", "/mcp", {"content_type": "text/plain"}),
    "a stream of HTTP+SSE": ("GET", "/sse", {}),
    "a message of HTTP+SSE": ("POST", "/messages?session_id=x", {}),
    "a WebSocket": ("GET", "/ws", {"connection": "upgrade", "upgrade": "websocket", "sec_websocket_key": "x"}),
    "half a WebSocket": ("GET", "/ws", {}),
}


@pytest.mark.parametrize("token", [None, "mallory", "alice, Bearer alice"])
@pytest.mark.parametrize("entrance", ENTRANCES)
async def test_without_a_token_every_way_in_is_closed_and_no_body_is_read(entrance: str, token: str | None) -> None:
    method, path, fields = ENTRANCES[entrance]
    server, _ = told()
    async with protected(server, table(), **PATHS) as app:
        r = await ask(app, Exchange(method, token, b"{" * 100, path, **fields))
        assert (r.status, r.headers["www-authenticate"], r.unread) == (401, "Bearer", True)
    assert not server.statistics().sessions


@pytest.mark.parametrize(
    ("method", "path", "fields", "status"),
    [
        ("GET", "/health", {}, 200),
        ("GET", DOCUMENT, {}, 200),
        ("GET", DOCUMENT, {"host": "mcp.example.com"}, 200),
        ("HEAD", DOCUMENT, {}, 200),
        ("POST", DOCUMENT, {}, 404),
        ("GET", "/.well-known/oauth-protected-resource/other", {}, 404),
        ("GET", DOCUMENT, {"origin": "https://evil.example"}, 403),
        ("OPTIONS", "/mcp", {"origin": "https://app.example.com", "access_control_request_method": "POST"}, 204),
        ("POST", "/mcp", {"origin": "https://evil.example"}, 403),
        ("POST", "/mcp", {"host": "evil.example"}, 403),
    ],
)
async def test_what_needs_no_token(method: str, path: str, fields: dict[str, str], status: int) -> None:
    """The page of a foreign origin learns nothing, not even that a token is missing."""
    auth = table()
    async with protected(told()[0], auth, **PATHS) as app:
        r = await ask(app, Exchange(method, None, b"", path, **fields))
        assert (r.status, auth.judged) == (status, 0)
        if status == 204:
            assert "DPoP" in r.headers["access-control-allow-headers"]
            assert "Authorization" in r.headers["access-control-allow-headers"]


async def test_pages_can_read_the_challenge_and_the_nonce() -> None:
    async with protected(told()[0], table(), **PATHS) as app:
        r = await ask(app, Exchange("GET", None, origin="https://app.example.com"))
        exposed = r.headers["access-control-expose-headers"]
        assert (r.status, "WWW-Authenticate" in exposed, "DPoP-Nonce" in exposed) == (401, True, True)


async def test_below_a_mount_the_document_is_found_by_the_path_from_the_root() -> None:
    async with protected(told()[0], table()) as app:
        r = Exchange("GET", None, b"", f"/files{DOCUMENT}")
        r.scope["root_path"] = "/files"
        assert (await ask(app, r)).status == 404
        r = Exchange("GET", None, b"", DOCUMENT)
        assert (await ask(app, r)).status == 200


async def test_handlers_get_the_principal_and_no_credentials() -> None:
    server, contexts = told()
    secret = {"cookie": "sid=1", "dpop": "proof", "x_other": "shown"}
    async with protected(server, table()) as app:
        r = modern("alice", "tools/call", name="who", arguments={})
        r.scope["headers"] += [(name.replace("_", "-").encode(), value.encode()) for name, value in secret.items()]
        assert (await ask(app, r)).json["result"]["structuredContent"] == {"result": "alice"}
        assert r.headers["dpop-nonce"] == "n1"
        legacy = Legacy(app, "alice")
        await legacy.initialize()
        r = await legacy.send(request("tools/call", {"name": "who", "arguments": {}}, 1), **secret)
        assert r.json["result"]["content"][0]["text"] == "alice"
    for context in contexts:
        assert context.principal is ALICE
        assert context.headers["x-other"] == "shown"
        assert not {"authorization", "cookie", "dpop"} & set(context.headers)
        assert "alice" not in repr({**context.transport_metadata, "principal": None}) + repr(dict(context.headers))


async def test_the_servers_own_function_decides_who_it_is() -> None:
    server = Server("own", principal=lambda ctx: f"{ctx.principal and ctx.principal.subject} of acme")

    @server.tool
    async def who(ctx: Context) -> str:
        assert ctx.principal is not None
        return ctx.principal.subject

    async with protected(server, table()) as app:
        r = await ask(app, modern("alice", "tools/call", name="who", arguments={}))
        assert r.json["result"]["structuredContent"] == {"result": "alice of acme"}


async def test_a_head_that_is_remembered_does_not_stand_for_its_token() -> None:
    auth = table(bob=person("bob"))
    async with protected(told()[0], auth) as app:
        for number, (token, expected) in enumerate(
            [("alice", "alice"), ("alice", "alice"), ("bob", "bob"), (None, 401), ("mallory", 401), ("alice", "alice")]
        ):
            r = await ask(app, modern(token, "tools/call", name="who", arguments={}))
            found = r.status if r.status != 200 else r.json["result"]["structuredContent"]["result"]
            assert (found, auth.judged) == (expected, number + 1)


@pytest.mark.parametrize(("token", "accepted"), [("alice", True), (None, False), ("mallory", False)])
async def test_a_websocket_of_the_asgi_server(token: str | None, accepted: bool, autojump_clock: MockClock) -> None:
    headers = [*SCOPE["headers"], *([] if token is None else [(b"authorization", f"Bearer {token}".encode())])]
    server, contexts = told()
    async with protected(server, table(), path=None, websocket_path="/ws") as app, trio.open_nursery() as nursery:
        driver = Driver()
        driver.put(CONNECT)
        scope = {"path": "/ws", "headers": headers, "extensions": {"websocket.http.response": {}}}
        nursery.start_soon(driver.run, app, scope)
        answer, *_ = await driver.sends(1)
        if not accepted:
            assert (answer["type"], answer["status"]) == ("websocket.http.response.start", 401)
            assert (b"www-authenticate", b"Bearer") in answer["headers"]
            nursery.cancel_scope.cancel()
            return
        assert answer["type"] == "websocket.accept"
        call = request("tools/call", {"name": "who", "arguments": {}, "_meta": META}, 1)
        driver.put({"type": "websocket.receive", "text": to_json(call).decode()})
        assert "alice" in (await driver.sends(2))[1]["text"]
        assert not {"authorization", "cookie"} & set(contexts[0].headers)
        driver.put({"type": "websocket.disconnect"})
        await driver.over.wait()


async def test_the_block_of_the_protection_is_that_of_the_application() -> None:
    auth = table()
    app = told()[0].asgi_app(auth=auth)
    for _ in range(2):
        async with app:
            assert auth.open == 1
        assert auth.open == 0


async def test_an_exchange_that_is_cancelled_anywhere_leaves_nothing() -> None:
    server, _ = told()
    async with protected(server, table()) as app:

        async def scenario() -> None:
            await ask(app, modern("alice", "tools/call", name="who", arguments={}))

        async def check() -> None:
            statistics = app.statistics()
            assert (statistics.requests, statistics.bodies, server.statistics().sessions) == (0, 0, 0)

        assert await cancel_everywhere(scenario, check) >= 3


@pytest.mark.parametrize("wrong", ["https://id.example.com", Table, 5])
def test_what_is_no_protection_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="auth must be a ResourceServer"):
        HttpOptions(auth=wrong)
