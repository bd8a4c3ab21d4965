"""``server/utilities/pagination``: lists that come in pages."""

from __future__ import annotations

import string
from typing import Any

from tests.peer import Peer
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

PAGE = "server/utilities/pagination"
GUIDELINES, ERRORS = f"{PAGE}#implementation-guidelines", f"{PAGE}#error-handling"


@topic.row(
    f"{PAGE}#operations-supporting-pagination", "Each list comes in pages, which have everything once and in order."
)
async def paged(hand: Peer) -> None:
    for method, (key, name) in METHODS.items():
        found: list[list[str]] = []
        cursor: dict[str, Any] = {}
        while True:
            page = await hand.result(method, cursor)
            found.append([each[name] for each in page[key]])
            if "nextCursor" not in page:
                break
            assert type(page["nextCursor"]) is str
            cursor = {"cursor": page["nextCursor"]}
            assert await hand.result(method, cursor) == await hand.result(method, cursor)  # it can be used again
        count = 7 if method == "tools/list" else 5
        assert [len(page) for page in found] == [2] * (count // 2) + [1]
        flat = [each for page in found for each in page]
        assert len(set(flat)) == count
        assert [each[0] for each in flat[:5]] == list("abcde")


@topic.row(GUIDELINES, "A cursor stays valid if its item is removed, and the rest is listed once.")
async def removal(hand: Peer) -> None:
    first = await hand.result("tools/list")
    for name in ("b", "c"):
        await hand.call("remove", {"name": name})
    second = await hand.result("tools/list", {"cursor": first["nextCursor"]})
    assert [each["name"] for each in second["tools"]] == ["d", "e"]


@topic.row(GUIDELINES, "Items added between pages cause no duplicates or gaps.")
async def addition(hand: Peer) -> None:
    first = await hand.result("tools/list")
    await hand.call("add", {"name": "aa"})
    second = await hand.result("tools/list", {"cursor": first["nextCursor"]})
    assert [each["name"] for each in second["tools"]] == ["c", "d"]


for _text, *_cursors in (
    ("A cursor that the server never gave is refused with -32602.", "nonsense", "", "MQ==", string.punctuation),
    ("A cursor that is not a string is refused with -32602.", 7, ["x"], {}, True),
):
    topic.refuses(ERRORS, _text, "tools/list", *[{"cursor": each} for each in _cursors])


@topic.row(ERRORS, "A cursor of one list is refused by another with -32602.")
async def cursor_of_another_list(hand: Peer) -> None:
    cursor = (await hand.result("tools/list"))["nextCursor"]
    assert (await hand.error("prompts/list", {"cursor": cursor})).code == error_codes.INVALID_PARAMS


@topic.row(f"{PAGE}#pagination-flow", "A client's iterator follows the cursors to the end.")
async def iterator(case: Case) -> None:
    async with case.client() as client:
        assert [tool.name async for tool in client.iter_tools()] == [*"abcde", "remove", "add"]
