"""Lists in pages (`server/utilities/pagination`), with hints for caches."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.server.harness import LEGACY, MODERN, both_eras, client_of
from tests.tables import each_of
from trio_mcp import CacheHint, Client, ListOptions, McpError, Server
from trio_mcp.testing.strategies import json_values
from trio_mcp.types import ReadResourceResult, TextResourceContents
from trio_mcp.types.error_codes import INVALID_PARAMS


def server_of(names: list[str], page_size: int) -> Server:
    server = Server("test", lists=ListOptions(page_size=page_size))
    for name in names:
        server.add_tool(lambda: None, name=name)
    return server


async def pages(client: Client) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor)
        found.append([tool.name for tool in page.tools])
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


@both_eras
@pytest.mark.parametrize("page_size", [1, 2, 3, 4, 5, 6, 250])
async def test_every_size_of_page(page_size: int, revision: str) -> None:
    """All pages but the last are full, in the order in which the tools were added; there is no empty last page."""
    for count in range(7):
        names = [f"tool{number}" for number in reversed(range(count))]
        async with client_of(server_of(names, page_size), revision) as client:
            found = await pages(client)
        assert found == [names[start : start + page_size] for start in range(0, count, page_size)] or [[]]
        assert [name for page in found for name in page] == names


async def test_a_null_cursor_means_the_first_page() -> None:
    async with client_of(server_of(["a"], 1)) as client:
        assert len((await client.request("tools/list", {"cursor": None}))["tools"]) == 1


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 12)),
        st.tuples(st.just("remove"), st.integers(0, 12)),
        st.tuples(st.just("replace"), st.integers(0, 12)),
    ),
    max_size=6,
)


@settings(max_examples=examples(80))
@given(
    count=st.integers(0, 12),
    page_size=st.integers(1, 6),
    changes=st.lists(CHANGES, max_size=13),
    revision=st.sampled_from([LEGACY, MODERN]),
)
async def test_an_item_that_is_there_throughout_is_listed_once_and_in_order(
    count: int, page_size: int, changes: list[Any], revision: str
) -> None:
    """Cursors SHOULD be stable: here they are, whatever comes and goes between two pages."""
    names = [f"tool{number}" for number in range(count)]
    server = server_of(names, page_size)
    there, steady = set(names), list(names)
    removed: set[str] = set()
    listed: list[str] = []
    cursor = None
    async with client_of(server, revision) as client:
        for step in range(1000):
            page = await client.list_tools(cursor)
            assert len(page.tools) <= page_size
            listed += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
            for action, number in changes[step] if step < len(changes) else ():
                name = f"tool{number}"
                if action in ("remove", "replace") and name in there:
                    server.remove_tool(name)
                    there.discard(name)
                    removed.add(name)
                if action in ("add", "replace") and name not in there:
                    server.add_tool(lambda: None, name=name)
                    there.add(name)
    steady = [name for name in names if name not in removed]
    assert [name for name in listed if name in steady] == steady
    always_new = [name for name in listed if name not in removed]
    assert len(always_new) == len(set(always_new))


@both_eras
@each_of("text", "tool:0 | tool:-1 | tool:99 | tool:01 | tool:\u0661 | prompt:1 | tool", "x" * 100_000)
async def test_a_cursor_that_we_never_gave_is_refused(text: str, revision: str) -> None:
    """SHOULD be -32602."""
    cursor = base64.b64encode(text.encode()).decode()
    async with client_of(server_of(["a", "b"], 1), revision) as client:
        with pytest.raises(McpError, match="invalid cursor") as caught:
            await client.request("tools/list", {"cursor": cursor})
        assert caught.value.code == INVALID_PARAMS
        assert len(caught.value.message) < 200
        assert len(await pages(client)) == 2


@given(cursor=json_values() | st.text(), change=st.data())
async def test_a_forged_cursor_is_refused(cursor: Any, change: st.DataObject) -> None:
    async with client_of(server_of(["a", "b", "c"], 1)) as client:
        ours = (await client.list_tools()).next_cursor
        assert ours is not None
        position = change.draw(st.integers(0, len(ours)))
        for forged in (cursor, ours[:position] + "*" + ours[position:], ours + "=", " " + ours):
            if forged is None:
                continue
            with pytest.raises(McpError):
                await client.request("tools/list", {"cursor": forged})


# --- hints for caches: who gives them, and who never sees them (`server/utilities/caching`, 2026-07-28) --------------


LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
HINTS = {
    method: CacheHint(ttl=seconds, scope="public")
    for seconds, method in enumerate((*LISTS, "resources/read", "server/discover"), 1)
}
FIELDS = {"ttlMs", "cacheScope"}


def server_with_everything(**options: Any) -> Server:
    server = Server("test", **options)
    for number in range(3):
        uri = f"test://{number}"
        server.add_tool(lambda: "x", name=f"tool{number}")
        server.add_prompt(lambda: "x", name=f"prompt{number}")
        server.add_resource(uri, lambda: "x", name=uri)
        server.add_resource(f"test://{number}/{{x}}", lambda x: x, name=uri)
    return server


def hints_of(result: dict[str, Any]) -> tuple[Any, Any]:
    return result["ttlMs"], result["cacheScope"]


@pytest.mark.parametrize("method", LISTS)
async def test_every_page_of_a_list_has_the_hint_of_its_method(method: str) -> None:
    """Pagination: "Servers MUST apply the same cacheScope to all response pages"."""
    async with client_of(server_with_everything(lists=ListOptions(page_size=1, cache_hints=HINTS))) as client:
        seen, cursor = [], None
        while True:
            page = await client.request(method, {} if cursor is None else {"cursor": cursor})
            seen.append(hints_of(page))
            cursor = page.get("nextCursor")
            if cursor is None:
                break
    assert seen == [(HINTS[method].ttl * 1000, "public")] * 3


async def test_without_hints_nothing_may_be_cached() -> None:
    """It says: "Servers MUST include caching hints" all the same."""
    async with client_of(server_with_everything()) as client:
        for method in (*LISTS, "server/discover"):
            assert hints_of(await client.request(method)) == (0, "private")
        assert hints_of(await client.request("resources/read", {"uri": "test://0"})) == (0, "private")


async def test_the_most_specific_hint_counts_for_a_read() -> None:
    """The function's hint, else the resource's, else the server's."""
    server = server_with_everything(lists=ListOptions(cache_hints=HINTS))

    @server.resource("test://own/{x}", cache=CacheHint(ttl=0.5))
    async def own(x: str) -> str:
        return x

    @server.resource("test://said", cache=CacheHint(ttl=7, scope="public"))
    async def said() -> ReadResourceResult:
        return ReadResourceResult(ttl_ms=9, contents=[TextResourceContents(uri="test://said", text="x")])

    async with client_of(server) as client:

        async def read(uri: str) -> tuple[Any, Any]:
            return hints_of(await client.request("resources/read", {"uri": uri}))

        assert await read("test://0") == (5000, "public")
        assert await read("test://0/a") == (5000, "public")
        assert await read("test://said") == (9, "public")
        assert await read("test://own/a") == (500, "private")
        assert hints_of(await client.request("server/discover")) == (6000, "public")


async def test_the_legacy_era_sees_no_hints() -> None:
    server = server_with_everything(lists=ListOptions(cache_hints=HINTS))

    @server.resource("test://said", cache=CacheHint(ttl=7))
    async def said() -> ReadResourceResult:
        return ReadResourceResult(ttl_ms=9, cache_scope="public", contents=[])

    async with client_of(server, LEGACY) as client:
        answers = [await client.request(method) for method in LISTS]
        answers += [await client.request("resources/read", {"uri": uri}) for uri in ("test://0", "test://said")]
    assert not [answer for answer in answers if FIELDS & answer.keys()]


@pytest.mark.parametrize("ttl_ms", [-1, 10**12])
async def test_a_function_cannot_give_a_hint_out_of_bounds(ttl_ms: int) -> None:
    """It says: "Servers MUST provide a ttlMs value that is >= 0"."""
    server = Server("test", expose_errors=True)

    @server.resource("test://said")
    async def said() -> ReadResourceResult:
        return ReadResourceResult(ttl_ms=ttl_ms, contents=[])

    async with client_of(server, MODERN) as client:
        with pytest.raises(McpError, match="ttl_ms must be from 0 to"):
            await client.read_resource("test://said")


@pytest.mark.parametrize("ttl", [-1, -0.001, math.inf, math.nan, 10**9])
def test_a_ttl_is_bounded(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl must be from 0 to 31536000 seconds"):
        CacheHint(ttl=ttl)


def test_other_wrong_hints_are_refused_with_one_clear_error() -> None:
    with pytest.raises(ValueError, match="scope must be one of public, private; got 'shared'"):
        CacheHint(scope="shared")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="results of 'tools/call' can't be cached; those of server/discover"):
        Server("test", lists=ListOptions(cache_hints={"tools/call": CacheHint()}))
    with pytest.raises(TypeError, match=r"cache_hints\['tools/list'\]: a cache hint must be a CacheHint"):
        Server("test", lists=ListOptions(cache_hints={"tools/list": 60}))  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="cache_hints must be a mapping"):
        Server("test", lists=ListOptions(cache_hints=[("tools/list", CacheHint())]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="resource 'test://x': a cache hint must be a CacheHint"):
        Server("test").add_resource("test://x", lambda: "x", name="x", cache=60)  # type: ignore[arg-type]
