"""The state of a user: whose it is, that no change of it is lost, and what is refused."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from pydantic import AliasChoices, BaseModel, Field
from pydantic_core import from_json
from trio.testing import MockClock

from tests.auth.server.guarded import Legacy, Table, ask, modern, person, protected
from tests.injection import cancel_everywhere
from tests.server.input_harness import LEGACY, MODERN, Name, accept, hand_client, text_of
from trio_mcp import Client, Context, LocalProtocolError, Principal, Server
from trio_mcp.extensions import Tasks
from trio_mcp.stores import (
    MemoryStores,
    SqliteStores,
    StateConflict,
    StateEntry,
    StatePut,
    StoreError,
    Stores,
    UserStateOptions,
    user_states as rooms,
)

ANN = person("ann")
TRUST = UserStateOptions(trust_principal=True)


class Cart(BaseModel):
    items: list[str] = []


class Count(BaseModel):
    value: int = 0


def add(item: str) -> Callable[[Cart], Cart]:
    def change(cart: Cart) -> Cart:
        cart.items.append(item)
        return cart

    return change


def one_more(count: Count) -> Count:
    return Count(value=count.value + 1)


def shop(stores: Stores | None, **settings: Any) -> Server:
    server = Server("shop", stores=stores, expose_errors=True, **settings)

    @server.tool(name="add")
    async def add_item(item: str, ctx: Context) -> str:
        return " ".join((await ctx.update_user_state(Cart, add(item))).items)

    @server.tool
    async def show(ctx: Context) -> str:
        return " ".join((await ctx.user_state(Cart)).items)

    @server.tool
    async def forget(ctx: Context) -> None:
        await ctx.forget_user()

    return server


def known(stores: Stores, **settings: Any) -> Server:
    """Return a server that knows its user without HTTP."""
    return shop(stores, principal=lambda ctx: "ann", user_state=TRUST, **settings)


@contextlib.asynccontextmanager
async def context_of(stores: Stores | None, **settings: Any) -> AsyncIterator[Context]:
    """Yield the context of a running tool."""
    found: list[Context] = []
    done = trio.Event()
    server = Server("shop", stores=stores, **{"principal": lambda ctx: "ann", "user_state": TRUST, **settings})

    @server.tool
    async def wait(ctx: Context) -> None:
        found.append(ctx)
        ready.set()
        await done.wait()

    ready = trio.Event()
    async with Client(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "wait")
        await ready.wait()
        try:
            yield found[0]
        finally:
            done.set()


@pytest.fixture(params=["memory", "file"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return MemoryStores() if request.param == "memory" else SqliteStores(tmp_path / "shop.db")


# --- whose it is ------------------------------------------------------------------------------------------------------

OTHERS = {
    "another subject": attrs.evolve(ANN, subject="bob"),
    "another issuer": attrs.evolve(ANN, issuer="https://other.example.com"),
    "another client": attrs.evolve(ANN, client_id="d"),
    "no client": attrs.evolve(ANN, client_id=None),
}
SAME = attrs.evolve(ANN, scopes=frozenset({"write"}), expires_at=9e9)


async def told(app: Any, era: str, token: str, tool: str, **arguments: Any) -> str:
    """Call a tool over HTTP, and return its text."""
    if era == MODERN:
        answer = (await ask(app, modern(token, "tools/call", name=tool, arguments=arguments))).json
    else:
        session = Legacy(app, token)
        await session.initialize()
        answer = from_json((await session.call("tools/call", name=tool, arguments=arguments)).events()[-1].data)
    return text_of(answer["result"])


@pytest.mark.legacy
@pytest.mark.parametrize("other", OTHERS)
async def test_a_state_belongs_to_issuer_subject_and_client_in_both_eras(other: str, autojump_clock: MockClock) -> None:
    server = shop(MemoryStores())
    async with protected(server, Table({"ann": ANN, "same": SAME, "other": OTHERS[other]})) as app:
        assert await told(app, MODERN, "ann", "add", item="tea") == "tea"
        assert await told(app, LEGACY, "same", "add", item="milk") == "tea milk"
        for era in (MODERN, LEGACY):
            assert await told(app, era, "other", "show") == ""
        assert await told(app, LEGACY, "other", "add", item="rum") == "rum"
        assert await told(app, MODERN, "ann", "show") == "tea milk"
        await ask(app, modern("ann", "tools/call", name="forget"))
        assert await told(app, LEGACY, "ann", "show") == ""
        assert await told(app, MODERN, "other", "show") == "rum"


@pytest.mark.parametrize("other", OTHERS)
async def test_clients_of_a_user_share_a_state_only_if_set(other: str, autojump_clock: MockClock) -> None:
    server = shop(MemoryStores(), user_state=UserStateOptions(across_clients=True))
    async with protected(server, Table({"ann": ANN, "other": OTHERS[other]})) as app:
        await told(app, MODERN, "ann", "add", item="tea")
        assert await told(app, MODERN, "other", "show") == ("tea" if "client" in other else "")


async def test_a_principal_that_the_server_determines_counts_only_if_set(autojump_clock: MockClock) -> None:
    """A client that can choose a header could otherwise read the states of any user."""

    def identify(ctx: Context) -> Principal:
        return Principal(ctx.headers["x-user"], "https://proxy.example.com")

    for options, text in (
        (None, "comes from Server(principal=…), which counts"),
        (UserStateOptions(across_clients=True), "comes from Server(principal=…), which counts"),
        (TRUST, "tea"),
    ):
        async with protected(shop(MemoryStores(), principal=identify, user_state=options), Table({"ann": ANN})) as app:
            exchange = modern("ann", "tools/call", name="add", arguments={"item": "tea"})
            exchange.scope["headers"].append((b"x-user", b"bob"))
            assert text in text_of((await ask(app, exchange)).json["result"])


async def test_a_subject_without_issuer_is_refused_beside_ones_with(autojump_clock: MockClock) -> None:
    """The same subject of two issuers would get one state."""
    server = shop(MemoryStores(), principal=lambda ctx: "ann", user_state=TRUST)
    nameless = attrs.evolve(ANN, issuer=None)
    async with protected(server, Table({"ann": ANN, "nameless": nameless})) as app:
        assert "has no issuer, although its token comes from https://id" in await told(app, MODERN, "ann", "show")
        assert await told(app, MODERN, "nameless", "add", item="tea") == "tea"


async def test_a_user_who_is_unknown_has_no_state() -> None:
    for settings in ({}, {"principal": lambda ctx: None, "user_state": TRUST}):
        async with hand_client(shop(MemoryStores(), **settings)) as peer:
            for tool, arguments in (("add", {"item": "tea"}), ("show", {}), ("forget", {})):
                result = await peer.tool(tool, **arguments)
                assert "not known on whose behalf this 'tools/call' is made" in text_of(result)
                assert "serve over HTTP with auth=…" in text_of(result)


async def test_a_server_without_stores_says_what_to_give() -> None:
    async with hand_client(shop(None, principal=lambda ctx: "ann", user_state=TRUST)) as peer:
        for tool, arguments in (("add", {"item": "tea"}), ("show", {}), ("forget", {})):
            assert 'Server(…, stores="desk.db")' in text_of(await peer.tool(tool, **arguments))


def test_the_settings_are_checked() -> None:
    with pytest.raises(TypeError, match=r"user_state must be an? UserStateOptions, got dict"):
        Server("x", user_state={"ttl": 1})  # type: ignore[arg-type]
    for settings in ({"ttl": 0}, {"ttl": float("inf")}, {"max_size": 0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            UserStateOptions(**settings)
    with pytest.raises(TypeError, match="trust_principal"):
        UserStateOptions(trust_principal="ann")  # type: ignore[arg-type]


# --- that no change is lost -------------------------------------------------------------------------------------------


async def test_of_changes_that_two_servers_make_at_once_none_is_lost(stores: Stores, tmp_path: Path) -> None:
    other = SqliteStores(tmp_path / "shop.db") if stores.shared else stores  # as another process opens it
    servers = [known(stores), known(other)]
    async with Client(servers[0]) as one, Client(servers[1]) as two, trio.open_nursery() as nursery:
        for number in range(24):
            client = (one, two)[number % 2]
            nursery.start_soon(functools.partial(client.call_tool, "add", {"item": str(number)}))
    async with Client(servers[0]) as client:
        items = str((await client.call_tool("show")).data).split()
    assert sorted(map(int, items)) == list(range(24))


class Contested(MemoryStores):
    """Stores in which another process always writes first."""

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        entry = await self.state(user, name)
        await super().put_state(user, name, b"{}", tag=None if entry is None else entry.tag, expires=None)
        return await super().put_state(user, name, value, tag=tag, expires=expires)


async def test_a_change_is_tried_eight_times(autojump_clock: MockClock) -> None:
    seen = []
    async with context_of(Contested()) as ctx:
        with pytest.raises(StateConflict, match=r"'Count' of a user was not changed: .* at each of 8 tries; try again"):
            await ctx.update_user_state(Count, lambda count: seen.append(count) or count)  # type: ignore[func-returns-value]
    assert len(seen) == 8
    assert len({id(each) for each in seen}) == 8  # no try sees what an earlier one has modified


class Far(MemoryStores):
    """Stores to which the way takes 30 ms, each time."""

    async def state(self, user: str, name: str) -> StateEntry | None:
        entry = await super().state(user, name)
        await trio.sleep(0.03)
        return entry

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        await trio.sleep(0.03)
        return await super().put_state(user, name, value, tag=tag, expires=expires)


async def test_many_who_change_a_state_at_once_all_have_their_turn(autojump_clock: MockClock) -> None:
    """Twelve calls in three processes, without a pause, ten times each: of these 120, hardly one is in vain."""
    stores, in_vain = Far(), 0
    processes = [rooms.UserStates(stores, UserStateOptions()) for _ in range(3)]

    async def change(states: rooms.UserStates) -> None:
        nonlocal in_vain
        for _ in range(10):
            try:
                await states.update("ann", "Count", Count, one_more)
            except StateConflict:
                in_vain += 1

    async with trio.open_nursery() as nursery:
        for number in range(12):
            nursery.start_soon(change, processes[number % 3])
    assert in_vain <= 8  # about 20 if all try again at the same time; mostly none, or one
    assert (await processes[0].read("ann", "Count", Count)).value == 120 - in_vain


class Held(Far):
    """Stores that hold up what they are told, or fail two seconds later."""

    def __init__(self) -> None:
        super().__init__()
        self.held: trio.Event | None = None
        self.gone = False

    async def state(self, user: str, name: str) -> StateEntry | None:
        await self._wait()
        return await super().state(user, name)

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        await self._wait()
        return await super().put_state(user, name, value, tag=tag, expires=expires)

    async def _wait(self) -> None:
        if self.gone:
            await trio.sleep(2)
            raise StoreError("it is gone")
        if self.held is not None:
            await self.held.wait()


async def test_changes_that_a_store_has_held_up_are_made_soon_after(autojump_clock: MockClock) -> None:
    """The pauses, which are as long as the store was silent, do not add up."""
    stores = Held()
    states = rooms.UserStates(stores, UserStateOptions())
    await states.update("ann", "Count", Count, one_more)
    stores.held = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(states.update, "ann", "Count", Count, one_more)
        await trio.sleep(1.9)
        stores.held.set()
        stores.held, since = None, trio.current_time()
    assert trio.current_time() - since < 2.5  # one pause of at most a second, and ten changes; it was 6 s
    assert (await states.read("ann", "Count", Count)).value == 11


async def test_no_change_waits_long_for_others_that_a_store_holds_up(autojump_clock: MockClock) -> None:
    """Twelve in conflict, when the store goes away: none waits until each of the others has failed."""
    stores = Held()
    states = rooms.UserStates(stores, UserStateOptions())
    failed = 0

    async def change() -> None:
        nonlocal failed
        try:
            await states.update("ann", "Count", Count, one_more)
        except StoreError:
            failed += 1

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(12):
            nursery.start_soon(change)
        await trio.sleep(0.15)
        stores.gone = True
    assert failed > 6
    assert trio.current_time() - begun < 6  # 2 until its turn, at most 1 of a pause, 2 until the store fails; it was 20


async def test_a_cancelled_change_is_made_or_not(stores: Stores) -> None:
    """One that returns is made; a cancellation leaves nothing between."""
    returned, before = 0, 0
    async with context_of(stores) as ctx:

        async def change() -> None:
            nonlocal returned
            await ctx.user_state(Count)
            returned = (await ctx.update_user_state(Count, one_more)).value

        async def check() -> None:
            nonlocal before
            now = (await ctx.user_state(Count)).value
            assert now in (before, before + 1)
            assert now >= returned
            before = now

        assert await cancel_everywhere(change, check) > 0
        assert returned == before

        async def forget() -> None:
            await ctx.forget_user()

        async def check_forgotten() -> None:
            assert (await ctx.user_state(Count)).value in (0, before)

        assert await cancel_everywhere(forget, check_forgotten) > 0
        assert (await ctx.user_state(Count)).value == 0


async def test_a_state_ends_a_while_after_it_was_last_written() -> None:
    now = [1000.0]
    stores = MemoryStores(now=lambda: now[0])
    async with context_of(stores, user_state=UserStateOptions(trust_principal=True, ttl=60)) as ctx:
        await ctx.update_user_state(Count, one_more)
        now[0] += 59
        assert (await ctx.update_user_state(Count, one_more)).value == 2
        now[0] += 59
        assert (await ctx.user_state(Count)).value == 2  # reading does not prolong it
        now[0] += 1
        assert (await ctx.user_state(Count)).value == 0
        assert (await ctx.update_user_state(Count, one_more)).value == 1
    async with context_of(stores, user_state=UserStateOptions(trust_principal=True, ttl=None)) as ctx:
        await ctx.update_user_state(Count, one_more)
        now[0] += 1e9
        assert (await ctx.user_state(Count)).value == 2


# --- what a process remembers -----------------------------------------------------------------------------------------


class Watched(MemoryStores):
    """Stores that write down what is asked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def state(self, user: str, name: str) -> StateEntry | None:
        self.asked.append("read")
        return await super().state(user, name)

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        put = await super().put_state(user, name, value, tag=tag, expires=expires)
        self.asked.append("put" if put.done else "conflict")
        return put

    def asked_now(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


async def test_a_change_of_a_state_that_this_process_has_seen_last_is_one_transaction() -> None:
    stores = Watched()
    async with context_of(stores) as ctx:
        await ctx.update_user_state(Count, one_more)
        assert stores.asked_now() == ["read", "put"]
        assert (await ctx.update_user_state(Count, one_more)).value == 2
        assert stores.asked_now() == ["put"]
        await ctx.forget_user()
        assert (await ctx.user_state(Count)).value == 0
        stores.asked_now()
        assert (await ctx.update_user_state(Count, one_more)).value == 1
        assert stores.asked_now() == ["read", "put"]
    async with context_of(stores) as ctx:
        await ctx.user_state(Count)
        stores.asked_now()
        assert (await ctx.update_user_state(Count, one_more)).value == 2
        assert stores.asked_now() == ["put"]


@pytest.mark.parametrize("elsewhere", ["changed", "forgotten"])
async def test_a_state_that_another_process_has_changed_since_is_not_read_again(elsewhere: str) -> None:
    stores = Watched()
    async with context_of(stores) as one, context_of(stores) as two:
        await one.update_user_state(Cart, add("tea"))
        if elsewhere == "changed":
            await two.update_user_state(Cart, add("milk"))
        else:
            await two.forget_user()
        stores.asked_now()
        items = (await one.update_user_state(Cart, add("rum"))).items
        assert items == (["tea", "milk", "rum"] if elsewhere == "changed" else ["rum"])
        assert stores.asked_now() == ["conflict", "put"]
        # What was wrong is not tried again: requests of this user may meet another process each time.
        await one.update_user_state(Cart, add("ale"))
        assert stores.asked_now() == ["read", "put"]


def only_with_milk(cart: Cart) -> Cart:
    if "milk" not in cart.items:
        raise ValueError("there is no milk")
    return add("tea")(cart)


async def test_a_change_does_not_fail_because_of_a_state_that_is_out_of_date() -> None:
    stores = MemoryStores()
    async with context_of(stores) as one, context_of(stores) as two:
        await one.user_state(Cart)
        await one.update_user_state(Cart, lambda cart: cart)
        await two.update_user_state(Cart, add("milk"))
        assert (await one.update_user_state(Cart, only_with_milk)).items == ["milk", "tea"]
        await two.forget_user()
        with pytest.raises(ValueError, match="there is no milk"):
            await one.update_user_state(Cart, only_with_milk)


async def test_what_a_process_remembers_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "MOST_SEEN", 3)
    monkeypatch.setattr(rooms, "SEEN_BYTES", 200)
    stores = Watched()

    async def remembered(*names: str) -> list[bool]:
        found = []
        for name in names:
            stores.asked_now()
            await ctx.update_user_state(Cart, lambda cart: cart, name=name)
            found.append(stores.asked_now() == ["put"])
        return found

    async with context_of(stores) as ctx:
        assert await remembered("a", "b", "c", "d") == [False] * 4
        assert await remembered("d", "c", "b") == [True] * 3
        assert await remembered("a", "d") == [False, False]  # the least recent one was forgotten, as "a" came
        await ctx.update_user_state(Cart, add("x" * 180), name="e")
        assert await remembered("e", "a") == [True, False]  # together they would be too large
        await ctx.update_user_state(Cart, add("x" * 250), name="f")
        assert await remembered("f", "e") == [False, False]  # it is too large alone


# --- where it is available --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_all_functions_have_it(revision: str) -> None:
    seen: list[int] = []

    async def count(ctx: Context) -> str:
        seen.append((await ctx.update_user_state(Count, one_more)).value)
        return "x"

    async def middleware(ctx: Context, call_next: Any) -> Any:
        await count(ctx)
        return await call_next()

    server = Server("x", stores=MemoryStores(), principal=lambda ctx: "ann", user_state=TRUST, middleware=[middleware])

    @server.tool
    def thread(ctx: Context) -> str:
        kept = trio.from_thread.run(ctx.update_user_state, Count, one_more)
        assert trio.from_thread.run(ctx.user_state, Count) == kept
        return str(kept.value)

    server.tool(name="tool")(count)
    server.resource("x://a", name="resource")(count)
    server.prompt(name="prompt")(count)

    @server.method("acme/count")
    async def method(params: dict[str, Any], ctx: Context) -> None:
        await count(ctx)

    async with hand_client(server, revision) as peer:
        assert text_of(await peer.tool("thread")) == "2"
        await peer.tool("tool")
        await peer.result("resources/read", {"uri": "x://a"})
        await peer.result("prompts/get", {"name": "prompt"})
        await peer.result("acme/count", {})
    assert seen == [1, 3, 4, 5, 6, 7, 8, 9, 10]


async def test_a_task_has_the_state_of_the_one_who_began_it() -> None:
    server = known(MemoryStores(), extensions=[Tasks()])

    @server.tool(task="manual")
    async def later(ctx: Context) -> str:
        assert await ctx.detach()
        return " ".join((await ctx.update_user_state(Cart, add("milk"))).items)

    async with Client(server, extensions=[Tasks()]) as client:
        await client.call_tool("add", {"item": "tea"})
        assert (await client.call_tool("later")).data == "tea milk"
        assert (await client.call_tool("show")).data == "tea milk"


async def test_mounted_servers_use_the_stores_and_settings_of_the_one_that_runs_and_share_only_by_name() -> None:
    """Their classes may have the same names by chance."""
    inner = Server("inner")  # neither stores nor settings
    outer = known(MemoryStores())

    @inner.tool
    async def both(ctx: Context) -> str:
        mine = await ctx.update_user_state(Cart, add("rum"))
        shared = await ctx.update_user_state(Cart, add("ice"), name="Cart")
        return f"{mine.items} {shared.items}"

    outer.mount(inner)
    async with Client(outer) as client:
        await client.call_tool("add", {"item": "tea"})
        assert (await client.call_tool("both")).data == "['rum'] ['tea', 'ice']"
        assert (await client.call_tool("show")).data == "tea ice"
        await client.call_tool("forget")
        assert (await client.call_tool("both")).data == "['rum'] ['ice']"


async def test_a_change_wrapped_in_once_is_made_once_in_a_function_that_asks() -> None:
    server = known(MemoryStores())

    @server.tool
    async def buy(ctx: Context) -> str:
        cart = await ctx.once("add", ctx.update_user_state, Cart, add("tea"), type=Cart)
        await ctx.elicit("Who are you?", Name)
        assert isinstance(cart, Cart)
        return " ".join(cart.items)

    async with hand_client(server, replies=lambda question: accept(name="Ann")) as peer:
        assert text_of(await peer.tool("buy")) == "tea"
        assert text_of(await peer.tool("show")) == "tea"


async def test_a_state_outlives_its_server(tmp_path: Path) -> None:
    for expected in ("tea", "tea tea"):
        async with Client(known(SqliteStores(tmp_path / "shop.db"))) as client:
            assert (await client.call_tool("add", {"item": "tea"})).data == expected


async def test_a_request_that_needs_no_state_asks_the_store_for_nothing() -> None:
    class Watched(MemoryStores):
        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_") and name not in ("listen", "changed"):  # what the run itself looks at
                used.append(name)
            return super().__getattribute__(name)

    used: list[str] = []
    server = known(Watched())

    @server.tool
    async def nothing() -> str:
        return "x"

    async with hand_client(server) as peer:
        used.clear()
        await peer.tool("nothing")
        assert used == []
        await peer.tool("show")
        assert used == ["state"]


# --- what is refused --------------------------------------------------------------------------------------------------


class NeedsMore(BaseModel):
    value: int


class Late(BaseModel):
    value: int = 0


async def returns_late(late: Late) -> Late:
    return late


def spoiled(late: Late) -> Late:
    late.value = "much"  # type: ignore[assignment]
    return late


def raises(late: Late) -> Late:
    raise KeyError("of its own")


class Secret(BaseModel):
    value: Any = None


REFUSED: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "no model": (
        dict,
        lambda each: each,
        TypeError,
        "model must be a class of pydantic's BaseModel, got <class 'dict'>",
    ),
    "an instance": (Late(), lambda each: each, TypeError, "model must be a class of pydantic's BaseModel, got Late"),
    "no defaults": (
        NeedsMore,
        lambda each: each,
        TypeError,
        "first NeedsMore can't be made .* give each field a default",
    ),
    "an async change": (Late, returns_late, TypeError, "change must be a sync function"),
    "one in disguise": (
        Late,
        lambda each: returns_late(each),
        TypeError,
        "must return the Late to keep, got coroutine",
    ),
    "no function": (Late, 7, TypeError, "change must be callable, got int"),
    "nothing returned": (
        Late,
        lambda each: None,
        TypeError,
        "got NoneType; a function that modifies .* must return it",
    ),
    "another model": (Late, lambda each: Count(), TypeError, "must return the Late to keep, got Count"),
    "what does not fit": (
        Late,
        spoiled,
        ValueError,
        "does not fit its own class: value: Input should be a valid integer",
    ),
    "what can not be JSON": (Secret, lambda each: Secret(value=object()), TypeError, "can't be turned into JSON"),
    "its own error": (Late, raises, KeyError, "of its own"),
    "too large": (
        Secret,
        lambda each: Secret(value="x" * 65_536),
        ValueError,
        "would take 65548 bytes; 65536 is the limit",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_can_not_be_kept_is_refused_and_changes_nothing(case: str) -> None:
    model, change, error, text = REFUSED[case]
    async with context_of(MemoryStores()) as ctx:
        with pytest.raises(error, match=text):
            await ctx.update_user_state(model, change)
        assert (await ctx.user_state(Late)).value == 0
        assert (await ctx.user_state(Secret)).value is None


async def test_a_state_of_the_full_size_is_kept(stores: Stores) -> None:
    text = "x" * (65_536 - len('{"value":""}'))
    async with context_of(stores) as ctx:
        await ctx.update_user_state(Secret, lambda each: Secret(value=text))
        assert (await ctx.user_state(Secret)).value == text


@pytest.mark.parametrize("name", ["", 7])
async def test_a_name_must_be_a_text(name: Any) -> None:
    async with context_of(MemoryStores()) as ctx:
        with pytest.raises((TypeError, ValueError), match="name"):
            await ctx.user_state(Count, name=name)


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"[]", b'{"value": "much"}', b"[" * 100_000, bytes(range(256))])
async def test_a_stored_state_that_does_not_fit_is_one_clear_error_that_says_what_to_do(value: bytes) -> None:
    stores = MemoryStores()
    async with context_of(stores) as ctx:
        await ctx.update_user_state(Count, one_more)
        (user,) = stores._states._users  # noqa: SLF001 - no one else knows the digest
        entry = await stores.state(user, "Count")
        assert entry is not None
        await stores.put_state(user, "Count", value, tag=entry.tag, expires=None)
        for use in (ctx.user_state(Count), ctx.update_user_state(Count, one_more)):
            with pytest.raises(
                StoreError, match=r"'Count' that is kept for a user does not fit Count: .* give new fields"
            ):
                await use
        await ctx.forget_user()
        assert (await ctx.update_user_state(Count, one_more)).value == 1


async def test_a_class_may_gain_fields_with_defaults_and_lose_fields() -> None:
    async with context_of(MemoryStores()) as ctx:

        class Old(BaseModel):
            value: int = 1
            gone: str = ""

        class New(BaseModel):
            value: int = 0
            more: list[int] = [7]

        await ctx.update_user_state(Old, lambda old: Old(gone="x"), name="state")
        assert await ctx.user_state(New, name="state") == New(value=1, more=[7])


async def test_aliases_of_fields_do_not_matter_to_what_is_stored() -> None:
    class Aliased(BaseModel):
        value: int = Field(0, validation_alias=AliasChoices("a", "b"), serialization_alias="c")

    async with context_of(MemoryStores()) as ctx:
        await ctx.update_user_state(Aliased, lambda each: Aliased(a=5))  # type: ignore[call-arg]
        assert (await ctx.user_state(Aliased)).value == 5


async def test_the_store_being_away_is_the_functions_error(tmp_path: Path) -> None:
    """Requests that need no state go on."""
    server = known(SqliteStores(tmp_path / "shop.db", timeout=0))

    @server.tool
    async def nothing() -> str:
        return "x"

    async with SqliteStores(tmp_path / "shop.db"), Client(server) as client:
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            result = await client.call_tool("add", {"item": "tea"})
            assert result.is_error
            assert "StoreBusy" in str(result.content)
            assert (await client.call_tool("nothing")).data == "x"
        assert (await client.call_tool("add", {"item": "tea"})).data == "tea"


async def test_a_context_without_user_raises_a_protocol_error() -> None:
    async with context_of(MemoryStores(), principal=None, user_state=None) as ctx:
        for use in (ctx.user_state(Count), ctx.update_user_state(Count, one_more), ctx.forget_user()):
            with pytest.raises(LocalProtocolError, match="not known on whose behalf"):
                await use
