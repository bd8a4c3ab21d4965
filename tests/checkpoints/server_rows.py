"""The functions of `Server`, of its functions' context, and of the library's own middleware."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from tempfile import TemporaryDirectory
from typing import Any

import trio
from pydantic import BaseModel

from tests.checkpoints.session_rows import sent_or_cancelled
from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect, not_entered
from tests.peer import settle
from tests.server.input_harness import LEGACY, MODERN, accept, hand_client, said
from trio_mcp import AsgiApp, Client, Context, Server
from trio_mcp.extensions import ExtensionRun, ServerExtension
from trio_mcp.jsonrpc.messages import Request, SessionMessage
from trio_mcp.low_level import memory_link_pair
from trio_mcp.middleware import Caching, ErrorMasking, Logging, Middleware, RateLimit, SizeLimit, Timing
from trio_mcp.otel import ClientTelemetry, ServerTelemetry
from trio_mcp.server.base_server import BaseServer, core_of
from trio_mcp.session.server import ServerSession
from trio_mcp.stores import MemoryStores, UserStateOptions
from trio_mcp.testing import CallRecorder


@contextlib.asynccontextmanager
async def served(revision: str = MODERN, **meta: Any) -> AsyncIterator[tuple[Context, Any, trio.Event]]:
    """Yield the context of a running tool, the client, and the event that ends the tool."""
    contexts: list[Context] = []
    release = trio.Event()
    server = Server("x")

    @server.tool
    async def tool(ctx: Context) -> None:
        contexts.append(ctx)
        await release.wait()

    async with hand_client(server, revision, lambda question: None) as peer:
        await peer.request("tools/call", {"name": "tool"}, **meta)
        await settle()
        peer.arrived()
        yield contexts[0], peer, release


async def in_tool(
    body: Callable[[Context], Awaitable[object]],
    revision: str,
    replies: Callable[[Request], Any] = lambda question: None,
    *,
    park: bool = False,
    **settings: Any,
) -> None:
    """Run a function as a tool, through all rounds of input, and raise what it raises."""
    failures: list[Exception] = []
    server = Server("x", **settings)

    @server.tool(park_input=park)
    async def tool(ctx: Context) -> None:
        try:
            await body(ctx)
        except Exception as exc:
            failures.append(exc)
            raise

    async with hand_client(server, revision, replies) as peer:
        await peer.tool("tool")
    if failures:
        raise failures[0]


# --- telling the client -----------------------------------------------------------------------------------------

LEVEL = "io.modelcontextprotocol/logLevel"


@call(Context.notify, "sent")
async def notify(check: Check) -> None:
    async with served() as (context, _, _):
        await check(context.notify("acme/x"))


@call(Context.log, "wanted, below the level, and after the answer")
async def log(check: Check) -> None:
    async with served(**{LEVEL: "error"}) as (context, _, release):
        await check(context.log("error", "x"))
        await check(context.log("info", "x"))
        release.set()
        await settle()
        await check(context.log("error", "x"))


SHORT = {
    Context.debug: lambda ctx, text: ctx.debug(text),
    Context.info: lambda ctx, text: ctx.info(text),
    Context.warning: lambda ctx, text: ctx.warning(text),
    Context.error: lambda ctx, text: ctx.error(text),
}


def every_level(function: Any, send: Callable[[Context, str], Awaitable[None]]) -> None:
    @call(function, "wanted, and below the level")
    async def log(check: Check) -> None:
        for level in ("debug", "emergency"):
            async with served(**{LEVEL: level}) as (context, _, _):
                await check(send(context, "x"))

    @effect(function, "sent or cancelled")
    async def logged() -> None:
        async with served(**{LEVEL: "debug"}) as (context, peer, _):
            await sent_or_cancelled(lambda number: send(context, "x"), peer.link)


for function, send in SHORT.items():
    every_level(function, send)


@effect(Context.notify, "sent or cancelled")
async def notified() -> None:
    async with served() as (context, peer, _):
        await sent_or_cancelled(lambda number: context.notify("acme/x"), peer.link)


@effect(Context.log, "sent or cancelled")
async def logged() -> None:
    async with served(**{LEVEL: "error"}) as (context, peer, _):
        await sent_or_cancelled(lambda number: context.log("error", "x"), peer.link)


# --- asking the client ------------------------------------------------------------------------------------------


class Person(BaseModel):
    name: str


def reply(question: Request) -> Any:
    match question.method:
        case "elicitation/create":
            return accept(name="Ada") if (question.params or {}).get("mode") != "url" else {"action": "accept"}
        case "sampling/createMessage":
            return said("four")
        case "roots/list":
            return {"roots": []}
    raise AssertionError(question)


QUESTIONS: dict[Any, Callable[[Context], Any]] = {
    Context.elicit: lambda ctx: ctx.elicit("Who?", Person),
    Context.elicit_url: lambda ctx: ctx.elicit_url("Go", "https://example.com/"),
    Context.sample: lambda ctx: ctx.sample("Two and two?", max_tokens=9),
    Context.list_roots: lambda ctx: ctx.list_roots(),
    Context.gather: lambda ctx: ctx.gather(ctx.list_roots(), ctx.elicit("Who?", Person)),
}


def every_question(function: Any, ask: Callable[[Context], Any]) -> None:
    for revision, park in ((LEGACY, False), (MODERN, False), (MODERN, True)):
        where = f"{revision}, parked" if park else revision

        @call(function, f"{where}: answered")
        async def answered(check: Check, revision: str = revision, park: bool = park) -> None:
            # In the modern era the function runs twice unless it is parked; the second time the answer is there.
            await in_tool(lambda ctx: check(ask(ctx)), revision, reply, park=park)

        @effect(function, f"{where}: nothing is asked")
        async def nothing_asked(revision: str = revision, park: bool = park) -> None:
            asked: list[Request] = []

            async def body(context: Context) -> None:
                await cancelled_before(ask(context))

            await in_tool(body, revision, asked.append, park=park)
            assert not asked


for function, ask in QUESTIONS.items():
    every_question(function, ask)
every_question(Context.sample, lambda ctx: ctx.sample("Two and two?", max_tokens=9, tools=[wait]))


for revision in (LEGACY, MODERN):

    @call(Context.gather, f"{revision}: no question")
    async def gather_nothing(check: Check, revision: str = revision) -> None:
        await in_tool(lambda ctx: check(ctx.gather()), revision)

    @call(Context.once, f"{revision}: done, and done before")
    async def once(check: Check, revision: str = revision) -> None:
        async def body(context: Context) -> None:
            assert await check(context.once("id", lambda: 1)) == 1
            assert await check(context.once("id", lambda: 2)) == 1

        await in_tool(body, revision)

    @call(Context.detach, f"{revision}: of a call that can't become a task")
    async def detach(check: Check, revision: str = revision) -> None:
        async def body(context: Context) -> None:
            assert await check(context.detach()) is False

        await in_tool(body, revision)

    @effect(Context.once, f"{revision}: done and kept, or not done")
    async def once_or_never(revision: str = revision) -> None:
        async def body(context: Context) -> None:
            done: list[int] = []

            async def count() -> int:
                return len(done)

            await all_or_nothing(lambda number: context.once(f"{number}", done.append, number), count)

        await in_tool(body, revision)

    @call(Context.once, f"{revision}: with a type")
    async def once_with_a_type(check: Check, revision: str = revision) -> None:
        async def body(context: Context) -> None:
            for _ in range(2):
                person = await check(context.once("id", lambda: Person(name="Ada"), type=Person))
                assert person == Person(name="Ada")

        await in_tool(body, revision)


# --- the state of the user --------------------------------------------------------------------------------------


class Count(BaseModel):
    value: int = 0


def of_ann() -> dict[str, Any]:
    """Return the settings of a server that keeps states, and knows its user."""
    trusted = UserStateOptions(trust_principal=True)
    return {"stores": MemoryStores(), "principal": lambda ctx: "ann", "user_state": trusted}


STATES: dict[Any, Callable[[Context], Awaitable[object]]] = {
    Context.user_state: lambda ctx: ctx.user_state(Count),
    Context.update_user_state: lambda ctx: ctx.update_user_state(Count, lambda count: count),
    Context.forget_user: lambda ctx: ctx.forget_user(),
}

for function, use in STATES.items():

    @call(function, "of a user without a state, and of one with it")
    async def state_of_a_user(check: Check, use: Callable[[Context], Awaitable[object]] = use) -> None:
        async def body(context: Context) -> None:
            await check(use(context))
            await context.update_user_state(Count, lambda count: count)
            await check(use(context))

        await in_tool(body, MODERN, **of_ann())


@effect(Context.user_state, "nothing changes")
async def reading_a_state() -> None:
    async def body(context: Context) -> None:
        await cancelled_before(context.user_state(Count))
        assert await context.user_state(Count) == Count()

    await in_tool(body, MODERN, **of_ann())


@effect(Context.update_user_state, "changed, or not")
async def changing_a_state() -> None:
    async def body(context: Context) -> None:
        async def value() -> int:
            return (await context.user_state(Count)).value

        await all_or_nothing(lambda n: context.update_user_state(Count, lambda _: Count(value=n)), value)

    await in_tool(body, MODERN, **of_ann())


@effect(Context.forget_user, "forgotten, or not")
async def forgetting_a_user() -> None:
    async def body(context: Context) -> None:
        await context.update_user_state(Count, lambda _: Count(value=1))
        await cancelled_before(context.forget_user())
        assert (await context.user_state(Count)).value == 1
        await context.forget_user()
        assert (await context.user_state(Count)).value == 0

    await in_tool(body, MODERN, **of_ann())


# --- extensions -------------------------------------------------------------------------------------------------


@call(ServerExtension.lifespan, "of an extension without one")
async def lifespan_of_an_extension(check: Check) -> None:
    run: Any = None  # it is not used
    async with check.block(ServerExtension().lifespan(run)):
        pass


@call(ExtensionRun.call, "a handler that does not wait")
async def call_of_an_extension(check: Check) -> None:
    class Extension(ServerExtension):
        identifier = "com.example/x"

        @contextlib.asynccontextmanager
        async def lifespan(self, run: ExtensionRun) -> AsyncIterator[ExtensionRun]:
            yield run

        async def middleware(self, context: Any, call_next: Any) -> dict[str, Any]:
            result: dict[str, Any] = await check(self.state(context).call(context))
            return result

    server = Server("x", extensions=[Extension()])
    server.add_tool(wait_for_nothing)
    async with Client(server) as client:
        await client.list_tools()
        await client.call_tool("wait_for_nothing")


async def wait_for_nothing() -> None: ...


# --- serving ----------------------------------------------------------------------------------------------------


@call(BaseServer.serve, "until the client has gone, and one that has")
async def serve(check: Check) -> None:
    async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        nursery.start_soon(check, Server("x").serve(theirs))
        await settle()
        await ours.write.aclose()
    async with memory_link_pair() as (ours, theirs):
        await ours.write.aclose()
        await check(Server("x").serve(theirs))


def over_a_network(function: Any) -> None:
    @call(function, "until it shall end")
    async def serve(check: Check) -> None:
        stop = trio.Event()
        stop.set()
        await check(function(Server("x"), port=0, shutdown=stop))


over_a_network(BaseServer.serve_http)
over_a_network(BaseServer.serve_sse)
over_a_network(BaseServer.serve_websocket)
over_a_network(BaseServer.serve_tcp)


@call(BaseServer.serve_unix, "until it shall end")
async def serve_unix(check: Check) -> None:
    stop = trio.Event()
    stop.set()
    with TemporaryDirectory() as folder:
        await check(Server("x").serve_unix(f"{folder}/socket", shutdown=stop))


@call(AsgiApp.__aenter__, "without a request")
@call(AsgiApp.__aexit__, "without a request")
async def asgi_app(check: Check) -> None:
    async with check.block(Server("x").asgi_app()):
        pass


@call(AsgiApp.lifespan, "without a request")
async def lifespan_of_an_application(check: Check) -> None:
    async with check.block(Server("x").asgi_app().lifespan()):
        pass


@call(AsgiApp.__call__, "a request and the lifespan protocol")
async def asgi_call(check: Check) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"type": "lifespan.startup"}

    async def send(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(event)

    app = Server("x").asgi_app()
    await check(app({"type": "lifespan"}, receive, send))
    async with app:
        await check(app({"type": "lifespan"}, receive, send))
        await check(app({"type": "http", "method": "GET", "path": "/health", "headers": []}, receive, send))


NO_LINK: Any = None  # never looked at: the call is cancelled before


def starts_nothing(function: Any, cancel: Callable[[Server], Awaitable[object]]) -> None:
    @effect(function, "nothing is started")
    async def nothing_started() -> None:
        started: list[object] = []

        @contextlib.asynccontextmanager
        async def lifespan(server: Server) -> AsyncIterator[None]:
            started.append(server)
            yield

        await cancel(Server("x", lifespan=lifespan))
        assert not started


starts_nothing(AsgiApp.__aenter__, lambda server: not_entered(server.asgi_app()))
starts_nothing(AsgiApp.lifespan, lambda server: not_entered(server.asgi_app().lifespan()))
starts_nothing(BaseServer.serve, lambda server: cancelled_before(server.serve(NO_LINK)))
starts_nothing(BaseServer.serve_http, lambda server: cancelled_before(server.serve_http(port=0)))
starts_nothing(BaseServer.serve_sse, lambda server: cancelled_before(server.serve_sse(port=0)))
starts_nothing(BaseServer.serve_websocket, lambda server: cancelled_before(server.serve_websocket(port=0)))
starts_nothing(BaseServer.serve_tcp, lambda server: cancelled_before(server.serve_tcp(port=0)))
starts_nothing(BaseServer.serve_unix, lambda server: cancelled_before(server.serve_unix("/no/such/folder/socket")))
starts_nothing(BaseServer.serve_stdio, lambda server: cancelled_before(server.serve_stdio()))


MIDDLEWARE = {
    ServerTelemetry: ServerTelemetry,
    CallRecorder: CallRecorder,
    Logging: Logging,
    Timing: Timing,
    ErrorMasking: ErrorMasking,
    RateLimit: lambda: RateLimit(100),
    SizeLimit: SizeLimit,
    Caching: lambda: Caching({"wait"}),
}


for middleware, make in MIDDLEWARE.items():

    @call(middleware.__call__, "two equal requests")
    async def server_middleware(check: Check, make: Callable[[], Any] = make) -> None:
        instance = make()
        server = Server("x", middleware=[lambda context, call_next: check(instance(context, call_next))])
        server.add_tool(wait)
        async with Client(server) as client:
            for _ in range(2):
                await client.call_tool("wait")


@call(Middleware.handle_request, "a request")
async def any_middleware(check: Check) -> None:
    class Checked(Middleware):
        async def handle_request(self, context: Any, call_next: Any) -> dict[str, Any]:
            call = super().handle_request(context, call_next)
            # Requests without a handler have their results already.
            return await (check(call) if context.method == "tools/call" else call)

    server = Server("x", middleware=[Checked()])
    server.add_tool(wait)
    async with Client(server) as client:
        await client.call_tool("wait")


@call(Middleware.send_request, "a request")
async def any_middleware_of_a_client(check: Check) -> None:
    class Checked(Middleware):
        async def send_request(self, call: Any, call_next: Any) -> dict[str, Any]:
            return await check(super().send_request(call, call_next))

    server = Server("x")
    server.add_tool(wait)
    async with Client(server, middleware=[Checked()]) as client:
        await client.call_tool("wait")


def session_without_a_link() -> tuple[ServerSession, Awaitable[Any]]:
    write, read = trio.open_memory_channel[SessionMessage](1)
    session = ServerSession(read, write, core_of(Server("x")).identity)
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    return session, session.initialize(Request(1, "initialize", params), {})


@call(ServerSession.initialize, "the handshake")
async def the_handshake(check: Check) -> None:
    session, response = session_without_a_link()
    await check(response)
    assert session.client is not None


@effect(ServerSession.initialize, "no session is opened")
async def no_handshake() -> None:
    session, response = session_without_a_link()
    await cancelled_before(response)
    assert session.client is None


@call(ClientTelemetry.__call__, "a request")
async def client_telemetry(check: Check) -> None:
    telemetry = ClientTelemetry()
    server = Server("x")
    server.add_tool(wait)
    async with Client(server, middleware=[lambda call, call_next: check(telemetry(call, call_next))]) as client:
        await client.call_tool("wait")


async def wait() -> None:
    await trio.lowlevel.checkpoint()
