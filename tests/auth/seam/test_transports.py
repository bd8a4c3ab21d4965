"""Every transport over HTTP is authorized, each request of it; and what else takes an ``auth=``, or refuses it."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
import traceback
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.auth.seam.stubs import SECRET, Memory, Person, answered, client_of, link, protected, refusal, rpc
from tests.auth.server.guarded import Table, person
from tests.injection import cancel_everywhere
from trio_mcp import (
    Client,
    ClientGroup,
    ConfigError,
    Context,
    FailoverParameters,
    HttpServerParameters,
    McpError,
    ProxyServer,
    Server,
    SessionOptions,
    StdioServerParameters,
    ToolsListChanged,
    TransportError,
    load_config,
)
from trio_mcp._nursery import background_nursery
from trio_mcp.auth import BearerToken, ClientCredentials, OAuth, WorkloadIdentity
from trio_mcp.client.targets import link_factory
from trio_mcp.http.server import gate
from trio_mcp.otel import ClientTelemetry

TOKEN = f"{SECRET}-1"


def make_server() -> Server:
    server = Server("guarded")

    @server.tool
    async def whoami(ctx: Context) -> str:
        return "" if ctx.principal is None else ctx.principal.subject

    return server


@contextlib.asynccontextmanager
async def guarded(kind: str, server: Server, table: Table) -> AsyncIterator[str]:
    serve = {"http": server.serve_http, "sse": server.serve_sse, "ws": server.serve_websocket}[kind]
    async with background_nursery() as nursery:
        yield await nursery.start(partial(serve, port=0, auth=table))


@pytest.mark.parametrize(("kind", "mode"), [("http", "auto"), ("http", "legacy"), ("sse", "auto"), ("ws", "auto")])
async def test_over_each_transport(kind: Any, mode: str) -> None:
    auth, table = Person(), Table({TOKEN: person("alice")})
    async with (
        guarded(kind, make_server(), table) as url,
        Client(HttpServerParameters(url, kind=kind), auth=auth, mode=mode) as client,
    ):
        assert (await client.call_tool("whoami")).data == "alice"
    assert (auth.asked, auth.open) == (1, 0)
    seen = "http" + url[2:] if kind == "ws" else url
    assert auth.servers == [seen]
    assert {there.rpartition("/")[0] for _, there in auth.signed} == {seen.rpartition("/")[0]}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_stream_that_ends_with_its_token_is_opened_anew(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription, and in the legacy era the server's own stream."""
    server, auth, old = make_server(), Person(token=SECRET), person("alice")
    monkeypatch.setattr(gate, "LEEWAY", 1.2)
    table = Table({SECRET: attrs.evolve(old, expires_at=time.time())})
    async with guarded("http", server, table) as url, Client(url, auth=auth, mode=mode) as client:
        async with client.listen(tools_list_changed=True) as events, trio.open_nursery() as nursery:
            await client.call_tool("whoami")  # by now the stream of the legacy era is open
            table.tokens = {TOKEN: old}

            async def change() -> None:
                await auth.gave.wait()
                for number in itertools.count():
                    server.add_tool(echo, name=f"another{number}")
                    await trio.sleep(0.1)

            if mode == "legacy":
                nursery.start_soon(change)
            # In the modern era without a change: what may have been missed.
            assert await anext(events) == ToolsListChanged()
            nursery.cancel_scope.cancel()
        await client.call_tool("whoami")
    assert auth.asked == 1


@pytest.mark.again
@pytest.mark.parametrize("kind", ["sse", "ws"])
async def test_a_handshake_that_is_cancelled_anywhere_leaves_nothing_open(kind: Any) -> None:
    auth, table = Person(), Table({f"{SECRET}-{number}": person("alice") for number in range(999)})

    async def nothing_is_left() -> None:
        assert (auth.open, auth.turn.locked()) == (0, False)

    async with guarded(kind, make_server(), table) as url:
        parameters = HttpServerParameters(url, kind=kind, auth=auth)

        async def scenario() -> None:
            auth.token = None
            async with link_factory(parameters)():
                pass

        assert await cancel_everywhere(scenario, nothing_is_left) > 10


# --- where it is passed ----------------------------------------------------------------------------------------------


async def echo() -> None:
    raise NotImplementedError


@pytest.mark.parametrize(
    "target",
    [
        make_server(),
        StdioServerParameters("server"),
        "tcp://localhost:1",
        "unix:/socket",
        [StdioServerParameters("server"), make_server()],
        FailoverParameters([make_server()]),
        lambda: link(Memory(answered), None)(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_has_no_http_refuses_it_and_names_the_environment(target: Any) -> None:
    with pytest.raises(TypeError, match=r"auth= is for servers .* over HTTP or WebSocket.*env="):
        Client(target, auth=Person())
    # A group has members of any kind.
    ClientGroup({"a": target}, auth=Person())


@pytest.mark.parametrize("wrong", ["token", Person, object()])
def test_what_is_not_an_auth_is_refused(wrong: Any) -> None:
    for make in (partial(Client, "https://x"), partial(HttpServerParameters, "https://x"), partial(ClientGroup, {})):
        with pytest.raises(TypeError, match="auth must be"):
            make(auth=wrong)


@pytest.mark.parametrize(
    "parameters",
    [{"url": "https://x", "headers": {"authorization": "Bearer a"}}, {"url": "https://name:password@x"}],
    ids=["header", "user name"],
)
def test_two_credentials_for_one_server_are_refused(parameters: Any) -> None:
    with pytest.raises(ValueError, match="leave out one of the two") as caught:
        HttpServerParameters(**parameters, auth=Person())
    assert "password" not in str(caught.value)
    # Those of the group are for members that have none.
    ClientGroup({"a": HttpServerParameters(**parameters)}, auth=Person())


async def test_in_lists_groups_and_proxies_it_reaches_those_with_a_url() -> None:
    auth, table = Person(), Table({TOKEN: person("alice")})
    async with guarded("http", make_server(), table) as url:
        async with Client([url, make_server()], auth=auth) as client:
            assert (await client.call_tool("whoami")).data == "alice"
        servers: dict[str, Any] = {"here": make_server(), "there": url}
        async with ClientGroup(servers, auth=auth) as group:
            assert (await group.call_tool("there__whoami")).data == "alice"
            assert (await group.call_tool("here__whoami")).data == ""
            await group.add("later", HttpServerParameters(url, auth=Person(token=TOKEN)))
            assert (await group.call_tool("later__whoami")).data == "alice"
        async with Client(ProxyServer(url, client={"auth": auth})) as client:
            assert (await client.call_tool("whoami")).data == "alice"
    assert auth.asked == 1


async def test_a_client_declares_the_extensions_of_its_auth(autojump_clock: Any) -> None:
    declared: list[Any] = []
    server = Server("looking")

    @server.tool
    async def look(ctx: Context) -> None:
        declared.append(ctx.client.capabilities["extensions"])

    auth = Person(extensions={"com.example/auth": {"a": 1}})
    async with guarded("http", server, Table({TOKEN: person("alice")})) as url:
        given: Any = {"extensions": {"com.example/auth": {"b": 2}, "com.example/other": {}}}
        for mode in ("auto", "legacy"):
            async with Client(url, auth=auth, capabilities=given, mode=mode) as client:
                await client.call_tool("look")
    assert declared == [{"com.example/auth": {"a": 1, "b": 2}, "com.example/other": {}}] * 2


# --- credentials go no further ----------------------------------------------------------------------------------------


async def test_a_proxy_passes_no_credentials_on() -> None:
    """Neither those of its client to the upstream, nor its own to the client."""
    upstream, auth = Memory(protected()), Person(token=f"{SECRET}-upstream")
    proxy = ProxyServer(link(upstream, auth))
    table = Table({TOKEN: person("alice")})
    theirs = HttpServerParameters(
        "http://replaced", headers={"Cookie": f"{SECRET}-cookie", "DPoP": f"{SECRET}-proof", "X-Mine": "1"}
    )
    async with background_nursery() as nursery:
        url = await nursery.start(partial(proxy.serve_http, port=0, auth=table))
        async with Client(HttpServerParameters(url, headers=theirs.headers), auth=Person(token=TOKEN)) as client:
            result = await client.call_tool("fine")
    assert SECRET not in str(result)
    for request in upstream.requests:
        secrets = {name: value for name, value in request.headers.items() if SECRET in value}
        assert secrets == {"authorization": f"Bearer {SECRET}-upstream"}
        assert SECRET.encode() not in request.content


async def test_a_proxy_whose_login_has_ended_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    upstream, auth = Memory(protected()), Person(token=f"{SECRET}-upstream")
    async with Client(ProxyServer(link(upstream, auth))) as client:
        await client.call_tool("fine")
        auth.token, auth.denies = "ended", True
        with pytest.raises(McpError, match="is unavailable: AuthorizationError"):
            await client.call_tool("fine")
    (record,) = [each for each in caplog.records if "to the upstream server" in each.getMessage()]
    assert "authorization failed: " in record.getMessage()
    assert record.exc_info is None


async def test_no_token_is_told_by_logs_errors_or_spans(caplog: pytest.LogCaptureFixture, autojump_clock: Any) -> None:
    caplog.set_level("DEBUG")
    spans = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    records: list[Any] = []

    async def refuses(request: httpx.Request) -> httpx.Response:
        method = rpc(request)["method"]
        if method == "tools/call":
            return refusal(403, DPoP_Nonce="n1")
        if method == "prompts/list":
            raise httpx.ReadError("it broke")
        return await answered(request)

    auth = Person(tries=2)
    options = SessionOptions(on_request=records.append)
    telemetry = ClientTelemetry(tracer_provider=tracers)
    async with client_of(protected(refuses), auth, options=options, middleware=[telemetry]) as (memory, client):
        told = [repr(client), repr(client.transport), repr(client.statistics()), repr(client.capabilities)]
        for method in ("tools/call", "prompts/list"):
            with pytest.raises(TransportError) as caught:
                await client.request(method, {"name": "x"})
            told += traceback.format_exception(caught.value)
            told += [str(vars(caught.value))]
        assert any(SECRET in request.headers.get("DPoP", "") for request in memory.requests)
    told += [caplog.text, str(records), *(span.to_json() for span in spans.get_finished_spans())]
    assert len(spans.get_finished_spans()) >= 2
    assert not [each for each in told if SECRET in each]


# --- in a configuration -----------------------------------------------------------------------------------------------


def read(settings: Any, **entry: Any) -> Any:
    servers = {"a": {"url": "https://mcp.example.com/mcp", "auth": settings, **entry}}
    return load_config({"mcpServers": servers}, environ={"SECRET": SECRET})["a"]


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ("oauth", OAuth),
        ({"type": "oauth"}, OAuth),
        (
            {"type": "oauth", "clientId": "a", "clientSecret": "${SECRET}", "issuer": "https://id", "scopes": ["b"]},
            OAuth,
        ),
        (
            {"type": "oauth", "store": "memory", "redirect": "http://127.0.0.1:8765/", "assumePkce": ["https://id"]},
            OAuth,
        ),
        ({"type": "oauth", "metadataUrl": "https://example.com/client.json"}, OAuth),
        (
            {"type": "oauth", "clientId": "a", "issuer": "https://id", "resource": False, "scopes": ["b"]},
            OAuth,
        ),
        ({"type": "client-credentials", "clientId": "a", "clientSecret": "${SECRET}"}, ClientCredentials),
        ({"type": "workload-identity", "assertionFile": "~/token", "issuer": "https://id"}, WorkloadIdentity),
        ({"type": "bearer", "token": "${SECRET}"}, BearerToken),
    ],
)
def test_a_configuration_has_an_auth(settings: Any, kind: type) -> None:
    found = read(settings)
    assert type(found.auth) is kind
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("oath", "\"type\" must be one of oauth, client-credentials, workload-identity, bearer; did you mean 'oauth'?"),
        ({}, '"type" must be one of'),
        ({"type": "oauth", "scope": ["a"]}, "unknown key 'scope' for the type 'oauth'; did you mean 'scopes'?"),
        ({"type": "oauth", "scopes": "a"}, "'scopes' must be an array of strings"),
        ({"type": "oauth", "clientId": ""}, "'clientId' must be a non-empty string"),
        ({"type": "oauth", "clientSecret": "${SECRET}"}, "'clientId' is missing"),
        ({"type": "oauth", "issuer": "https://id"}, "'issuer' can be used only with 'clientId'"),
        ({"type": "oauth", "resource": False}, "'resource' can be used only with 'clientId'"),
        ({"type": "oauth", "clientId": "a", "resource": "no"}, "'resource' must be true or false"),
        ({"type": "oauth", "clientId": "a", "resource": False}, "a client with resource=False needs issuer="),
        ({"type": "oauth", "clientId": True}, "'clientId' must be a non-empty string"),
        ({"type": "oauth", "prompt": "consent"}, "'prompt' can be used only with 'clientId'"),
        ({"type": "oauth", "store": "disk"}, "'store' must be one of file, keyring, memory"),
        ({"type": "oauth", "metadataUrl": "http://example.com/client.json"}, ""),
        ({"type": "client-credentials", "clientId": "a"}, "either 'clientSecret' or 'privateKeyFile'"),
        (
            {"type": "client-credentials", "clientId": "a", "privateKeyFile": "/no/such/file"},
            "'privateKeyFile' can't be read: No such file or directory",
        ),
        (
            {"type": "client-credentials", "clientId": "a", "privateKeyFile": __file__},
            "the private key is not in PEM",
        ),
        ({"type": "workload-identity"}, "'assertionFile' is missing"),
        ({"type": "client-credentials", "clientSecret": "${SECRET}"}, "'clientId' is missing"),
        ({"type": "bearer"}, "'token' is missing"),
        ({"type": "bearer", "token": "${SECRET} "}, ""),
        ({"type": "bearer", "token": "${MISSING}"}, "MISSING"),
        (5, "must be an object of strings, arrays of strings and booleans"),
        ({"type": "oauth", "scopes": [1]}, "must be an object of strings, arrays of strings and booleans"),
        ({"type": "oauth", "scopes": {"a": "b"}}, "must be an object of strings, arrays of strings and booleans"),
    ],
)
def test_what_is_wrong_in_it_is_told_without_a_secret(settings: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(settings)
    (said,) = caught.value.problems
    assert "server 'a': auth: " in said or "server 'a': auth." in said
    assert problem in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("package", "extra", "settings"),
    [
        ("keyring", "keyring", {"type": "oauth", "store": "keyring"}),
        ("joserfc", "auth", {"type": "client-credentials", "clientId": "a", "privateKeyFile": __file__}),
    ],
)
def test_an_extra_that_is_missing_is_named(
    package: str, extra: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"server 'a': auth: .* needs {package}: pip install 'trio-mcp\[{extra}\]'"):
        read(settings)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "server", "url": ""}, "not allowed for a server with a command"),
        ({"url": "tcp://localhost:1"}, "takes no 'auth'"),
        ({"headers": {"Authorization": "${SECRET}"}}, "leave out one of the two"),
    ],
)
def test_an_auth_belongs_to_a_url_and_stands_alone(entry: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        read("oauth", **entry)
    assert SECRET not in str(caught.value)
