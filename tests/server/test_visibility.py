"""What is disabled or hidden does not exist: no list shows it, and every answer is that to an unknown name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.harness import LEGACY, MODERN, both_eras, client_of
from trio_mcp import CacheHint, Context, Entry, ListOptions, McpError, Notification, Server
from trio_mcp.types import Implementation

KINDS = ("tool", "resource", "template", "prompt")


def things(server: Server, name: str, **details: Any) -> Server:
    """Offer one thing of each kind under a name."""
    server.add_tool(lambda: name, name=name, **details)
    server.add_resource(f"{name}://it", lambda: name, name=name, **details)
    server.add_resource(f"{name}://of/{{x}}", lambda x: name, name=name, **details)
    server.add_prompt(lambda x: name, name=name, **details)
    for given in ({"prompt": name}, {"resource": f"{name}://of/{{x}}"}):
        server.add_completion(lambda value: [name], argument="x", **given)
    return server


def public(**options: Any) -> Server:
    return things(Server("test", **options), "open")


def switched(server: Server, **how: Any) -> Server:
    server.disable(*how.pop("names", ()), **how)
    return server


def inside(server: Server, **options: Any) -> Server:
    outer = Server("outer", **options)
    outer.mount(server, prefix="p")
    return outer


def without_admin(context: Context[Any], entry: Entry[Any]) -> bool:
    assert entry.kind in KINDS
    return "admin" not in entry.tags


NAMES = ("secret", "secret://it", "secret://of/{x}")
secret = functools.partial(things, name="secret", tags={"admin", "x"})
hiding = {"visible": without_admin}
ABSENT: dict[str, Callable[[], Server]] = {
    "disabled from the start": lambda: secret(public(), enabled=False),
    "disabled by name": lambda: switched(secret(public()), names=NAMES),
    "disabled by tag": lambda: switched(secret(public()), tags=["admin", "other"]),
    "hidden": lambda: secret(public(**hiding)),
    "mounted, disabled in the mounted server": lambda: inside(secret(public(), enabled=False)),
    "mounted, disabled there later": lambda: _later(tags={"admin"}),
    "mounted, disabled in the mounting server": lambda: switched(inside(secret(public())), tags={"admin"}),
    "mounted, hidden by the mounted server": lambda: inside(secret(public(**hiding))),
    "mounted, hidden by the mounting server": lambda: inside(secret(public()), **hiding),
    "mounted twice, hidden at the bottom": lambda: inside(inside(secret(public(**hiding)))),
}


def _later(**how: Any) -> Server:
    inner = secret(public())
    outer = inside(inner)
    switched(inner, **how)
    return outer


def requests(name: str, prompt_or_tool: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a request for each way to name a thing."""
    argument = {"name": "x", "value": ""}
    return [
        ("tools/call", {"name": prompt_or_tool}),
        ("resources/read", {"uri": f"{name}://it"}),
        ("resources/read", {"uri": f"{name}://of/1"}),
        ("prompts/get", {"name": prompt_or_tool, "arguments": {"x": "1"}}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": prompt_or_tool}, "argument": argument}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": f"{name}://of/{{x}}"}, "argument": argument}),
        ("resources/subscribe", {"uri": f"{name}://it"}),
    ]


LISTS = [(f"{what}/list", {}) for what in ("tools", "resources", "resources/templates", "prompts")]


async def answers(server: Server, revision: str, prefix: str, name: str = "secret") -> list[Any]:
    """Return what a client gets for each request: a result, or an error's code, message and data."""
    found: list[Any] = []
    async with client_of(server, revision) as client:
        for method, params in [*LISTS, *requests(name, prefix + name)]:
            if method == "resources/subscribe" and revision == MODERN:
                continue
            try:
                found.append(await client.request(method, params))
            except McpError as exc:
                found.append((exc.code, exc.message, exc.data))
    return found


@both_eras
@pytest.mark.parametrize("way", ABSENT)
async def test_what_is_absent_is_answered_like_an_unknown_name(way: str, revision: str) -> None:
    depth = 0 if not way.startswith("mounted") else 2 if "twice" in way else 1
    never = public()
    for _ in range(depth):
        never = inside(never)
    expected = await answers(never, revision, "p__" * depth)
    assert await answers(ABSENT[way](), revision, "p__" * depth) == expected
    assert all(type(each) is tuple for each in expected[len(LISTS) :])  # every one of them an error


@both_eras
async def test_enabled_again_everything_is_where_it_was(revision: str) -> None:
    for wrap in (lambda server: server, inside):
        server = wrap(things(secret(public()), "last"))
        prefix = "" if server.info.name == "test" else "p__"
        before = await answers(server, revision, prefix)
        server.disable(tags={"admin"})
        assert await answers(server, revision, prefix) != before
        server.enable(tags={"admin"})
        assert await answers(server, revision, prefix) == before


async def test_what_two_servers_have_disabled_takes_both_to_enable() -> None:
    inner = secret(public())
    outer = inside(inner)
    tools = lambda: client_tools(outer)  # noqa: E731
    outer.disable("p__secret")
    inner.disable("secret", kind="tool")
    inner.enable("secret")
    assert await tools() == ["p__open"]
    inner.disable("secret")
    outer.enable("p__secret")
    assert await tools() == ["p__open"]
    inner.enable("secret")
    assert await tools() == ["p__open", "p__secret"]
    inner.disable("secret")
    inner.remove_tool("secret")
    inner.add_tool(lambda: None, name="secret")
    assert await tools() == ["p__open", "p__secret"]


async def client_tools(server: Server, **options: Any) -> list[str]:
    async with client_of(server, **options) as client:
        return [tool.name async for tool in client.iter_tools()]


@both_eras
async def test_a_disabled_name_stays_taken(revision: str) -> None:
    server = secret(public(), enabled=False)
    with pytest.raises(ValueError, match="already a tool named 'secret'"):
        server.add_tool(lambda: None, name="secret")
    assert server.statistics().tools == 1
    server.remove_tool("secret")
    server.add_tool(lambda: None, name="secret")
    assert server.statistics().tools == 2


async def test_clients_are_told_of_what_changes_and_of_nothing_else() -> None:
    told: list[str] = []

    def note(notification: Notification) -> None:
        told.append(notification.method.split("/")[1])

    inner = secret(public())
    outer = inside(inner)
    async with client_of(outer, LEGACY, on_message=note):
        for change, kinds in (
            (lambda: inner.disable("secret", kind="tool"), {"tools"}),
            (lambda: inner.disable("secret", kind="tool"), set()),
            (lambda: inner.enable("secret"), {"tools"}),
            (lambda: outer.disable("p__secret"), {"tools", "prompts"}),
            (lambda: inner.disable(tags={"unused"}), set()),
            (lambda: inner.disable(tags={"x"}, kind="template"), {"resources"}),
        ):
            told.clear()
            change()
            await wait_all_tasks_blocked()
            assert set(told) == kinds


@pytest.mark.parametrize("enable", [True, False])
@pytest.mark.parametrize(
    ("names", "how", "error", "text"),
    [
        ((), {}, TypeError, "pass either names or tags="),
        (("secret",), {"tags": {"x"}}, TypeError, "pass either names or tags="),
        (({"secret"},), {}, TypeError, "pass either names or tags="),
        ((), {"tags": "x"}, TypeError, "tags must be a set of strings; write tags={'x'}"),
        ((), {"tags": {""}}, ValueError, "a tag"),
        (("secret", "sceret"), {}, KeyError, "there is no tool, resource or prompt named 'sceret'"),
        (("secret",), {"kind": "template"}, KeyError, "there is no template named 'secret'"),
        (("secret",), {"kind": "tools"}, ValueError, "kind"),
    ],
    ids=repr,
)
async def test_a_wrong_switch_changes_nothing(
    enable: bool, names: Any, how: Any, error: type[Exception], text: str
) -> None:
    server = secret(public())
    with pytest.raises(error) as caught:
        (server.enable if enable else server.disable)(*names, **how)
    assert text in str(caught.value)
    assert len(await client_tools(server)) == 2


@pytest.mark.parametrize(
    ("details", "text"),
    [
        ({"tags": "beta"}, "tags must be a set of strings; write tags={'beta'}"),
        ({"tags": [""]}, "a tag must not be empty|a tag"),
        ({"tags": [3]}, "a tag must be a string|a tag"),
        ({"enabled": "no"}, "enabled must be True or False, got 'no'"),
    ],
)
def test_wrong_details_are_refused(details: dict[str, Any], text: str) -> None:
    server = Server("test")
    for add in (
        lambda **given: server.add_tool(len_of, **given),
        lambda **given: server.add_resource("x://y", lambda: "x", name="x", **given),
        lambda **given: server.add_prompt(len_of, **given),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            add(**details)


async def test_the_filter_sees_the_client_and_what_the_entry_is() -> None:
    asked: set[tuple[str, str, str, str]] = set()

    def visible(context: Context[Any], entry: Entry[Any]) -> bool:
        asked.add((context.method, entry.kind, entry.name, type(entry.definition).__name__))
        info = context.client_info
        assert info is not None
        return entry.tags <= {info.name}

    server = things(Server("test", visible=visible), "secret", tags={"admin"})
    for name in ("admin", "bob"):
        async with client_of(server, client_info=Implementation(name=name, version="1")) as client:
            for method, params in LISTS:
                (entries,) = (each for each in (await client.request(method, params)).values() if type(each) is list)
                assert len(entries) == (name == "admin")
    assert asked == {
        ("tools/list", "tool", "secret", "Tool"),
        ("resources/list", "resource", "secret://it", "Resource"),
        ("resources/templates/list", "template", "secret://of/{x}", "ResourceTemplate"),
        ("prompts/list", "prompt", "secret", "Prompt"),
    }


async def test_a_mounted_servers_filter_gets_its_own_names_and_state() -> None:
    def visible(context: Context[Any], entry: Entry[Any]) -> bool:
        return bool(context.state == "inner's") and entry.name == "secret"

    inner = secret(Server("inner", visible=visible, lifespan=lambda server: contextlib.nullcontext("inner's")))
    assert await client_tools(inside(inner)) == ["p__secret"]


def _raises(context: Context[Any], entry: Entry[Any]) -> bool:
    raise RuntimeError("no database")


@pytest.mark.parametrize(
    ("visible", "text"),
    [
        (_raises, "no database"),
        (lambda context, entry: None, "must return True or False, got NoneType"),
        (lambda context, entry: entry.tags, "must return True or False, got frozenset"),
    ],
    ids=["it raises", "None", "a set"],
)
async def test_a_filter_that_fails_hides(visible: Any, text: str, caplog: pytest.LogCaptureFixture) -> None:
    server = things(Server("test", visible=visible), "open", tags={"x"})
    assert await client_tools(server) == []
    (record,) = (each for each in caplog.records if each.levelname == "ERROR")
    assert record.getMessage() == "visible=… failed for the tool 'open', which stays hidden"
    assert record.exc_info is not None
    assert text in str(record.exc_info[1])


async def _async_filter(context: Context[Any], entry: Entry[Any]) -> bool:
    return False


def test_an_async_filter_is_refused_as_it_would_show_everything() -> None:
    with pytest.raises(TypeError, match="visible must be a sync function"):
        Server("test", visible=_async_filter)  # type: ignore[arg-type]


@pytest.mark.parametrize("page_size", [1, 2, 250])
async def test_pages_are_full_and_the_last_one_says_so(page_size: int) -> None:
    """Whatever is hidden, and wherever it stands."""
    for hidden in range(2**5):
        server = Server(
            "test", lists=ListOptions(page_size=page_size), visible=lambda context, entry: "hidden" not in entry.tags
        )
        shown = []
        for bit in range(5):
            is_hidden = bool(hidden & 1 << bit)
            server.add_tool(lambda: None, name=f"t{bit}", tags={"hidden"} if is_hidden else ())
            if not is_hidden:
                shown.append(f"t{bit}")
        async with client_of(server) as client:
            found, cursor = [], None
            while True:
                page = await client.list_tools(cursor)
                found.append([tool.name for tool in page.tools])
                cursor = page.next_cursor
                if cursor is None:
                    break
        assert found == ([shown[start : start + page_size] for start in range(0, len(shown), page_size)] or [[]])


async def test_a_long_list_is_filtered_in_slices_that_others_run_between() -> None:
    asked = 0

    def visible(context: Context[Any], entry: Entry[Any]) -> bool:
        nonlocal asked
        asked += 1
        return False

    server = Server("test", visible=visible)
    for number in range(600):
        server.add_tool(len_of, name=f"t{number}")
    seen = set()

    async def watch() -> None:
        while True:
            seen.add(asked)
            await trio.lowlevel.checkpoint()

    async with client_of(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await client.list_tools()
        nursery.cancel_scope.cancel()
    assert seen & {249, 499}


def len_of(text: str) -> int:
    return len(text)


async def test_no_cache_may_share_what_a_filter_has_chosen() -> None:
    hint = CacheHint(ttl=60, scope="public")
    methods = ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read")
    lists = ListOptions(cache_hints=dict.fromkeys(methods, hint))

    async def scopes(server: Server) -> set[Any]:
        async with client_of(server) as client:
            reads = [("resources/read", {"uri": f"open://{rest}"}) for rest in ("it", "of/1")]
            return {(await client.request(method, params))["cacheScope"] for method, params in [*LISTS, *reads]}

    assert await scopes(public(lists=lists)) == {"public"}
    assert await scopes(inside(public(lists=lists), lists=lists)) == {"public"}
    assert await scopes(public(lists=lists, **hiding)) == {"private"}
    assert await scopes(inside(public(lists=lists, **hiding), lists=lists)) == {"private"}
    assert await scopes(inside(public(lists=lists), lists=lists, **hiding)) == {"private"}


@pytest.mark.parametrize("absent", [lambda: secret(public(**hiding)), lambda: secret(public(), enabled=False)])
async def test_a_listener_hears_nothing_of_what_is_hidden(absent: Callable[[], Server]) -> None:
    server = absent()
    uris = ["secret://it", "secret://of/1", "open://it", "unknown://it"]
    heard = []
    async with client_of(server) as client, client.listen(resources=uris) as events:
        for uri in uris:
            server.notify_resource_updated(uri)
        async for event in events:
            heard.append(event.uri)
            if event.uri == "unknown://it":
                break
    assert heard == ["open://it", "unknown://it"]


async def test_many_uris_that_may_be_hidden_hold_up_no_other_task() -> None:
    asked: list[str] = []

    def visible(context: Context, entry: Entry) -> bool:
        asked.append(entry.name)
        return True

    server = public(visible=visible)
    most = 0

    async def count() -> None:
        nonlocal most
        while True:
            asked.clear()
            await trio.lowlevel.checkpoint()
            most = max(most, len(asked))

    async with client_of(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        async with client.listen(resources=[f"open://of/{number}" for number in range(100)]):
            nursery.cancel_scope.cancel()
    assert 0 < most < 10


async def test_the_first_entry_that_matches_a_uri_decides_even_if_it_is_hidden() -> None:
    """Or a mounting server would pass on a URI that means the hidden one in the mounted server."""
    inner = Server("inner")
    inner.add_resource("x://{a}", lambda a: "secret", name="secret", tags={"admin"})
    inner.add_resource("x://1", lambda: "secret", name="secret too", tags={"admin"})
    inner.add_resource("x://{b}/{c}", lambda b, c: "open", name="open")
    outers = [inside(inner, **hiding), inside(inner)]
    outers[1].disable(tags={"admin"})
    for outer in outers:
        outer.add_resource("x://{+rest}", lambda rest: "the rest", name="rest")
        async with client_of(outer) as client:
            for uri in ("x://1", "x://2"):
                with pytest.raises(McpError, match="Resource not found"):
                    await client.read_resource(uri)
            assert (await client.request("resources/read", {"uri": "x://1/2"}))["contents"][0]["text"] == "open"
