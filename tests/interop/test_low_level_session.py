"""`ClientSession` over `stdio_client`, as the tutorials write it, against third-party servers.

The official SDK's server speaks both eras; the npm server speaks the legacy era only.
"""

from __future__ import annotations

import pytest
import trio

from trio_mcp import ClientSession, RequestContext, stdio_client, types

from .support import DEADLINE, Launch

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("server", ["official_server", "everything_server"])
async def test_the_handshake_offers_any_revision_of_its_era(
    server: str, revision: str, request: pytest.FixtureRequest
) -> None:
    launch: Launch = request.getfixturevalue(server)
    with trio.fail_after(DEADLINE):
        async with stdio_client(launch.for_us()) as (read, write), ClientSession(read, write) as session:
            declared = await session.initialize(revision)
            await session.ping()
            listed = await session.send_request("tools/list", None, types.ListToolsResult)
            echoed = await session.send_request(
                "tools/call", {"name": "echo", "arguments": {"text": "hi", "message": "hi"}}, types.CallToolResult
            )
    assert declared.revision == revision
    assert declared.info is not None
    assert declared.info["version"]
    assert "tools" in declared.capabilities
    assert "echo" in {tool.name for tool in listed.tools}
    (block,) = echoed.content
    assert isinstance(block, types.TextContent)
    assert block.text in ("hi", "Echo: hi")


async def test_the_servers_own_requests_are_answered(everything_server: Launch) -> None:
    """Sampling, elicitation and roots: each request of the server's, in the middle of a call, gets its answer."""
    asked: list[str] = []

    async def sample(params: types.CreateMessageRequestParams, context: RequestContext) -> types.CreateMessageResult:
        asked.append(context.method)
        (message,) = params.messages
        assert isinstance(message.content, types.TextContent)
        said = types.TextContent(text=f"you said: {message.content.text}")
        return types.CreateMessageResult(role="assistant", content=said, model="a-model")

    async def decline(params: object, context: RequestContext) -> types.ElicitResult:
        asked.append(context.method)
        return types.ElicitResult(action="decline")

    async def roots(params: object, context: RequestContext) -> types.ListRootsResult:
        asked.append(context.method)
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv/data", name="data")])

    texts: dict[str, str] = {}
    with trio.fail_after(DEADLINE):
        async with (
            stdio_client(everything_server.for_us()) as (read, write),
            ClientSession(read, write, capabilities={"sampling": {}, "elicitation": {}, "roots": {}}) as session,
        ):
            session.add_request_handler("sampling/createMessage", sample, types.CreateMessageRequestParams)
            session.add_request_handler("elicitation/create", decline)
            session.add_request_handler("roots/list", roots)
            await session.initialize()
            for name, arguments in [
                ("trigger-sampling-request", {"prompt": "hello", "maxTokens": 5}),
                ("trigger-elicitation-request", {}),
                ("get-roots-list", {}),
            ]:
                result = await session.send_request(
                    "tools/call", {"name": name, "arguments": arguments}, types.CallToolResult
                )
                block = result.content[0]
                assert isinstance(block, types.TextContent)
                texts[name] = block.text
    assert "you said: Resource trigger-sampling-request context: hello" in texts["trigger-sampling-request"]
    assert "declined" in texts["trigger-elicitation-request"]
    assert "file:///srv/data" in texts["get-roots-list"]
    # A set: the server also asks for the roots by itself, a moment after the handshake.
    assert set(asked) == {"sampling/createMessage", "elicitation/create", "roots/list"}
