"""HTTP headers of a single request: where they go, and that nothing learned with them serves another caller."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import attrs
import httpx
import httpx2
import pytest
import trio

from tests.http_peer import DISCOVERED, INITIALIZED, Asked, HttpPeer, event, giving, peer, plain, result
from tests.injection import cancel_everywhere
from tests.transports.http_calls import TEXT, discovered, ok, serving
from tests.transports.http_legacy import QUICK, OldServer
from trio_mcp import (
    Answers,
    Client,
    ClientGroup,
    HttpError,
    HttpServerParameters,
    LocalProtocolError,
    ResponseCache,
    Server,
    StdioServerParameters,
    TransportError,
    UnknownTool,
)
from trio_mcp.auth import BearerToken
from trio_mcp.blocking import Client as BlockingClient
from trio_mcp.client.targets import link_factory
from trio_mcp.extensions import Tasks
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.jsonrpc.messages import Request, SessionMessage
from trio_mcp.low_level import streamable_http_client
from trio_mcp.session.calls import Limits
from trio_mcp.session.limits import CallOptions

ANN, BOB = {"X-User": "ann"}, {"X-User": "bob"}
SECRET = "Bearer s3cret"


def users(server: HttpPeer, method: str) -> list[str | None]:
    return [asked.headers.get("x-user") for asked in server.asked if method in (asked.rpc, asked.method)]


def own_sender(url: str) -> Any:
    return streamable_http_client(url, reconnect=QUICK)


@contextlib.asynccontextmanager
async def on_client(package: Any, url: str) -> AsyncIterator[Any]:
    async with (
        package.AsyncClient() as http_client,
        streamable_http_client(url, http_client=http_client, reconnect=QUICK) as link,
    ):
        yield link


SENDERS: dict[str, Callable[[str], Any]] = {
    "own": own_sender,
    "httpx": partial(on_client, httpx),
    "httpx2": partial(on_client, httpx2),
}
every_sender = pytest.mark.parametrize("sender", SENDERS.values(), ids=SENDERS)


# --- where they go ------------------------------------------------------------------------------------------------


async def redirected(asked: Asked) -> None:
    await (ok(asked) if asked.path == "/moved" else asked.status(307, Location="/moved"))


@attrs.define
class Asking:
    """Asks for input in the first round."""

    rounds: int = 0

    async def __call__(self, asked: Asked) -> None:
        self.rounds += 1
        if "inputResponses" in asked.body["params"]:
            await asked.result(TEXT)
            return
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        question = {"method": "elicitation/create", "params": {"mode": "form", **form}}
        await asked.result({"resultType": "input_required", "inputRequests": {"q": question}})


REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


async def wants_region(asked: Asked) -> None:
    if "mcp-param-region" in asked.headers:
        await asked.result(TEXT)
    else:
        await asked.error(400, -32020, "Header mismatch: missing")


async def lists_region(asked: Asked) -> None:
    tools = [{"name": "t", "inputSchema": REGION}]
    await asked.result({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})


async def broken_once(asked: Asked) -> None:
    """Break the connection of the first request."""
    await (asked.abort() if asked.connection == 1 else asked.result({"resultType": "complete", "prompts": []}))


MODERN: dict[str, dict[str, Any]] = {
    "JSON": {"tools/call": ok},
    "a redirection within the origin": {"tools/call": redirected},
    "a round of input": {"tools/call": Asking()},
    "arguments in headers": {"tools/call": wants_region, "tools/list": lists_region},
}


@every_sender
@pytest.mark.parametrize("handlers", MODERN.values(), ids=MODERN)
async def test_all_that_a_call_sends_has_its_headers_and_nothing_else_does(
    sender: Callable[[str], Any], handlers: dict[str, Any]
) -> None:
    """However often the request is sent, and also to list the tools for it."""
    answers = Answers(elicitation=lambda _: {})
    async with (
        serving({"server/discover": discovered, **handlers}) as server,
        Client(lambda: sender(server.url), answers=answers) as client,
    ):
        await client.call_tool("t", {"region": "eu"}, headers=ANN)
        first = len(server.asked)
        with contextlib.suppress(HttpError):
            await client.call_tool("t", {"region": "eu"})
    sent = [asked.headers.get("x-user") for asked in server.asked]
    assert sent[1:first] == ["ann"] * (first - 1)
    assert {*sent[:1], *sent[first:]} == {None}
    assert len(sent) > first


@every_sender
async def test_each_request_method_takes_headers(sender: Callable[[str], Any]) -> None:
    async with serving({}) as server:
        server.handlers["server/discover"] = discovered
        server.otherwise = giving({"resultType": "complete", **FULL})
        async with Client(lambda: sender(server.url)) as client:
            for call in CALLS.values():
                before = len(server.asked)
                await call(client)
                assert [asked.headers.get("x-user") for asked in server.asked[before:]] == ["ann"]


FULL: dict[str, Any] = {
    **{kind: [] for kind in ("tools", "resources", "resourceTemplates", "prompts", "contents", "messages", "content")},
    "completion": {"values": []},
    "ttlMs": 0,
    "cacheScope": "private",
}


async def drained(items: AsyncIterator[Any]) -> None:
    async for _ in items:
        pass


CALLS: dict[str, Callable[[Client], Any]] = {
    "request": lambda client: client.request("com.example/x", {}, headers=ANN),
    "ping": lambda client: client.ping(headers=ANN),
    "list_tools": lambda client: client.list_tools(headers=ANN),
    "iter_tools": lambda client: drained(client.iter_tools(headers=ANN)),
    "call_tool_once": lambda client: client.call_tool_once("t", headers=ANN),
    "list_resources": lambda client: client.list_resources(headers=ANN),
    "iter_resources": lambda client: drained(client.iter_resources(headers=ANN)),
    "list_resource_templates": lambda client: client.list_resource_templates(headers=ANN),
    "iter_resource_templates": lambda client: drained(client.iter_resource_templates(headers=ANN)),
    "read_resource": lambda client: client.read_resource("x:y", headers=ANN),
    "read_resource_once": lambda client: client.read_resource_once("x:y", headers=ANN),
    "list_prompts": lambda client: client.list_prompts(headers=ANN),
    "iter_prompts": lambda client: drained(client.iter_prompts(headers=ANN)),
    "get_prompt": lambda client: client.get_prompt("p", headers=ANN),
    "get_prompt_once": lambda client: client.get_prompt_once("p", headers=ANN),
}


async def test_a_subscription_has_its_headers_in_the_modern_era_only() -> None:
    """In the legacy era it belongs to the session."""

    async def listen(asked: Asked) -> None:
        acknowledged = {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": True}},
        }
        acknowledged["params"]["_meta"] = {"io.modelcontextprotocol/subscriptionId": asked.id}  # type: ignore[index]
        await asked.events(event(acknowledged), then="gone")

    handlers = {"server/discover": discovered, "subscriptions/listen": listen}
    async with (
        serving(handlers) as server,
        Client(server.url) as client,
        client.listen(tools_list_changed=True, headers=ANN),
    ):
        assert users(server, "subscriptions/listen") == ["ann"]
    async with serving({}) as server, Client(server.url, mode="legacy") as client:
        with pytest.raises(LocalProtocolError, match="2025-11-25: its subscriptions belong to the session"):
            client.listen(tools_list_changed=True, headers=ANN)


@every_sender
async def test_a_stream_of_the_legacy_era_is_resumed_with_the_headers(sender: Callable[[str], Any]) -> None:
    async def call(asked: Asked) -> None:
        await asked.events(b"id: %d-0\ndata:\n\n" % asked.id, then="abort")

    async def get(asked: Asked) -> None:
        number = asked.headers.get("last-event-id", "").partition("-")[0]
        await (asked.events(event(result(int(number), TEXT))) if number else asked.status(405))

    async with (
        serving({"tools/call": call, "GET": get}) as server,
        Client(lambda: sender(server.url), mode="legacy") as client,
    ):
        await client.call_tool("t", headers=ANN)
        await client.call_tool("t")
    assert users(server, "tools/call") == ["ann", None]
    resumed = [asked.headers.get("x-user") for asked in server.asked if "last-event-id" in asked.headers]
    assert resumed == ["ann", None]


async def test_the_notice_of_a_cancellation_has_the_headers_of_its_call() -> None:
    """A gateway may route by them."""

    async def call(asked: Asked) -> None:
        await asked.begin_events()
        called.set()

    called = trio.Event()
    async with serving({"tools/call": call}) as server, Client(server.url, mode="legacy") as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(client.call_tool, "t", headers=ANN))
            await called.wait()
            nursery.cancel_scope.cancel()
        await server.until("notifications/cancelled")
    assert users(server, "notifications/cancelled") == ["ann"]


async def test_a_call_over_http_sse_has_its_headers() -> None:
    old = OldServer()
    async with serving(old.handlers()) as server, Client(HttpServerParameters(server.url, kind="sse")) as client:
        await client.call_tool("t", headers=ANN)
        await client.call_tool("t")
    assert users(server, "tools/call") == ["ann", None]


async def test_headers_reach_a_server_over_each_of_several_ways() -> None:
    async with (
        serving({"server/discover": discovered, "tools/call": ok}) as server,
        Client([server.url, server.url + "?2"]) as client,
    ):
        await client.call_tool("t", headers=ANN)
    assert users(server, "tools/call") == ["ann"]


# --- never to another origin ----------------------------------------------------------------------------------------

FORMS = [
    "http://{sink}/mcp",
    "//{sink}/mcp",
    "HTTP://{sink}/mcp",
    "http://{own}@{sink}/mcp",
    "http:\\\\{sink}/mcp",
    "http://{sink}#{own}",
    "http://{sink}?{own}",
    "http://{sink}\\@{own}/mcp",
    "\thttp://{sink}/mcp",
    "https://{sink}/mcp",
]


@every_sender
async def test_no_redirection_takes_headers_to_another_origin(sender: Callable[[str], Any]) -> None:
    """Each of fifty: every status that redirects, with ten ways to name another server."""
    async with peer({}) as sink, serving({"server/discover": discovered}) as server:
        own, other = (each.url.removeprefix("http://").partition("/")[0] for each in (server, sink))
        async with Client(lambda: sender(server.url)) as client:
            for status in (301, 302, 303, 307, 308):
                for form in FORMS:
                    place = form.format(sink=other, own=own)
                    server.handlers["tools/call"] = plain(status, Location=place)
                    with pytest.raises(TransportError):
                        await client.call_tool("t", headers={**ANN, "Authorization": SECRET})
        sent = users(server, "tools/call")  # some of the forms name a path of the server itself
        assert (len(sent) >= 50, set(sent), sink.connections) == (True, {"ann"}, 0)


# --- which are refused ----------------------------------------------------------------------------------------------

RESERVED = [
    *("Cookie", "Host", "DPoP", "Mcp-Session-Id", "MCP-Protocol-Version", "mcp-anything", "Connection", "Keep-Alive"),
    *("Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Type"),
    *("Accept", "Accept-Encoding", "Last-Event-ID", "Expect"),
]


@pytest.mark.parametrize("name", RESERVED)
async def test_fields_that_the_client_sets_itself_are_refused(name: str) -> None:
    async with serving({"server/discover": discovered}) as server, Client(server.url) as client:
        with pytest.raises(ValueError, match=f"headers contains '{name}', which a single request can't set"):
            await client.call_tool("t", headers={name: "x"})
        assert server.methods() == ["server/discover"]


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"a": "x\r\nb: c"}, {"a": 5}, ["a"], "a"])
async def test_what_is_no_header_is_refused(headers: Any) -> None:
    async with serving({"server/discover": discovered}) as server, Client(server.url) as client:
        with pytest.raises((TypeError, ValueError), match="headers"):
            await client.call_tool("t", headers=headers)
        assert server.methods() == ["server/discover"]


async def test_an_authorization_replaces_that_of_the_connection_in_the_modern_era() -> None:
    async with serving({"server/discover": discovered, "tools/call": ok}) as server:
        target = HttpServerParameters(server.url, headers={"Authorization": "Bearer usual"})
        async with Client(target) as client:
            await client.call_tool("t", headers={"authorization": SECRET})
            await client.call_tool("t")
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer usual", SECRET, "Bearer usual"]


@contextlib.asynccontextmanager
async def with_httpx(url: str) -> AsyncIterator[Any]:
    async with (
        httpx.AsyncClient(auth=("ann", "pw")) as http_client,
        streamable_http_client(url, http_client=http_client) as link,
    ):
        yield link


AUTHORIZED: dict[str, Callable[[str], Any]] = {
    "auth=": lambda url: HttpServerParameters(url, auth=BearerToken("usual")),
    "auth= of a function": lambda url: lambda: streamable_http_client(url, auth=BearerToken("usual")),
    "a user in the URL": lambda url: url.replace("http://", "http://ann:pw@"),
    "a client of httpx": lambda url: partial(with_httpx, url),
}


@pytest.mark.parametrize("target", AUTHORIZED.values(), ids=AUTHORIZED)
async def test_a_second_authorization_is_refused(target: Callable[[str], Any]) -> None:
    async with serving({"server/discover": discovered}) as server, Client(target(server.url)) as client:
        with pytest.raises(LocalProtocolError, match="Authorization of its own: the connection has an auth="):
            await client.call_tool("t", headers={"Authorization": SECRET})
        assert server.methods() == ["server/discover"]


async def test_an_authorization_is_refused_in_the_legacy_era() -> None:
    """Its session belongs to the user who has opened it."""
    async with serving({}) as server, Client(server.url, mode="legacy") as client:
        with pytest.raises(LocalProtocolError, match="in the legacy era a session belongs to the user"):
            await client.call_tool("t", headers={"Authorization": SECRET})
        assert "tools/call" not in server.methods()
        ORIGINS.clear()
        with pytest.raises(LocalProtocolError, match="'initialize' was not sent with an Authorization of its own"):
            async with Client(server.url, request_headers=lambda _: {"Authorization": SECRET}):
                raise AssertionError("it connected")


def in_memory() -> Any:
    return link_factory(Server("test"))()


SERVE = "from trio_mcp import Server; Server('x').run()"
OTHERS: dict[str, Any] = {
    "memory": Server("test"),
    "a function": in_memory,
    "stdio": StdioServerParameters(sys.executable, ["-c", SERVE]),
}


@pytest.mark.parametrize("target", OTHERS.values(), ids=OTHERS)
async def test_other_transports_have_no_headers(target: Any) -> None:
    async with Client(target) as client:
        with pytest.raises(LocalProtocolError, match="only a client that reaches its server over HTTP can send any"):
            await client.ping(headers=ANN)
        await client.ping()
    with pytest.raises(LocalProtocolError, match="request_headers are only for servers reached over HTTP, not"):
        async with Client(target, request_headers=lambda _: ANN):
            raise AssertionError("it connected")


async def test_one_way_without_http_is_enough_to_refuse_headers() -> None:
    """Otherwise it would depend on the moment whether they are sent."""
    async with (
        serving({"server/discover": discovered, "tools/call": ok}) as server,
        Client([server.url, StdioServerParameters(sys.executable, ["-c", SERVE])]) as client,
    ):
        with pytest.raises(LocalProtocolError, match="each of them"):
            await client.call_tool("t", headers=ANN)
    assert "tools/call" not in server.methods()


def test_no_repr_shows_them() -> None:
    limits = Limits.of(CallOptions(), {"headers": {"Authorization": SECRET}})
    assert limits.headers == {"authorization": SECRET}
    assert "s3cret" not in repr(limits) + repr(SessionMessage(Request(1, "x"), headers=limits.headers))


# --- that nothing is shared ------------------------------------------------------------------------------------------


class Private:
    """A server with a list, a resource and a tool for each user, and results that may be kept for an hour."""

    def __init__(self) -> None:
        kinds = {"tools": self.tool, "resources": self.resource, "prompts": self.prompt}
        lists = {f"{kind}/list": partial(self.listed, kind, item) for kind, item in kinds.items()}
        templates = {"resources/templates/list": partial(self.listed, "resourceTemplates", self.template)}
        self.handlers = {
            "server/discover": discovered,
            **lists,
            **templates,
            "resources/read": self.read,
            "tools/call": self.call,
        }

    @staticmethod
    def tool(user: str) -> dict[str, Any]:
        output = {"type": "object", "properties": {"who": {"const": user}}}
        properties = {"region": {"type": "string", "x-mcp-header": f"Region-{user}"}}
        return {
            "name": "t",
            "description": user,
            "inputSchema": {"type": "object", "properties": properties},
            "outputSchema": output,
        }

    @staticmethod
    def resource(user: str) -> dict[str, Any]:
        return {"uri": f"x:{user}", "name": user}

    @staticmethod
    def template(user: str) -> dict[str, Any]:
        return {"uriTemplate": f"x:{user}/{{a}}", "name": user}

    @staticmethod
    def prompt(user: str) -> dict[str, Any]:
        return {"name": user}

    async def listed(self, kind: str, item: Callable[[str], dict[str, Any]], asked: Asked) -> None:
        await self.kept(asked, {kind: [item(asked.headers.get("x-user", "anonymous"))]})

    async def read(self, asked: Asked) -> None:
        contents = [{"uri": "x:y", "text": asked.headers.get("x-user", "anonymous")}]
        await self.kept(asked, {"contents": contents})

    async def kept(self, asked: Asked, content: Mapping[str, Any]) -> None:
        await asked.result({"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public", **content})

    async def call(self, asked: Asked) -> None:
        who = asked.headers.get("x-user", "anonymous")
        await asked.result({"resultType": "complete", "content": [], "structuredContent": {"who": who}})


CACHED: dict[str, Callable[..., Any]] = {
    "tools/list": lambda client, **given: client.list_tools(**given),
    "resources/list": lambda client, **given: client.list_resources(**given),
    "resources/templates/list": lambda client, **given: client.list_resource_templates(**given),
    "prompts/list": lambda client, **given: client.list_prompts(**given),
    "resources/read": lambda client, **given: client.read_resource("x:y", **given),
}


@pytest.mark.parametrize(("method", "call"), CACHED.items(), ids=CACHED)
async def test_a_call_with_headers_neither_reads_nor_writes_the_cache(method: str, call: Callable[..., Any]) -> None:
    """Otherwise user B reads what is meant for user A, who shares the client."""
    async with serving(Private().handlers) as server, Client(server.url, cache=ResponseCache()) as client:
        for given in ({"headers": ANN}, {"headers": BOB}, {}, {"headers": ANN}, {}, {"headers": BOB}):
            user = given.get("headers", {"X-User": "anonymous"})["X-User"]
            assert f"{user!r}" in repr((await call(client, **given)).to_wire())
        assert users(server, method) == ["ann", "bob", None, "ann", "bob"]  # the second without headers was cached


async def test_calls_at_once_share_no_answer() -> None:
    """Each of twenty calls of two users gets its own user's list, beside calls without headers."""
    seen: list[bool] = []

    async def one(client: Client, user: str | None) -> None:
        headers = None if user is None else {"X-User": user}
        page = await client.list_tools(headers=headers)
        seen.append(page.tools[0].description == (user or "anonymous"))

    async with (
        serving(Private().handlers) as server,
        Client(server.url, cache=ResponseCache()) as client,
        trio.open_nursery() as nursery,
    ):
        for number in range(60):
            nursery.start_soon(one, client, ("ann", "bob", None)[number % 3])
    assert seen == [True] * 60


async def test_a_list_with_headers_teaches_no_output_schema() -> None:
    """A call without headers is held to the schema of its own list, and one with headers to none."""
    async with serving(Private().handlers) as server, Client(server.url) as client:
        await client.list_tools(headers=ANN)
        assert client.statistics().known_tools == 0
        assert (await client.call_tool("t", headers=BOB)).data == {"who": "bob"}
        assert users(server, "tools/list") == ["ann"]
        assert (await client.call_tool("t")).data == {"who": "anonymous"}
        assert users(server, "tools/list") == ["ann", None]
        assert (await client.call_tool("t", headers=ANN)).data == {"who": "ann"}
        assert users(server, "tools/list") == ["ann", None]


async def test_a_list_with_headers_teaches_no_headers_of_tools() -> None:
    """What user A's tools want in headers is not sent of user B's arguments."""
    async with serving(Private().handlers) as server, Client(server.url) as client:
        await client.list_tools(headers=ANN)
        await client.call_tool("t", {"region": "eu"}, headers=BOB)
        await client.call_tool("t", {"region": "eu"})
        calls = [asked.headers for asked in server.asked if asked.rpc == "tools/call"]
    assert not [name for headers in calls for name in headers if name.startswith("mcp-param")]


async def test_names_are_suggested_from_the_callers_own_list() -> None:
    async def unknown(asked: Asked) -> None:
        await asked.error(200, -32602, f"Unknown tool: {asked.body['params']['name']}")

    def tool(user: str) -> dict[str, Any]:
        return {"name": f"tool_of_{user}", "inputSchema": {"type": "object"}}

    private = Private()
    private.handlers |= {"tools/call": unknown, "tools/list": partial(private.listed, "tools", tool)}
    async with serving(private.handlers) as server, Client(server.url) as client:
        for headers in (ANN, None, BOB):
            own = f"tool_of_{(headers or {}).get('X-User', 'anonymous')}"
            with pytest.raises(UnknownTool) as raised:
                await client.call_tool(own + "s", headers=headers)
            assert raised.value.suggestions == (own,)


@every_sender
async def test_a_cookie_for_one_user_is_not_sent_for_another(sender: Callable[[str], Any]) -> None:
    """A response to a request with headers of its own may set a cookie that stands for their user."""

    async def call(asked: Asked) -> None:
        user = asked.headers.get("x-user", "everybody")
        await asked.result(TEXT, Set_Cookie=f"of={user}")

    async with (
        serving({"server/discover": discovered, "tools/call": call}) as server,
        Client(lambda: sender(server.url)) as client,
    ):
        for headers in (ANN, BOB, None, ANN, None):
            await client.call_tool("t", headers=headers)
    cookies = [asked.headers.get("cookie") for asked in server.asked if asked.rpc == "tools/call"]
    assert cookies == [None, None, None, "of=everybody", "of=everybody"]


@every_sender
async def test_a_cancelled_call_leaves_nothing_of_its_headers(sender: Callable[[str], Any]) -> None:
    """Wherever it is cancelled."""

    async def call(asked: Asked) -> None:
        await asked.result(TEXT, Set_Cookie="of=ann")

    async with (
        serving({"server/discover": discovered, "tools/call": call}) as server,
        Client(lambda: sender(server.url)) as client,
    ):

        async def check() -> None:
            await client.ping()
            fields = server.asked[-1].headers
            assert (fields.get("x-user"), fields.get("cookie")) == (None, None)

        assert await cancel_everywhere(partial(client.call_tool, "t", headers=ANN), check) > 3


# --- a function for each request --------------------------------------------------------------------------------------

USER: ContextVar[str | None] = ContextVar("USER", default=None)


def of_user(method: str) -> dict[str, str] | None:
    user = USER.get()
    return None if user is None else {"x-user": user, "x-method": method}


async def test_the_function_is_called_for_each_request_where_it_is_made() -> None:
    """So it may read a context variable of the program's task."""

    async def call(client: Client, user: str) -> None:
        USER.set(user)
        assert (await client.list_tools()).tools[0].description == user
        assert (await client.call_tool("t")).data == {"who": user}

    async with serving(Private().handlers) as server, Client(server.url, request_headers=of_user) as client:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(call, client, ("ann", "bob")[number % 2])
        await client.call_tool("t")
    assert users(server, "server/discover") == [None]
    assert sorted(map(str, users(server, "tools/call"))) == ["None", *["ann"] * 5, *["bob"] * 5]
    assert all(asked.headers.get("x-method") in (None, asked.rpc) for asked in server.asked)


async def test_headers_of_a_call_replace_those_of_the_function() -> None:
    async with serving({"server/discover": discovered, "tools/call": ok}) as server:
        given = {"X-User": "ann", "X-Other": "1"}
        async with Client(server.url, request_headers=lambda _: given) as client:
            await client.call_tool("t", headers={"x-USER": "bob"})
    assert users(server, "server/discover") == ["ann"]
    assert users(server, "tools/call") == ["bob"]
    assert server.asked[-1].headers["x-other"] == "1"


async def test_the_function_is_for_the_handshake_of_the_legacy_era_as_well() -> None:
    async with (
        serving({"initialize": giving(INITIALIZED)}) as server,
        Client(server.url, mode="legacy", request_headers=lambda _: ANN) as client,
    ):
        await client.ping()
    assert (users(server, "initialize"), users(server, "ping")) == (["ann"], ["ann"])


@pytest.mark.parametrize("bad", [{"Host": "x"}, {"a": 1}, "a"])
async def test_what_the_function_returns_is_checked(bad: Any) -> None:
    answers: list[Any] = [None, bad]
    async with serving({"server/discover": discovered}) as server:
        async with Client(server.url, request_headers=lambda _: answers.pop(0)) as client:
            with pytest.raises((TypeError, ValueError), match="headers"):
                await client.call_tool("t")
        assert server.methods() == ["server/discover"]


async def test_a_function_that_fails_fails_its_call_alone() -> None:
    def headers(method: str) -> None:
        if method == "tools/call":
            raise RuntimeError("no user")

    async with (
        serving({"server/discover": discovered}) as server,
        Client(server.url, request_headers=headers) as client,
    ):
        with pytest.raises(RuntimeError, match="no user"):
            await client.call_tool("t")
        await client.ping()


def test_settings_that_would_share_what_the_function_selects_are_refused() -> None:
    with pytest.raises(ValueError, match="request_headers and cache exclude each other"):
        Client("http://x/", request_headers=of_user, cache=ResponseCache())
    with pytest.raises(ValueError, match="server 'one': a group can't have request_headers"):
        ClientGroup({"one": "http://x/"}, request_headers=of_user)
    with pytest.raises(TypeError, match="request_headers"):
        Client("http://x/", request_headers=5)  # type: ignore[arg-type]


# --- tasks, and a client without async -----------------------------------------------------------------------------


class WithTasks:
    """A server that makes a task of each call; it is done at the second look."""

    def __init__(self) -> None:
        self.looks: dict[str | None, int] = {}

    def handlers(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
        return {
            "server/discover": giving({**DISCOVERED, "capabilities": capabilities}),
            "tools/call": self.call,
            "tasks/get": self.get,
            "tasks/cancel": giving({"resultType": "complete"}),
        }

    def state(self, status: str, **more: Any) -> dict[str, Any]:
        at = "2026-01-01T00:00:00Z"
        times = {"createdAt": at, "lastUpdatedAt": at, "ttlMs": None, "pollIntervalMs": 1}
        return {"taskId": "task-1", "status": status, **times, **more}

    async def call(self, asked: Asked) -> None:
        await asked.result({"resultType": "task", **self.state("working")})

    async def get(self, asked: Asked) -> None:
        user = asked.headers.get("x-user")
        self.looks[user] = self.looks.get(user, 0) + 1
        found = self.state("working")
        if self.looks[user] > 1:
            content = [{"type": "text", "text": str(user)}]
            found = self.state("completed", result={"content": content, "isError": False})
        await asked.result({"resultType": "complete", **found})


async def test_the_requests_about_a_task_have_the_headers_of_its_call() -> None:
    """Other callers do not share what they find out, not even about the same task."""
    async with serving(WithTasks().handlers()) as server, Client(server.url, extensions=[Tasks()]) as client:
        assert (await client.call_tool("t", headers=ANN)).text == "ann"
        assert set(users(server, "tasks/get")) == {"ann"}
        tasks = Tasks.of(client)
        handles = [tasks.task("task-1", headers=headers) for headers in (ANN, BOB, None)]
        assert [(await handle.result()).text for handle in handles] == ["ann", "bob", "None"]
        with pytest.raises(ValueError, match="headers are given where a task is created"):
            await handles[0].result(headers=BOB)


async def test_the_client_without_async_takes_headers() -> None:
    def use(url: str) -> None:
        with BlockingClient(url) as client:
            client.call_tool("t", headers=ANN)
            client.list_tools(headers=BOB)

    async with serving({"server/discover": discovered, "tools/call": ok, "tools/list": lists_region}) as server:
        await trio.to_thread.run_sync(use, server.url)
    assert (users(server, "tools/call"), users(server, "tools/list")) == (["ann"], ["bob"])
