"""What an application gives for `_meta` and icons is checked where it is given (`basic`, sections _meta and icons)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.harness import both_eras, client_of
from trio_mcp import Context, Server, types


def function() -> str:
    return "x"


OFFERS: dict[str, Callable[..., Any]] = {
    "tool 'function'": lambda **details: Server("s").add_tool(function, **details),
    "prompt 'function'": lambda **details: Server("s").add_prompt(function, **details),
    "resource 'x://y'": lambda **details: Server("s").add_resource("x://y", function, **details),
}
offers = pytest.mark.parametrize(("what", "offer"), OFFERS.items(), ids=OFFERS)


@offers
@pytest.mark.parametrize("key", ["-x", "com.mcp/x", "mcp.dev/x", "progressToken", "traceparent"])
def test_a_definition_with_a_bad_key_is_refused_where_it_is_made(
    what: str, offer: Callable[..., Any], key: str
) -> None:
    with pytest.raises(ValueError, match=f"{what}: the _meta key {key!r} "):
        offer(meta={key: 1})


def server_with(**details: Any) -> Server:
    return Server(types.Implementation(name="s", version="1", **details))


@pytest.mark.parametrize(("what", "offer"), [*OFFERS.items(), ("server 's'", server_with)])
def test_an_icon_that_clients_must_not_load_is_refused(what: str, offer: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=f"{what}: the icon 'file:///i.png' can't be used"):
        offer(icons=[types.Icon(src="file:///i.png")])


@both_eras
async def test_a_request_with_invalid_meta_keys_is_served(revision: str) -> None:
    """What a peer sends is never refused for a key."""
    server = Server("s")
    seen: list[dict[str, Any]] = []

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.meta)

    odd = {"-x": 1, "com.mcp/x": 2, "a/b/c": 3}
    async with client_of(server, revision) as client:
        await client.request("tools/call", {"name": "look", "_meta": odd})
    assert odd.items() <= seen[0].items()
