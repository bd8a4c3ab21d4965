"""What type checkers must accept in a user's program, and the types they must see. Never run: `.ci/run typing`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, assert_type

import httpx
import httpx2
import trio
from pydantic import BaseModel, TypeAdapter

from trio_mcp import (
    Accepted,
    CallOptions,
    Cancelled,
    Client,
    ClientGroup,
    Context,
    Declined,
    Depends,
    Elicited,
    Entry,
    HttpOptions,
    HttpServerParameters,
    Image,
    InputOptions,
    McpError,
    MemoryEventStore,
    ProxyServer,
    RequestTimeout,
    ResourceUpdated,
    ResponseCache,
    Server,
    SessionOptions,
    SqliteEventStore,
    StdioServerParameters,
    ToolsListChanged,
    TrioMcpError,
    UnknownTool,
)
from trio_mcp.client.group.catalog import Listed
from trio_mcp.client.tool_results import ToolResult
from trio_mcp.extensions import AppHost, Apps, Csp, HostContext
from trio_mcp.jsonrpc import Notification
from trio_mcp.low_level import (
    AsyncHttpClient,
    BaseSession,
    HandlerOptions,
    Link,
    memory_link_pair,
    sse_client,
    streamable_http_client,
)
from trio_mcp.middleware import Caching, ErrorMasking, Logging, Middleware, RateLimit, SizeLimit, Timing
from trio_mcp.stores import KeyRing, MemoryStores, SqliteStores, UserStateOptions
from trio_mcp.types import (
    CompleteResult,
    CreateMessageResult,
    GetPromptResult,
    Implementation,
    InputRequiredResult,
    ListToolsResult,
    PromptReference,
    ReadResourceResult,
    Root,
    ServerCapabilities,
    TextContent,
    Tool,
)


class Answer(BaseModel):
    sure: bool


class Database:
    async def count(self) -> int:
        return 0


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[Database]:
    yield Database()


async def own_middleware(context: Context, call_next: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    return await call_next()


class Everything(Middleware):
    async def handle_request(
        self, context: Context, call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        return await super().handle_request(context, call_next)

    def send_notification(self, notification: Notification) -> Notification | None:
        return notification if notification.method == "example.com/own" else None


server = Server(
    "typed",
    version="1",
    lifespan=lifespan,
    options=SessionOptions(calls=CallOptions(timeout=5), handlers=HandlerOptions()),
)


def visible(context: Context, entry: Entry) -> bool:
    assert_type(entry.tags, frozenset[str])
    return entry.kind == "tool" or "admin" not in entry.tags


Server(
    "surrounded",
    visible=visible,
    middleware=[
        Logging(),
        Timing(slow=1),
        RateLimit(5),
        SizeLimit(10),
        Caching({"add"}),
        ErrorMasking(),
        own_middleware,
        Everything(),
    ],
)
server.disable("wait", kind="tool")
server.enable(tags=["beta"])


# --- A decorated function keeps its type --------------------------------------------------------------------------


@server.tool
def add(a: int, b: int = 1) -> int:
    return a + b


@server.tool(structured_output=False)
def picture(of: Annotated[str, "what it shows"]) -> list[str | Image]:
    return [of, Image("picture.png")]


assert_type(picture("a cat"), list[str | Image])


@server.tool(title="Wait", park_input=True, tags={"beta"}, enabled=False, timeout=5)
async def wait(seconds: float, ctx: Context[Database]) -> str:
    await ctx.report_progress(1, 2, "waiting")
    await ctx.info("waiting")
    assert_type(ctx.headers.get("x-user"), str | None)
    assert_type(await ctx.state.count(), int)
    return "done"


@server.resource("notes://{name}")
def note(name: str) -> str:
    return name


@server.prompt
def review(code: str) -> str:
    return code


@server.prompt(title="Twice")
async def twice(code: str) -> list[str]:
    return [code, code]


def database() -> Database:
    return Database()


@server.tool
async def counted(db: Annotated[Database, Depends(database)]) -> int:
    return await db.count()


async def decorated_functions_keep_their_types(ctx: Context[Database]) -> None:
    plain: Callable[[int, int], int] = add
    assert_type(add(1, b=2), int)
    assert_type(plain(1, 2), int)
    assert_type(await wait(1.5, ctx), str)
    assert_type(note("a"), str)
    assert_type(review("x"), str)
    assert_type(await twice("x"), list[str])
    assert_type(await counted(Database()), int)


# --- A handler asks its client ------------------------------------------------------------------------------------


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Sure?", Answer)
    assert_type(answer, Elicited[Answer])
    if answer.action == "accept":
        assert_type(answer.data, Answer)
    else:
        assert_type(answer.data, None)
    if isinstance(answer, Accepted):
        assert_type(answer.data, Answer)
    match answer:
        case Accepted(data):
            assert_type(data, Answer)
        case Declined() | Cancelled():
            assert_type(answer.data, None)
    assert_type((await ctx.elicit_url("Sign", "https://example.com")).data, None)
    roots, reply = await ctx.gather(ctx.list_roots(), ctx.sample("Say it", max_tokens=10))
    assert_type(roots, list[Root])
    assert_type(reply, CreateMessageResult)
    assert_type(await ctx.sample("Say it", max_tokens=10, tools=[review, twice], max_rounds=3), CreateMessageResult)
    assert_type(await ctx.sample("Say it", max_tokens=10, tools=[twice], result_type=Answer, key="it"), Answer)
    assert_type(await ctx.sample("Say it", max_tokens=10, result_type=list[Answer]), list[Answer])
    assert_type(await ctx.sample("Say it", max_tokens=10, tools=[Tool(name="t", input_schema={})]), CreateMessageResult)
    either: int | str = await ctx.sample("Say it", max_tokens=10, result_type=int | str)
    assert either
    return "asked"


# --- The state of a user ------------------------------------------------------------------------------------------


class Cart(BaseModel):
    items: list[str] = []


def without_items(cart: Cart) -> Cart:
    return Cart()


kept = Server(
    "kept",
    stores="kept.db",
    input=InputOptions(key=KeyRing.file("kept.keys")),
    user_state=UserStateOptions(ttl=None, max_size=1000, across_clients=True),
)


@kept.tool
async def shop(ctx: Context) -> str:
    assert_type(await ctx.user_state(Cart), Cart)
    assert_type(await ctx.update_user_state(Cart, without_items, name="cart"), Cart)
    assert_type(await ctx.update_user_state(Cart, lambda cart: Cart(items=[*cart.items, "tea"])), Cart)
    assert_type(await ctx.once("add", ctx.update_user_state, Cart, without_items, type=Cart), Cart)
    await ctx.forget_user()
    return "shopped"


@kept.tool
def shop_in_a_thread(ctx: Context) -> str:
    assert_type(trio.from_thread.run(ctx.user_state, Cart), Cart)
    assert_type(trio.from_thread.run(ctx.update_user_state, Cart, without_items), Cart)
    return "shopped"


# --- A client's calls ---------------------------------------------------------------------------------------------


async def calls() -> None:
    async with Client(server) as client:
        assert_type(client.server_info, Implementation | None)
        assert_type(client.capabilities, ServerCapabilities)
        assert_type(client.protocol_version, str)

        result = await client.call_tool("add", {"a": 1}, timeout=5, total_timeout=None, reset_on_progress=True)
        assert_type(result, ToolResult)
        assert_type(result.data, Any)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        assert_type(
            [block.text for block in result.content if isinstance(block, TextContent)],
            list[str],
        )
        assert_type(await client.call_tool_once("add"), ToolResult | InputRequiredResult)

        typed = await client.call_tool("add", result_type=Answer, on_progress=lambda progress: progress.message)
        assert_type(typed, ToolResult[Answer])
        assert_type(typed.data, Answer)
        assert_type((await client.call_tool("add", result_type=list[Answer])).data, list[Answer])
        assert_type((await client.call_tool("add", result_type=TypeAdapter(int))).data, int)
        assert_type((await client.call_tool("add", result_type=int | None)).data, Any)
        once = await client.call_tool_once("add", result_type=Answer)
        assert_type(once, ToolResult[Answer] | InputRequiredResult)

        assert_type(await client.list_tools(), ListToolsResult)
        for listed in await client.list_tools():
            assert_type(listed, Tool)
        async for tool in client.iter_tools():
            assert_type(tool, Tool)
        assert_type(await client.read_resource("notes://a", timeout=None), ReadResourceResult)
        assert_type(await client.get_prompt("review", {"code": "x"}), GetPromptResult)
        assert_type(await client.complete(PromptReference(name="review"), "code"), CompleteResult)

        assert_type(await client.request("x/y", {"a": 1}), dict[str, Any])
        assert_type(await client.request("x/y", None, Answer, timeout=1), Answer)

        async with client.listen(tools_list_changed=True, resources=["notes://a"]) as events:
            async for event in events:
                match event:
                    case ToolsListChanged():
                        pass
                    case ResourceUpdated(uri):
                        assert_type(uri, str)
                    case _:
                        pass


async def targets(link: Link) -> None:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Link]:
        yield link

    Client("https://example.com/mcp", cache=ResponseCache())
    Client(HttpServerParameters("https://example.com/mcp"))
    Client(StdioServerParameters("python", ["server.py"]))
    Client(ProxyServer("https://example.com/mcp"))
    Client(connect)


async def many_servers() -> None:
    async with ClientGroup({"a": server, "b": "https://example.com/mcp"}) as group:
        assert_type(await group.list_tools(), Listed[Tool])
        assert_type(await group.call_tool("a__add", {"a": 1}), ToolResult)
        typed = await group.call_tool("a__ask", result_type=Answer, timeout=5, on_progress=lambda p: print(p.progress))
        assert_type(typed.data, Answer)
        assert_type(await group.read_resource("notes://a", server="a", meta={}), ReadResourceResult)
        assert_type(await group.get_prompt("a__review", {"code": "x"}, timeout=5), GetPromptResult)
    ClientGroup.from_config("mcp.json", require="any", max_wait=1, on_status=lambda name, status: print(status.state))


def runs() -> None:
    server.run("http", port=8000, allowed_hosts=["mcp.example.com"])


# --- Serving, links and errors ------------------------------------------------------------------------------------


async def serving() -> None:
    options = HttpOptions(event_store=MemoryEventStore())
    HttpOptions(event_store=SqliteEventStore("events.db"))
    HttpOptions(event_store=SqliteStores("stores.db", durable="power").sessions)
    HttpOptions(event_store=MemoryStores().sessions)
    async with trio.open_nursery() as nursery, server.asgi_app(options):
        listening: list[str] = await nursery.start(server.serve_http)
        print(listening)
    async with memory_link_pair() as (ours, theirs), BaseSession(*ours) as session:
        assert_type(theirs, Link)
        assert_type(await session.send_request("ping"), dict[str, Any])


class OwnHttpClient(httpx2.AsyncClient):
    pass


async def over_http(given: AsyncHttpClient) -> None:
    for http_client in (httpx.AsyncClient(), httpx2.AsyncClient(), OwnHttpClient(), given):
        async with streamable_http_client("https://host.example/mcp", http_client=http_client) as link:
            assert_type(link, Link)
        async with sse_client("https://host.example/sse", http_client=http_client) as link:
            assert_type(link, Link)


def errors(error: TrioMcpError) -> None:
    if isinstance(error, UnknownTool):
        assert_type(error.suggestions, tuple[str, ...])
    elif isinstance(error, McpError):
        assert_type(error.code, int)
    elif isinstance(error, RequestTimeout):
        timeout: TimeoutError | TrioMcpError = error
        print(timeout)


apps = Apps()
with_pages = Server("pages", extensions=[apps])


@apps.page("ui://clock/face", csp=Csp(connect=["https://time.example"]), permissions=["camera"])
async def face(ctx: Context) -> bytes:
    assert_type(ctx.client_renders_apps, bool)
    return b""


@with_pages.tool(app="ui://clock/face", visibility=["app"])
def tick() -> int:
    return 1


async def host_of_an_app(client: Client, group: ClientGroup, link: Link) -> None:
    apps.page("ui://clock/file", path="face.html", title="A clock")
    tools = await client.list_tools(audience="model")
    await group.list_tools(audience="app")
    async with AppHost(client, tools.tools[0], {"zone": "UTC"}, on_open_link=print, context=HostContext()) as host:
        assert_type(host.html, str)
        assert_type(host.allow, str)
        assert_type(host.prefers_border, bool | None)
        await host.serve(link, sandbox=True)
        assert_type((await host.result()).text, str)
