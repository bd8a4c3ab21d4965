"""Scopes of tools, resources and prompts: a request without them is refused before anything of it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
import trio
from pydantic_core import from_json, to_json
from trio.testing import MockClock

from tests.auth.server.guarded import META, Exchange, Legacy, Table, ask, modern, person, protected, under_way
from tests.http_peer import request
from tests.websocket.test_asgi import CONNECT, SCOPE, Driver
from trio_mcp import CacheHint, Client, Context, Entry, Server

LISTEN = {"notifications": {"resourceSubscriptions": ["app://open", "app://secret"], "resourcesListChanged": True}}


def office(ran: list[str], **arguments: Any) -> Server:
    server = Server("office", **arguments)

    @server.tool(scopes={"write"})
    async def write(path: str) -> str:
        ran.append("write")
        return path

    @server.tool
    async def look() -> str:
        ran.append("look")
        return "seen"

    @server.resource("app://open", cache=CacheHint(ttl=60, scope="public"))
    async def open_() -> str:
        return "open"

    @server.resource("app://secret", scopes=["secret"], cache=CacheHint(ttl=60, scope="public"))
    async def secret() -> str:
        ran.append("secret")
        return "secret"

    # Which one a URI means depends on the type of the value: by the first alone, `users://bob` would need nothing.
    @server.resource("users://{id}")
    async def by_number(id: int) -> str:
        return f"number {id}"

    @server.resource("users://{name}", scopes={"users", "read"})
    async def by_name(name: str) -> str:
        ran.append("users")
        return name

    @server.prompt(scopes={"prompts"})
    async def advise(kind: Literal["good", "bad"]) -> str:
        ran.append("advise")
        return kind

    return server


def ref(kind: str, name: str, argument: str) -> dict[str, Any]:
    key = "name" if kind == "ref/prompt" else "uri"
    return {"ref": {"type": kind, key: name}, "argument": {"name": argument, "value": ""}}


# A request, and the scopes that it needs.
OPERATIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a tool": ("tools/call", {"name": "write", "arguments": {"path": "x"}}, "write"),
    "a tool with wrong arguments": ("tools/call", {"name": "write", "arguments": 5}, "write"),
    "an open tool": ("tools/call", {"name": "look", "arguments": {}}, ""),
    "an unknown tool": ("tools/call", {"name": "nothing", "arguments": {}}, ""),
    "a resource": ("resources/read", {"uri": "app://secret"}, "secret"),
    "an open resource": ("resources/read", {"uri": "app://open"}, ""),
    "a template": ("resources/read", {"uri": "users://bob"}, "read users"),
    "an open template": ("resources/read", {"uri": "users://5"}, ""),
    "a prompt": ("prompts/get", {"name": "advise", "arguments": {"kind": "good"}}, "prompts"),
    "a completion of a prompt": ("completion/complete", ref("ref/prompt", "advise", "kind"), "prompts"),
    "a completion of a template": ("completion/complete", ref("ref/resource", "users://{name}", "name"), "read users"),
    "the lists": ("tools/list", {}, ""),
}
MODERN_ONLY = {"a stream of changes": ("subscriptions/listen", LISTEN, "secret")}
LEGACY_ONLY = {"a subscription": ("resources/subscribe", {"uri": "app://secret"}, "secret")}


@pytest.mark.parametrize("operation", OPERATIONS | MODERN_ONLY)
async def test_a_modern_request_needs_its_scopes_and_names_all_of_them(operation: str) -> None:
    method, params, scopes = (OPERATIONS | MODERN_ONLY)[operation]
    ran: list[str] = []
    auth = Table({"none": person("ann"), "all": person("ann", *scopes.split())})
    async with protected(office(ran), auth) as app:
        refused = await ask(app, modern("none", method, **params))
        if scopes:
            assert (refused.status, ran) == (403, [])
            assert refused.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scopes}"'
            # The body, too, is left unread where the headers name the operation.
            assert refused.unread == (method in ("tools/call", "resources/read", "prompts/get"))
        else:
            assert refused.status == 200
        with trio.move_on_after(0.1):
            granted = modern("all", method, **params)
            await ask(app, granted)
        assert granted.status == 200


@pytest.mark.legacy
@pytest.mark.parametrize("operation", OPERATIONS | LEGACY_ONLY)
async def test_a_legacy_request_needs_its_scopes_once_its_body_is_known(operation: str) -> None:
    method, params, scopes = (OPERATIONS | LEGACY_ONLY)[operation]
    ran: list[str] = []
    auth = Table({"none": person("ann"), "all": person("ann", *scopes.split())})
    async with protected(office(ran), auth) as app:
        session = Legacy(app, "none")
        await session.initialize()
        refused = await session.call(method, **params)
        if scopes:
            assert (refused.status, ran, refused.json["id"]) == (403, [], 5)
            assert f'scope="{scopes}"' in refused.headers["www-authenticate"]
        else:
            assert refused.status == 200
        session.token = "all"  # a newer token of the same person goes on with the session
        assert (await session.call(method, **params)).status == 200


@pytest.mark.legacy
async def test_a_missing_scope_refuses_all_of_a_batch() -> None:
    ran: list[str] = []
    calls = [
        request(method, params, number)
        for number, (method, params, _) in enumerate(map(OPERATIONS.get, ("an open tool", "a tool", "a prompt")))  # type: ignore[misc]
    ]
    auth = Table({"one": person("ann", "write"), "all": person("ann", "write", "prompts")})
    async with protected(office(ran), auth) as app:
        session = Legacy(app, "one", "2025-03-26")
        await session.initialize()
        refused = await session.send(calls)
        assert (refused.status, ran) == (403, [])
        assert 'scope="prompts write"' in refused.headers["www-authenticate"]
        session.token = "all"
        assert len((await session.send(calls)).json) == 3
        assert sorted(ran) == ["advise", "look", "write"]


@pytest.mark.legacy
@pytest.mark.parametrize(
    ("fields", "status"),
    [
        # The headers of a modern request on a legacy one: they name another operation than the body.
        ({"mcp_method": "tools/call", "mcp_name": "look"}, 403),
        ({"mcp_method": "tools/call", "mcp_name": "look", "mcp_protocol_version": "2026-07-28"}, 400),
        ({"mcp_method": "tools/call", "mcp_name": "=?base64?bG9vaw==?=", "mcp_protocol_version": "2026-07-28"}, 400),
        ({"mcp_method": "tools/call", "mcp_name": "=?base64?!?=", "mcp_protocol_version": "2026-07-28"}, 400),
        ({"mcp_method": "tools/call", "mcp_name": "=?base64?d3JpdGU=?=", "mcp_protocol_version": "2026-07-28"}, 403),
        ({"mcp_protocol_version": "2099-01-01", "mcp_method": "tools/call", "mcp_name": "look"}, 400),
    ],
)
async def test_headers_unlike_the_body_open_nothing(fields: dict[str, str], status: int) -> None:
    ran: list[str] = []
    async with protected(office(ran), Table({"none": person("ann")})) as app:
        session = Legacy(app, "none")
        await session.initialize()
        body = request("tools/call", {"name": "write", "arguments": {"path": "x"}, "_meta": META}, 1)
        if "mcp_protocol_version" not in fields:
            del body["params"]["_meta"]
        assert ((await session.send(body, **fields)).status, ran) == (status, [])


async def test_what_every_request_needs_is_part_of_each_challenge() -> None:
    auth = Table({"none": person("ann"), "base": person("ann", "base")}, base={"base"})
    async with protected(office([]), auth) as app:
        for token, method, params, scope in [
            ("none", "tools/list", {}, "base"),
            ("none", "tools/call", {"name": "write", "arguments": {}}, "base write"),
            ("base", "tools/call", {"name": "write", "arguments": {}}, "base write"),
        ]:
            r = await ask(app, modern(token, method, **params))
            assert (r.status, f'scope="{scope}"' in r.headers["www-authenticate"]) == (403, True)
        session = Legacy(app, "none")
        assert (await session.initialize()).status == 403
        for method in ("GET", "DELETE"):
            assert (await ask(app, session.made(method, mcp_session_id="x"))).status == 403


async def test_a_mounted_tool_keeps_its_scopes_under_its_new_name() -> None:
    ran: list[str] = []
    inner = office(ran)
    outer, top = Server("outer"), Server("top")
    outer.mount(inner, prefix="in")
    top.mount(outer, prefix="up")
    auth = Table({"none": person("ann"), "all": person("ann", "write", "late")})
    async with protected(top, auth) as app:

        @inner.tool(scopes={"late"})
        async def late() -> str:
            ran.append("late")
            return "late"

        for name, arguments in (("up__in__write", {"path": "x"}), ("up__in__late", {})):
            for token, status in (("none", 403), ("all", 200)):
                assert (await ask(app, modern(token, "tools/call", name=name, arguments=arguments))).status == status
        assert ran == ["write", "late"]


@pytest.mark.parametrize("mount", [False, True])
async def test_a_middleware_sees_nothing_of_what_is_refused_and_can_reach_nothing_that_it_renames(mount: bool) -> None:
    ran: list[str] = []
    seen: list[str] = []

    async def rename(context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        seen.append(context.params.get("name", ""))
        if context.method == "tools/call":
            context.params = {**context.params, "name": context.params["name"].replace("look", "write")}
            context.params["arguments"] = {"path": "x"}
        return await call_next()

    server = office(ran, middleware=[rename])
    if mount:
        outer = Server("outer")
        outer.mount(server)
        server = outer
    async with protected(server, Table({"none": person("ann"), "all": person("ann", "write")})) as app:
        assert (await ask(app, modern("none", "tools/call", name="write", arguments={}))).status == 403
        assert seen == []
        r = await ask(app, modern("none", "tools/call", name="look", arguments={}))
        assert (r.status, 'scope="write"' in r.headers["www-authenticate"], ran) == (403, True, [])
        r = await ask(app, modern("all", "tools/call", name="look", arguments={}))
        assert (r.json["result"]["structuredContent"], ran) == ({"result": "x"}, ["write"])


@pytest.mark.parametrize(
    "operation", [name for name, (_, _, scopes) in (OPERATIONS | MODERN_ONLY).items() if scopes and "wrong" not in name]
)
async def test_what_is_hidden_is_unknown_before_it_is_forbidden(operation: str, autojump_clock: MockClock) -> None:
    """A 403 for a tool that its client must not know of would tell that there is one."""

    def visible(context: Context[Any], entry: Entry[Any]) -> bool:
        return context.principal is not None and context.principal.subject == "ann"

    method, params, scopes = (OPERATIONS | MODERN_ONLY)[operation]
    ran: list[str] = []
    auth = Table({"ann": person("ann"), "bob": person("bob"), "all": person("ann", *scopes.split())})
    async with protected(office(ran, visible=visible), auth) as app:
        answers = {token: modern(token, method, **params) for token in auth.tokens}
        for each in answers.values():
            with trio.move_on_after(1):  # to listen takes longer
                await ask(app, each)
        assert (answers["ann"].status, answers["ann"].json["id"]) == (403, 1)
        assert f'scope="{scopes}"' in answers["ann"].headers["www-authenticate"]
        assert [answers[token].status for token in ("bob", "all")] == [200, 200]
        assert b"insufficient_scope" not in answers["bob"].body
        assert len(ran) <= 1


async def test_no_cache_may_share_what_needs_a_scope() -> None:
    async with protected(office([]), Table({"all": person("ann", "secret")})) as app:
        for uri, scope in (("app://open", "public"), ("app://secret", "private")):
            r = await ask(app, modern("all", "resources/read", uri=uri))
            assert r.json["result"]["cacheScope"] == scope


async def test_a_list_shows_what_needs_scopes() -> None:
    async with protected(office([]), Table({"none": person("ann")})) as app:
        names = [each["name"] for each in (await ask(app, modern("none", "tools/list"))).json["result"]["tools"]]
        assert names == ["write", "look"]


async def test_on_a_websocket_the_request_alone_is_refused(autojump_clock: MockClock) -> None:
    ran: list[str] = []
    seen: list[Any] = []

    async def see(context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        seen.append(context.params["name"])
        return await call_next()

    headers = [*SCOPE["headers"], (b"authorization", b"Bearer ann")]
    auth = Table({"ann": person("ann")})
    async with (
        protected(office(ran, middleware=[see]), auth, path=None, websocket_path="/ws") as app,
        trio.open_nursery() as nursery,
    ):
        driver = Driver()
        driver.put(CONNECT)
        nursery.start_soon(driver.run, app, {"path": "/ws", "headers": headers})
        for number, name in enumerate(("write", "look")):
            call = request("tools/call", {"name": name, "arguments": {"path": "x"}, "_meta": META}, number)
            driver.put({"type": "websocket.receive", "text": to_json(call).decode()})
        _, *answers = await driver.sends(3)
        refused, _ = sorted(answers, key=lambda each: from_json(each["text"])["id"])
        assert "insufficient_scope" in refused["text"]
        assert (ran, seen) == ([], ["look"])
        driver.put({"type": "websocket.disconnect"})
        await driver.over.wait()


@pytest.mark.legacy
async def test_a_message_of_http_sse_needs_its_scopes() -> None:
    ran: list[str] = []
    async with protected(office(ran), Table({"ann": person("ann")}), sse_path="/sse") as app:
        stream = Exchange("GET", "ann", b"", "/sse")
        async with under_way(app, stream):
            path = stream.events()[0].data.decode()
            call = request("tools/call", {"name": "write", "arguments": {"path": "x"}}, 1)
            r = await ask(app, Exchange("POST", "ann", call, path))
            assert (r.status, 'scope="write"' in r.headers["www-authenticate"]) == (403, True)


@pytest.mark.parametrize("how", ["own", "mounted"])
async def test_http_with_scopes_and_without_auth_does_not_start(how: str) -> None:
    server = office([])
    if how == "mounted":
        server, inner = Server("outer"), server
        server.mount(inner, prefix="in")
    with pytest.raises(ValueError, match=r"^(prompt|template) .*needs scopes, .* serve with auth="):
        async with server.asgi_app():
            pass
    with pytest.raises(ValueError, match="needs scopes"):
        await server.serve_http(port=0)


async def test_what_is_added_later_with_scopes_is_refused_without_auth() -> None:
    server = Server("late")
    async with server.asgi_app() as app:

        @server.tool(scopes={"write"})
        async def write() -> str:
            return "written"

        r = await ask(app, modern(None, "tools/call", name="write", arguments={}))
        assert "checks no tokens" in r.json["error"]["message"]


async def test_in_memory_scopes_do_not_hold() -> None:
    async with Client(office([])) as client:
        assert (await client.call_tool("write", {"path": "x"})).data == "x"


@pytest.mark.parametrize("scopes", ["write", [""], ["a b"], ['a"b'], ["ä"], [5], 5])
def test_what_is_no_set_of_scopes_is_refused(scopes: Any) -> None:
    server = Server("s")
    for register in (
        lambda: server.add_tool(lambda: None, name="x", scopes=scopes),
        lambda: server.add_prompt(lambda: "", name="x", scopes=scopes),
        lambda: server.add_resource("a://b", lambda: "", name="x", scopes=scopes),
    ):
        with pytest.raises((TypeError, ValueError), match=r"scope|iterable"):
            register()
