"""Scenarios that the official suite's branches have, and no release of it: tests of our own until one has.

Once the package in package.json has a scenario, its test here goes.
"""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
import trio
from pydantic_core import from_json

from tests.http_peer import ACCEPT, Events, Raw, request
from tests.server.http.harness import Made, served
from tests.transports.http_calls import TEXT, serving
from tests.transports.http_legacy import Restarting
from trio_mcp import Client, Context

from .everything_scopes import FULL, LOW, OPERATIONS, with_scopes
from .everything_server import server as everything

MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


def posted(method: str, params: dict[str, Any], **fields: str) -> dict[str, Any]:
    """Return the arguments of httpx for a request of the modern era."""
    named = params.get("name", params.get("uri"))
    headers = {"Accept": ACCEPT, "MCP-Protocol-Version": MODERN, "Mcp-Method": method, **fields}
    if named is not None:
        headers["Mcp-Name"] = named
    return {"json": request(method, {**params, "_meta": META}, 1), "headers": headers}


def challenge(response: httpx.Response) -> dict[str, str]:
    """Return the parameters of a Bearer challenge."""
    scheme, _, rest = response.headers["www-authenticate"].partition(" ")
    assert scheme == "Bearer"
    return dict(re.findall(r'(\w+)="([^"]*)"', rest))


# --- sep-2350-server-scope-challenge --------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "params", "needed"), OPERATIONS.values(), ids=OPERATIONS)
async def test_one_challenge_names_all_scopes_of_an_operation(
    method: str, params: dict[str, Any], needed: list[str]
) -> None:
    """2026-07-28 `basic/authorization`, Runtime Insufficient Scope Errors."""
    async with with_scopes(everything) as url, httpx.AsyncClient() as client:
        refused = await client.post(url, **posted(method, params, Authorization=f"Bearer {LOW}"))
        said = challenge(refused)
        assert (refused.status_code, said["error"]) == (403, "insufficient_scope")
        assert set(said["scope"].split()) >= set(needed)
        base = url.removesuffix("/mcp")
        assert said["resource_metadata"] == f"{base}/.well-known/oauth-protected-resource/mcp"
        granted = await client.post(url, **posted(method, params, Authorization=f"Bearer {FULL}"))
        assert granted.status_code == 200
        result = await answered(granted)
        assert result["contents" if method == "resources/read" else "messages" if "prompts" in method else "content"]
        # A request without a token still reaches the server for all other scenarios.
        open_to_all = await client.post(url, **posted("tools/list", {}))
        assert "test_image_content" in open_to_all.text


async def answered(response: httpx.Response) -> dict[str, Any]:
    """Return the result in a response, in either form."""
    if response.headers["content-type"] == "application/json":
        found: dict[str, Any] = from_json(response.content)["result"]
    else:
        found = (await Events(response).message())["result"]
    return found


# --- json-rpc-batch-rejection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_batch_is_refused_as_a_whole(revision: str) -> None:
    """2025-06-18 `basic/transports`, Sending Messages: the body MUST be a single message."""
    async with served() as (_, client, _):
        if revision == MODERN:
            first = posted("tools/list", {})
            response = await client.post("/mcp", json=[first["json"], first["json"]], headers=first["headers"])
        else:
            raw = Raw(client)
            await raw.initialize(revision)
            response = await raw.send([request("ping", None, number) for number in (1, 2)])
    body = response.json()
    assert (response.status_code, body["error"]["code"]) == (400, -32600)
    assert "result" not in response.text


# --- session-isolation ----------------------------------------------------------------------------------------------


async def test_clients_with_the_same_request_ids_get_their_own_responses() -> None:
    """GHSA-345p-7cg4-v4c7: one client got the response that was meant for another one."""
    arrived = 0
    both = trio.Event()
    made = Made()

    @made.server.tool
    async def echo(text: str, ctx: Context) -> str:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            both.set()
        await both.wait()  # so that both requests are under way at once
        await ctx.report_progress(1, message=text)
        return text

    got: dict[str, list[str]] = {}

    async def ask(client: httpx.AsyncClient, name: str) -> None:
        raw = Raw(client)
        await raw.initialize()
        async with raw.call("echo", {"text": name}, id=7, token="same") as response:
            got[name] = [str(message) for message in await Events(response).messages()]

    async with served(made=made) as (_, client, _), trio.open_nursery() as nursery:
        for name in ("ann", "bob"):
            nursery.start_soon(ask, client, name)
    for name, other in (("ann", "bob"), ("bob", "ann")):
        assert len(got[name]) == 2
        assert all(name in message and other not in message for message in got[name])


# --- session-renegotiation ------------------------------------------------------------------------------------------


async def test_a_client_whose_session_is_unknown_begins_another_one_without_its_id() -> None:
    """2025-11-25 `basic/transports`, Session Management, 4: it MUST send an InitializeRequest without a session id."""
    restarting = Restarting()
    async with serving(restarting.handlers()) as server, Client(server.url, mode="2025-11-25") as client:
        restarting.number += 1
        assert (await client.call_tool("t")).to_wire()["content"] == TEXT["content"]
    sessions = [(asked.rpc, asked.headers.get("mcp-session-id")) for asked in server.asked if asked.method == "POST"]
    begun = [session for method, session in sessions if method == "initialize"]
    assert begun == [None, None]
    assert [session for method, session in sessions if method == "tools/call"] == ["s1", "s2"]
    assert [session for method, session in sessions if method == "notifications/initialized"] == ["s1", "s2"]


# --- legacy-extensions ----------------------------------------------------------------------------------------------

OF_CLIENT: dict[str, Any] = {
    "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]},
    "com.example/conformance": {"nested": {"enabled": False, "limit": 0}, "values": ["a", 2, None]},
    "com.example/empty": {},
}
OF_SERVER: dict[str, Any] = {
    "io.modelcontextprotocol/ui": {},
    "com.example/conformance": {"nested": {"enabled": True, "limit": 3}, "values": [None, "b", 4]},
    "com.example/empty": {},
}


async def test_settings_of_extensions_arrive_unchanged_in_the_legacy_era() -> None:
    """SEP-2133, Negotiation: in `initialize` of 2025-11-25, whatever the settings are, in both directions."""
    made = Made(extensions=OF_SERVER)

    @made.server.tool
    async def test_legacy_extension_capabilities(ctx: Context) -> dict[str, Any]:
        return {"extensions": ctx.client_extensions}

    async with served(made=made) as (_, client, _):
        url = str(client.base_url.join("/mcp"))
        async with Client(url, mode="2025-11-25", extensions=OF_CLIENT) as ours:
            assert ours.extensions == OF_SERVER
            found = await ours.call_tool("test_legacy_extension_capabilities")
            assert from_json(found.text)["extensions"] == OF_CLIENT
