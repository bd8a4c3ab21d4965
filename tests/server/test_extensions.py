"""`Server(extensions=[…])`: what an extension adds to a server, and what is refused (`basic/versioning`)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio
from pydantic import BaseModel
from trio.testing import MockClock

from tests.http_peer import ACCEPT, request
from tests.peer import client_peer, settle
from tests.server.harness import ACKNOWLEDGED, LEGACY, MODERN, both_eras, client_of
from tests.server.http.harness import Made, served
from tests.server.http.test_modern import META
from trio_mcp import Client, Context, McpError, MemoryEventStore, NotificationContext, Server
from trio_mcp.extensions import (
    ExtensionMethod,
    ExtensionNotification,
    ExtensionRun,
    ListenField,
    ServerExtension,
    TaskOptions,
    TaskPolicy,
    Tasks,
)
from trio_mcp.stores import MemoryStores, SqliteStores, StoreError
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    OVERLOADED,
)

ID, OTHER = "com.example/rooms", "com.example/other"
GET, MOVED, CHANGED = "rooms/get", "rooms/moved", "notifications/rooms"
DECLARED = {"extensions": {ID: {}}}


class Room(BaseModel):
    room: str


class Found(BaseModel):
    size: int


async def find(params: Room, ctx: Context) -> Found:
    return Found(size=len(params.room))


async def honor(value: Any, ctx: Context) -> tuple[list[str], list[str]]:
    if not isinstance(value, list):
        raise McpError(INVALID_PARAMS, "rooms must be an array")
    known = [each for each in value if each != "unknown"]
    return known, known


def told(key: str, ctx: Context) -> dict[str, Any] | None:
    return None if key == "silent" else {"room": key}


def extension(identifier: str = ID, **attributes: Any) -> ServerExtension:
    """Return an object of a class with these attributes."""
    return type("Extension", (ServerExtension,), {"identifier": identifier, **attributes})()  # type: ignore[no-any-return]


def method(name: str = GET, function: Callable[..., Any] = find, **details: Any) -> ExtensionMethod:
    return ExtensionMethod(name=name, function=function, **details)


def field(name: str = "rooms") -> ListenField:
    return ListenField(name=name, method=CHANGED, honor=honor, params=told)


def modern_only(self: object, revision: str) -> Mapping[str, Any] | None:
    return {"max": 3} if revision == MODERN else None


ROOMS: dict[str, Any] = {"methods": [method(params=Room, result=Found)]}


# --- what is declared -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "declared"), [(MODERN, {ID: {"max": 3}, OTHER: {}}), (LEGACY, {OTHER: {}})])
async def test_settings_are_declared_by_revision(revision: str, declared: dict[str, Any]) -> None:
    """None means that the extension is not offered in that revision; mappings stand beside objects."""
    server = Server("test", extensions=[extension(settings=modern_only), {OTHER: {}}])
    async with client_of(server, revision) as client:
        assert client.extensions == declared


async def test_what_is_declared_can_not_be_changed_from_outside() -> None:
    kept: dict[str, Any] = {"kinds": ["a"]}
    server = Server("test", extensions=[extension(settings=lambda self, revision: kept)])
    async with client_of(server) as client:
        client.extensions[ID]["kinds"].append("b")
    assert kept == {"kinds": ["a"]}


# --- methods ----------------------------------------------------------------------------------------------------------


@both_eras
async def test_a_method_has_models_for_both_directions(revision: str) -> None:
    async with client_of(Server("test", extensions=[extension(**ROOMS)]), revision, capabilities=DECLARED) as client:
        assert await client.request(GET, Room(room="hall"), Found) == Found(size=4)
        with pytest.raises(McpError, match="room: Field required") as caught:
            await client.request(GET, {})
        assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("revision", "declared", "revisions", "expected"),
    [
        (MODERN, DECLARED, (MODERN, LEGACY), None),
        (LEGACY, DECLARED, (MODERN, LEGACY), None),
        # Capability Negotiation: a request that needs what the client has not declared.
        (MODERN, {}, (MODERN, LEGACY), MISSING_REQUIRED_CLIENT_CAPABILITY),
        (LEGACY, {}, (MODERN, LEGACY), METHOD_NOT_FOUND),
        # The method does not exist in the revision, whatever is declared.
        (MODERN, DECLARED, (LEGACY,), METHOD_NOT_FOUND),
        (LEGACY, DECLARED, (MODERN,), METHOD_NOT_FOUND),
        (LEGACY, {}, (MODERN,), METHOD_NOT_FOUND),
    ],
)
async def test_who_may_call_a_method(
    revision: str, declared: dict[str, Any], revisions: tuple[str, ...], expected: int | None
) -> None:
    """The function is not called for any other client."""
    called: list[str] = []

    async def note(params: dict[str, Any], ctx: Context) -> None:
        called.append(ctx.method)

    server = Server("test", extensions=[extension(methods=[method(function=note, revisions=revisions)])])
    async with client_of(server, revision, capabilities=declared) as client:
        if expected is None:
            await client.request(GET)
        else:
            with pytest.raises(McpError) as caught:
                await client.request(GET)
            assert caught.value.code == expected
            if expected == MISSING_REQUIRED_CLIENT_CAPABILITY:
                assert caught.value.data == {"requiredCapabilities": DECLARED}
    assert called == ([GET] if expected is None else [])


async def test_a_method_that_another_revision_of_the_protocol_defines_can_be_added() -> None:
    """``tasks/get`` is one of 2025-11-25, where the extension leaves it to the protocol."""
    server = Server("test", extensions=[extension(methods=[method("tasks/get", every, revisions=(MODERN,))])])
    async with client_peer(server, MODERN, DECLARED) as wire:
        assert "error" not in await wire.result("tasks/get", {"taskId": "1"})
    async with client_peer(server, LEGACY, DECLARED) as wire:
        assert (await wire.error("tasks/get", {"taskId": "1"})).code == METHOD_NOT_FOUND


@pytest.mark.parametrize(("revision", "hints"), [(MODERN, {"ttlMs": 0, "cacheScope": "private"}), (LEGACY, {})])
async def test_a_cacheable_result_says_for_how_long(revision: str, hints: dict[str, Any]) -> None:
    """Its own hints come first; the legacy era has none (2026-07-28 `server/utilities/caching`)."""

    async def plain(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"a": 1}

    async def hinted(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"ttlMs": 5, "cacheScope": "public"}

    methods = [method("rooms/plain", plain, cacheable=True), method("rooms/hinted", hinted, cacheable=True)]
    methods.append(method("rooms/uncached", plain))
    server = Server("test", extensions=[extension(methods=methods)])
    async with client_of(server, revision, capabilities=DECLARED) as client:
        found = await client.request("rooms/plain")
        assert {name: found[name] for name in found if name in ("ttlMs", "cacheScope")} == hints
        found = await client.request("rooms/hinted")
        assert (found["ttlMs"], found["cacheScope"]) == (5, "public")
        assert "ttlMs" not in await client.request("rooms/uncached")


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("hall", 200, None), ("kitchen", 400, HEADER_MISMATCH), (None, 400, HEADER_MISMATCH)],
)
async def test_the_name_header_repeats_the_parameter_of_the_method(
    name: str | None, status: int, code: int | None
) -> None:
    """`basic/transports/streamable-http`, Standard Request Headers: servers MUST reject a mismatch with -32020."""
    offered = extension(methods=[method(params=Room, result=Found, name_parameter="room"), method("rooms/all", every)])
    async with served(made=Made(extensions=[offered])) as (_, http, _):

        async def post(wanted: str, params: dict[str, Any], name: str | None) -> Any:
            headers = {"accept": ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": wanted}
            headers |= {} if name is None else {"mcp-name": name}
            meta_of = META | {meta.CLIENT_CAPABILITIES: DECLARED}
            return await http.post("/mcp", json=request(wanted, {**params, "_meta": meta_of}, 1), headers=headers)

        response = await post(GET, {"room": "hall"}, name)
        assert response.status_code == status, response.text
        assert response.json().get("error", {}).get("code") == code
        assert (await post("rooms/all", {}, None)).status_code == 200  # a method without such a parameter


async def every(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    return {}


# --- notifications and listening --------------------------------------------------------------------------------------


@both_eras
async def test_a_notification_reaches_the_function_of_the_extension(revision: str) -> None:
    heard: list[str] = []
    done = trio.Event()

    async def moved(room: Room, ctx: NotificationContext) -> None:
        heard.append(f"{ctx.method} {room.room}")
        done.set()

    offered = extension(notifications=[ExtensionNotification(name=MOVED, function=moved, params=Room)])
    async with client_of(Server("test", extensions=[offered]), revision, capabilities=DECLARED) as client:
        await client.notify(MOVED, {"size": 1})  # invalid, and so passed over
        await client.notify(MOVED, {"room": "hall"})
        await done.wait()
    assert heard == [f"{MOVED} hall"]


@pytest.mark.parametrize(
    ("revision", "revisions", "capabilities", "reaches"),
    [
        (MODERN, [MODERN], {}, True),  # modern notifications come without a declaration
        (MODERN, [LEGACY], DECLARED, False),
        (LEGACY, [LEGACY], DECLARED, True),
        (LEGACY, ["2025-06-18", MODERN], DECLARED, False),
        (LEGACY, [LEGACY], {}, False),
    ],
)
async def test_a_notification_of_an_extension_exists_in_its_revisions_for_clients_that_have_declared_it(
    revision: str, revisions: list[str], capabilities: dict[str, Any], reaches: bool
) -> None:
    heard: list[str] = []
    end = trio.Event()

    async def moved(params: dict[str, Any], ctx: NotificationContext) -> None:
        heard.append(ctx.method)

    async def ended(params: dict[str, Any], ctx: NotificationContext) -> None:
        end.set()

    offered = extension(notifications=[ExtensionNotification(name=MOVED, function=moved, revisions=revisions)])
    server = Server("test", extensions=[offered])
    server.add_notification("notifications/end", ended)
    async with client_of(server, revision, capabilities=capabilities) as client:
        await client.notify(MOVED, {})
        await client.notify("notifications/end", {})
        await end.wait()
    assert heard == [MOVED] * reaches


def listening() -> tuple[Server, list[ExtensionRun]]:
    runs: list[ExtensionRun] = []

    @contextlib.asynccontextmanager
    async def lifespan(self: ServerExtension, run: ExtensionRun) -> AsyncIterator[None]:
        runs.append(run)
        yield

    return Server("test", extensions=[extension(listen=[field()], lifespan=lifespan)]), runs


async def test_a_field_of_the_filter_is_honored_and_its_notifications_carry_the_subscription() -> None:
    """Only of what was honored, and none for which the extension has no parameters."""
    server, runs = listening()
    async with client_peer(server, MODERN, DECLARED) as wire:
        acknowledged: Any = await wire.listen(1, rooms=["hall", "unknown", "silent"], toolsListChanged=True)
        assert acknowledged.method == ACKNOWLEDGED
        wanted = {"toolsListChanged": True, "rooms": ["hall", "silent"]}
        assert acknowledged.params["notifications"] == wanted
        (run,) = runs
        assert sorted(run.listened(CHANGED)) == ["hall", "silent"]
        for key in ("kitchen", "silent", "hall"):
            run.announce(CHANGED, key)
        await settle()
        stamp = {meta.SUBSCRIPTION_ID: 1}
        assert [(each.method, each.params) for each in wire.arrived()] == [(CHANGED, {"_meta": stamp, "room": "hall"})]
        await wire.cancel(1)
        await settle()
        assert run.listened(CHANGED) == []


@pytest.mark.parametrize(
    ("declared", "value", "code"),
    [({}, ["hall"], MISSING_REQUIRED_CLIENT_CAPABILITY), (DECLARED, "hall", INVALID_PARAMS)],
)
async def test_a_field_is_refused_for_the_undeclared_and_the_malformed(
    declared: dict[str, Any], value: Any, code: int
) -> None:
    server, runs = listening()
    async with client_peer(server, MODERN, declared) as wire:
        error = await wire.error("subscriptions/listen", {"notifications": {"rooms": value}})
        assert error.code == code
        assert runs[0].listened(CHANGED) == []


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        (["rooms"], TypeError, "must be a ServerExtension or a mapping, got 'rooms'"),
        ("rooms", TypeError, "must be a list of extensions, or a mapping, got str"),
        ([extension("rooms")], ValueError, "'rooms'"),
        ([extension(), extension()], ValueError, f"{ID!r} is given twice"),
        ([extension(), {ID: {}}], ValueError, f"{ID!r} is given twice"),
        ([{ID: {}}, extension()], ValueError, f"{ID!r} is given twice"),
        ([{ID: {}}, {ID: {}}], ValueError, f"{ID!r} is given twice"),
        ([extension(requires=[OTHER])], ValueError, f"requires {OTHER!r}: pass that extension"),
        ([extension(methods=[method("tools/list")])], ValueError, "the protocol defines 'tools/list'"),
        ([extension(methods=[method("tasks/get")])], ValueError, "the protocol defines 'tasks/get'"),
        ([extension(listen=[field("toolsListChanged")])], ValueError, "field 'toolsListChanged' .* the protocol"),
        ([extension(**ROOMS), extension(OTHER, **ROOMS)], ValueError, f"method {GET!r} .*{OTHER}.* taken by {ID}"),
        ([extension(listen=[field()]), extension(OTHER, listen=[field()])], ValueError, f"field 'rooms' .* by {ID}"),
        ([extension(details=["task"]), Tasks()], ValueError, f"detail 'task' .* taken by {ID}"),
        ([extension(details=["one", "one"])], ValueError, f"detail 'one' .* taken by {ID}"),
        ([extension(methods=[method(params=dict)])], TypeError, "must be pydantic models"),
    ],
)
def test_a_server_refuses_extensions(given: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        Server("test", extensions=given)


@pytest.mark.parametrize(
    ("make", "error", "what"),
    [
        (lambda: method(""), ValueError, "name"),
        (lambda: method(revisions=()), ValueError, "revisions must be some of"),
        (lambda: method(revisions=["2031-01-01"]), ValueError, "revisions must be some of"),
        (lambda: method(cacheable="yes"), TypeError, "cacheable"),
        (lambda: field(3), TypeError, "name"),  # type: ignore[arg-type]
    ],
)
def test_a_part_of_an_extension_is_checked_where_it_is_made(
    make: Callable[[], object], error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=what):
        make()


@pytest.mark.parametrize("turned", [False, True])
async def test_what_an_extension_requires_may_stand_before_or_after_it(turned: bool) -> None:
    """It is judged by the finished configuration (draft SEP-3371)."""
    given: list[Any] = [extension(requires=[OTHER], **ROOMS), {OTHER: {}}]
    async with client_of(Server("test", extensions=given[::-1] if turned else given)) as client:
        assert set(client.extensions) == {ID, OTHER}


async def test_nothing_of_a_refused_extension_stays() -> None:
    """The same objects serve in the next server, whose methods are theirs alone."""
    first, second = extension(**ROOMS), extension(OTHER, **ROOMS)
    with pytest.raises(ValueError, match="taken"):
        Server("refused", extensions=[first, second])
    async with client_of(Server("test", extensions=[second]), capabilities=DECLARED) as client:
        assert set(client.extensions) == {OTHER}
        with pytest.raises(McpError) as caught:  # it belongs to the other extension
            await client.request(GET, {"room": "hall"})
        assert caught.value.data == {"requiredCapabilities": {"extensions": {OTHER: {}}}}


def test_the_names_of_an_extension_are_taken_for_methods_and_notifications_of_the_server() -> None:
    offered = extension(notifications=[ExtensionNotification(name=MOVED, function=every)], **ROOMS)
    server = Server("test", extensions=[offered])
    with pytest.raises(ValueError, match="an extension of the server has this method"):
        server.add_method(GET, every)
    with pytest.raises(ValueError, match="an extension of the server has this notification"):
        server.add_notification(MOVED, every)
    server.add_method("rooms/other", every, extension=ID)  # what is free may belong to it


# --- what a tool declares ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extensions", "task", "error", "what"),
    [
        ((), "optional", ValueError, "Tasks"),
        ((), TaskPolicy(), ValueError, "Tasks"),
        ([Tasks()], "sometimes", ValueError, "mode must be"),
        ([Tasks()], 3, TypeError, "task must be a TaskPolicy or a mode"),
    ],
)
async def test_what_a_tool_declares_is_refused_at_once_and_the_tool_is_not_added(
    extensions: Any, task: Any, error: type[Exception], what: str
) -> None:
    server = Server("test", extensions=extensions)

    async def work() -> None: ...

    with pytest.raises(error, match=what):
        server.add_tool(work, task=task)
    async with client_of(server) as client:
        assert not [tool async for tool in client.iter_tools()]


# --- middleware, lifespan and state -----------------------------------------------------------------------------------

CallNext = Callable[[], Awaitable[dict[str, Any]]]


def around(events: list[str], name: str) -> Any:
    async def middleware(*arguments: Any) -> dict[str, Any]:  # of an instance or of none
        context, call_next = arguments[-2:]
        if context.method == "tools/call":
            events.append(name)
        result: dict[str, Any] = await call_next()
        return result

    return middleware


@pytest.mark.parametrize(
    ("placed", "order"),
    [
        ([], ["one", "two", "a", "b"]),
        (["two"], ["one", "a", "two", "b"]),
        (["one", "two"], ["a", "one", "two", "b"]),
        (["two", "one"], ["a", "two", "one", "b"]),
    ],
)
async def test_middleware_of_extensions_stands_outside_all_unless_it_is_given_a_place(
    placed: list[str], order: list[str]
) -> None:
    """Those not named are in the order of the extensions."""
    events: list[str] = []
    one, two = (extension(f"com.example/{name}", middleware=around(events, name)) for name in ("one", "two"))
    by_name: dict[str, Any] = {"one": one.middleware, "two": two.middleware}
    given = [around(events, "a"), *(by_name[name] for name in placed), around(events, "b")]
    server = Server("test", extensions=[one, two], middleware=given)

    @server.tool
    async def work() -> str:
        return "done"

    async with client_of(server) as client:
        await client.call_tool("work")
    assert events == order


def test_middleware_of_an_extension_that_the_server_lacks_is_refused() -> None:
    """It would do nothing, silently."""
    with pytest.raises(ValueError, match="pass the extension in extensions=, too"):
        Server("test", middleware=[Tasks().middleware], extensions=[extension()])
    tasks = Tasks()
    Server("test", middleware=[tasks.middleware], extensions=[tasks])


async def test_each_run_has_a_state_and_ends_the_tasks_of_the_extension() -> None:
    events: list[str] = []

    async def work(number: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            events.append(f"task {number} ends")

    class Counting(ServerExtension):
        identifier = ID
        runs = 0

        def __init__(self) -> None:
            self.methods = [method(function=self.number)]

        @contextlib.asynccontextmanager
        async def lifespan(self, run: ExtensionRun) -> AsyncIterator[int]:
            self.runs += 1
            run.nursery.start_soon(work, self.runs)
            yield self.runs
            events.append("lifespan ends")

        async def number(self, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            return {"number": self.state(ctx)}

    server = Server("test", extensions=[Counting()])
    for number in (1, 2):
        async with client_of(server, capabilities=DECLARED) as client:
            assert (await client.request(GET))["number"] == number
        assert events == ["lifespan ends", f"task {number} ends"]
        events.clear()


# --- mounting ---------------------------------------------------------------------------------------------------------


def test_a_mounted_server_needs_the_extensions_and_the_stores_of_the_server_around_it() -> None:
    stores = MemoryStores()
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"extensions": [Tasks()]}, {}, r"the extension 'io\.modelcontextprotocol/tasks', and 'main' has not"),
        # A mapping only declares it, and its methods would not be served.
        ({"extensions": [extension(**ROOMS)]}, {"extensions": {ID: {}}}, f"the extension {ID!r}, and 'main' has not"),
        ({"extensions": {ID: {"max": 1}}}, {"extensions": {ID: {}}}, "does not declare with the same settings"),
        ({"stores": MemoryStores()}, {"stores": MemoryStores()}, "pass the same object as stores= to both"),
        ({"stores": stores}, {}, "'inner' has stores, and a run of 'main' uses only its own"),
    ]
    for inner, outer, what in refused:
        server = Server("main", **outer)
        with pytest.raises(ValueError, match=what):
            server.mount(Server("inner", **inner))
    for inner, outer in (
        ({"stores": stores}, {"stores": stores}),
        ({}, {"stores": stores}),
        ({"extensions": [Tasks()], "stores": stores}, {"extensions": [Tasks()], "stores": stores}),
    ):
        Server("main", **outer).mount(Server("inner", **inner))


@pytest.mark.parametrize("shared", [False, True])
async def test_a_tool_of_a_mounted_server_runs_as_a_task_of_the_server_around_it(shared: bool) -> None:
    """With its prefix, through the middleware of both, whether both have one object or two."""
    events: list[str] = []
    ours = Tasks()
    inner = Server("inner", extensions=[ours if shared else Tasks()], middleware=[around(events, "inner")])
    server = Server("main", extensions=[ours], middleware=[around(events, "main")])

    @inner.tool(task=TaskPolicy(after=0))
    async def work(ctx: Context) -> str:
        return await ctx.once("step", lambda: "done")

    server.mount(inner, prefix="in")
    async with client_of(server, extensions=[Tasks()]) as client:
        task = await Tasks.of(client).start("in__work")
        assert task.id is not None
        assert (await task.result()).data == "done"
    assert events == ["main", "inner"]


async def test_a_call_that_finds_no_room_for_its_task_gets_one_clear_error(autojump_clock: MockClock) -> None:
    """And its function does not go on, as no client could get its result."""
    ended: list[str] = []
    server = Server("test", extensions=[Tasks(TaskOptions(max_tasks=1))])

    @server.tool(task=TaskPolicy(after=1))
    async def work(number: int) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(f"{number} ends")

    async with client_of(server, extensions=[Tasks()]) as client:
        first = await Tasks.of(client).start("work", {"number": 1})
        with pytest.raises(McpError, match="already holds the maximum number of tasks; try again later") as caught:
            await Tasks.of(client).start("work", {"number": 2})
        assert caught.value.code == OVERLOADED
        assert ended == ["2 ends"]
        assert (await first.get()).status == "working"


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [3, b"tasks.db", {}, SqliteStores])
def test_stores_are_an_object_or_a_path(given: Any) -> None:
    with pytest.raises(TypeError, match=r"stores must be a trio_mcp\.stores\.Stores, the path of a file or a URL"):
        Server("test", stores=given)


class Opened(MemoryStores):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    async def __aenter__(self) -> Any:
        self.events.append("open")
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        self.events.append("close")
        await super().__aexit__(*exc)


async def test_each_run_opens_the_stores_and_closes_them_at_its_end() -> None:
    stores = Opened()
    server = Server("test", stores=stores)
    assert stores.events == []
    for _ in range(2):
        async with Client(server):
            assert stores.events == ["open"]
        assert stores.events == ["open", "close"]
        stores.events.clear()


async def test_a_file_belongs_to_one_server(tmp_path: Any) -> None:
    """Another name is refused before anything is served; several processes of one server share the file."""
    path = tmp_path / "tasks.db"
    async with Client(Server("one", stores=path)), Client(Server("one", stores=str(path))):
        pass
    with pytest.raises(StoreError, match=r"belongs to the server 'one', not to 'two'"):
        async with Client(Server("two", stores=path)):
            pass


@pytest.mark.parametrize("way", ["serve_http", "asgi_app"])
async def test_an_event_store_beside_stores_is_refused(way: str) -> None:
    """No one could say which of the two has the messages."""
    server = Server("test", stores=MemoryStores())
    settings: dict[str, Any] = {"event_store": MemoryEventStore()}
    with pytest.raises(ValueError, match=r"leave out event_store=, or the stores= of the server"):
        if way == "serve_http":
            await server.serve_http(port=0, **settings)
        else:
            async with server.asgi_app(**settings):
                pass
