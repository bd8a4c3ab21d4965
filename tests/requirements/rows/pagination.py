"""``server/utilities/pagination``: lists that come in pages."""

from __future__ import annotations

import string
from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import Topic
from trio_mcp import ListOptions, Server
from trio_mcp.types import error_codes

METHODS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


def server() -> Server:
    made = Server("pagination", lists=ListOptions(page_size=2))

    async def nothing() -> str:
        """Do nothing."""
        return ""

    async def anything(name: str) -> str:
        """Do nothing, too."""
        return name

    for letter in "abcde":
        made.add_tool(nothing, name=letter)
        made.add_prompt(nothing, name=letter)
        made.add_resource(f"{letter}://x", nothing)
        made.add_resource(f"{letter}://x/{{name}}", anything)

    @made.tool
    async def remove(name: str) -> None:
        """Remove a tool."""
        made.remove_tool(name)

    @made.tool
    async def add(name: str) -> None:
        """Add a tool."""
        made.add_tool(nothing, name=name)

    return made


topic = Topic("Pagination", server)

OPERATIONS = "server/utilities/pagination#operations-supporting-pagination"
RESPONSE = "server/utilities/pagination#response-format"
ERRORS = "server/utilities/pagination#error-handling"


async def pages(client: Any, method: str) -> list[list[str]]:
    key, name = METHODS[method]
    found, cursor = [], None
    while True:
        page = await client.request(method, {"cursor": cursor} if cursor is not None else {})
        found.append([each[name] for each in page[key]])
        cursor = page.get("nextCursor")
        if cursor is None:
            assert "nextCursor" not in page
            return found


def _paged(method: str) -> None:
    count = 7 if method == "tools/list" else 5

    async def scenario(case: Case) -> None:
        async with case.client() as client:
            found = await pages(client, method)
        assert [len(page) for page in found] == [2] * (count // 2) + [1]
        flat = [each for page in found for each in page]
        assert len(set(flat)) == count
        assert [each[0] for each in flat[:5]] == list("abcde")

    scenario.__name__ = method.replace("/", "_")
    topic.row(OPERATIONS, f"{method} comes in pages, which have everything once and in order.")(scenario)


for _method in METHODS:
    _paged(_method)


@topic.row(RESPONSE, "A cursor is a string, present while there are more pages.")
async def cursor(case: Case) -> None:
    async with case.client() as client:
        page = await client.request("tools/list")
    assert type(page["nextCursor"]) is str


@topic.row(
    "server/utilities/pagination#implementation-guidelines", "A cursor can be used again, and gives the same page."
)
async def stable(case: Case) -> None:
    async with case.client() as client:
        at = {"cursor": (await client.request("tools/list"))["nextCursor"]}
        assert await client.request("tools/list", at) == await client.request("tools/list", at)


@topic.row(
    "server/utilities/pagination#implementation-guidelines",
    "A cursor stays valid if its item is removed, and the rest is listed once.",
)
async def removal(case: Case) -> None:
    async with case.client() as client:
        first = await client.request("tools/list")
        for name in ("b", "c"):
            await client.call_tool("remove", {"name": name})
        second = await client.request("tools/list", {"cursor": first["nextCursor"]})
    assert [each["name"] for each in second["tools"]] == ["d", "e"]


@topic.row(
    "server/utilities/pagination#implementation-guidelines",
    "Items added between pages cause no duplicates or gaps.",
)
async def addition(case: Case) -> None:
    async with case.client() as client:
        first = await client.request("tools/list")
        await client.call_tool("add", {"name": "aa"})
        second = await client.request("tools/list", {"cursor": first["nextCursor"]})
    assert [each["name"] for each in second["tools"]] == ["c", "d"]


@topic.row(ERRORS, "A cursor that the server never gave is refused with -32602.")
async def unknown_cursor(case: Case) -> None:
    async with case.hand() as hand:
        for bad in ("nonsense", "", "MQ==", string.punctuation):
            assert (await hand.error("tools/list", {"cursor": bad})).code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "A cursor that is not a string is refused with -32602.")
async def malformed_cursor(case: Case) -> None:
    async with case.hand() as hand:
        for bad in (7, ["x"], {}, True):
            assert (await hand.error("tools/list", {"cursor": bad})).code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "A cursor of one list is refused by another with -32602.")
async def cursor_of_another_list(case: Case) -> None:
    async with case.hand() as hand:
        cursor = (await hand.result("tools/list"))["nextCursor"]
        assert (await hand.error("prompts/list", {"cursor": cursor})).code == error_codes.INVALID_PARAMS


@topic.row("server/utilities/pagination#pagination-flow", "A client's iterator follows the cursors to the end.")
async def iterator(case: Case) -> None:
    async with case.client() as client:
        assert [tool.name async for tool in client.iter_tools()] == [*"abcde", "remove", "add"]
