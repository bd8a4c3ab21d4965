"""Lists in pages (`server/utilities/pagination`)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.server.harness import LEGACY, MODERN, both_eras, client_of
from tests.strategies import json_values
from tests.tables import each_of
from trio_mcp import Client, ListOptions, McpError, Server
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
