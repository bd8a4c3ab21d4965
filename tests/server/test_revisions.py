"""Each revision gets what it knows, and nothing else: compared with its published schema where that is at hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.server.harness import client_of, every_revision, text_of
from tests.types.published import validator
from trio_mcp import Client, McpError, NegotiationError, Server, types
from trio_mcp.testing.strategies import wire_models
from trio_mcp.types.versions import LATEST, REVISIONS, at_least

ICON = types.Icon(src="https://example.com/i.png", sizes=["any"], theme="dark")
META = {"example.com/a": 1}
ANNOTATIONS = types.Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z")

SINCE = {
    "annotations": "2025-03-26",
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}


def full_server() -> Server:
    server = Server("test")

    @server.tool(title="T", annotations={"readOnlyHint": True}, icons=[ICON], meta=META)
    def number(x: int = 1) -> int:
        return x

    server.add_prompt(lambda: "", name="prompt", title="T", icons=[ICON], meta=META)
    for uri, function in (
        ("x://y", lambda: types.TextResourceContents(uri="x://y", text="", meta=META)),
        ("x://{a}", lambda a: a),
    ):
        server.add_resource(uri, function, name="r", title="T", icons=[ICON], meta=META, annotations=ANNOTATIONS)

    @server.tool
    def blocks() -> list[types.ContentBlock]:
        return [
            types.TextContent(text="t", annotations=ANNOTATIONS, meta=META),
            types.ImageContent(data="aGk=", mime_type="image/png", meta=META),
            types.AudioContent(data="aGk=", mime_type="audio/wav", meta=META),
            types.ResourceLink(uri="file:///a", name="a", title="A", icons=[ICON], size=3),
            types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="t", meta=META)),
        ]

    return server


@every_revision
async def test_a_definition_has_the_fields_of_its_revision(revision: str) -> None:
    known = {key for key in SINCE if at_least(revision, SINCE[key])}
    details = known & {"title", "icons", "_meta"}
    async with client_of(full_server(), revision) as client:
        for method, key, expected in (
            ("tools/list", "tools", known),
            ("prompts/list", "prompts", details),
            ("resources/list", "resources", details | {"annotations"}),
            ("resources/templates/list", "resourceTemplates", details | {"annotations"}),
        ):
            first = (await client.request(method))[key][0]
            assert SINCE.keys() & first.keys() == expected
            assert "lastModified" not in first.get("annotations", {}) or at_least(revision, "2025-06-18")
        (contents,) = (await client.request("resources/read", {"uri": "x://y"}))["contents"]
    assert ("_meta" in contents) == at_least(revision, "2025-06-18")


@every_revision
async def test_blocks_that_a_revision_does_not_know_arrive_as_text(revision: str) -> None:
    async with client_of(full_server(), revision) as client:
        content = (await client.request("tools/call", {"name": "blocks"}))["content"]
    audio = "audio" if at_least(revision, "2025-03-26") else "text"
    link = "resource_link" if at_least(revision, "2025-06-18") else "text"
    assert [block["type"] for block in content] == ["text", "image", audio, link, "resource"]
    if link == "text":
        assert content[3] == {"type": "text", "text": "file:///a"}
    if audio == "text":
        assert "audio content of type audio/wav" in content[2]["text"]
    old = not at_least(revision, "2025-06-18")
    assert ("_meta" not in content[0]) == ("_meta" not in content[4]["resource"]) == old
    assert ("lastModified" not in content[0]["annotations"]) == old
    assert content[0]["annotations"]["audience"] == ["user"]
    assert ("icons" in content[3]) == at_least(revision, "2025-11-25")


@pytest.mark.published
@every_revision
async def test_every_message_sent_fits_the_published_schema(revision: str) -> None:
    async with client_of(full_server(), revision) as client:
        validator(revision, "ListToolsResult").validate(await client.request("tools/list"))
        for name in ("number", "blocks"):
            result = await client.request("tools/call", {"name": name})
            validator(revision, "CallToolResult").validate(result)
        if at_least(revision, "2025-11-25"):
            refused = await client.request("tools/call", {"name": "number", "arguments": {"x": "y"}})
            validator(revision, "CallToolResult").validate(refused)


@pytest.mark.published
@settings(max_examples=examples(60))
@given(result=wire_models(types.CallToolResult, LATEST), revision=st.sampled_from(REVISIONS))
async def test_any_current_result_fits_the_schema_of_any_revision(result: types.CallToolResult, revision: str) -> None:
    """A tool makes its result as the newest revision has it; older clients get what theirs allows."""
    server = Server("test")
    server.add_tool(lambda: result, name="tool")
    async with client_of(server, revision) as client:
        wire = await client.request("tools/call", {"name": "tool"})
    validator(revision, "CallToolResult").validate(wire)
    assert len(wire["content"]) == len(result.content)
    if revision == LATEST:
        known = {key: value for key, value in result.to_wire().items() if key != "_meta"}
        assert {key: value for key, value in wire.items() if key != "_meta"} == {"resultType": "complete", **known}


@given(revisions=st.lists(st.sampled_from(REVISIONS), min_size=1, unique=True))
async def test_a_server_serves_the_given_revisions(revisions: list[str]) -> None:
    server = Server("test", revisions=revisions)
    server.add_tool(lambda: "served", name="tool")
    for revision in REVISIONS:
        if revision in revisions:
            async with client_of(server, revision) as client:
                assert client.protocol_version == revision
                assert text_of(await client.call_tool("tool")) == "served"
        else:
            with pytest.raises((NegotiationError, McpError)):
                async with Client(server, mode=revision):
                    pytest.fail("connected")


def test_the_callers_own_models_are_left_alone() -> None:
    from trio_mcp.server.revisions import wire_for

    link: Any = types.ResourceLink(uri="file:///a", name="a", icons=[ICON], annotations=ANNOTATIONS)
    before = link.model_copy(deep=True)
    for revision in REVISIONS:
        wire_for(link, revision)
    assert link == before
    assert wire_for(link, LATEST) == link.to_wire()
