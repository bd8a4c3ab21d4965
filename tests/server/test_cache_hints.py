"""Hints for caches (`server/utilities/caching`, 2026-07-28): who gives them, and who never sees them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.server.harness import LEGACY, MODERN, client_of
from trio_mcp import CacheHint, ListOptions, McpError, Server
from trio_mcp.types import ReadResourceResult, TextResourceContents

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


async def test_discovery_has_its_hint() -> None:
    async with client_of(server_with_everything(lists=ListOptions(cache_hints=HINTS))) as client:
        assert hints_of(await client.request("server/discover")) == (6000, "public")


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
