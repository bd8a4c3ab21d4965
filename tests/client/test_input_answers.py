"""What a client answers to a server that asks (`client/elicitation`, sampling, roots): the same rules in both eras."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, strategies as st
from pydantic import BaseModel, Field

from tests.client.asking import (
    DONE,
    MODERN,
    answered,
    asking,
    asks,
    form,
    request,
    rounds,
    sample,
    say,
    text,
    url,
    use,
    used,
)
from tests.form_strategies import spoiled_answers
from tests.tables import each_of
from trio_mcp import Answers, Client, InputError, LocalProtocolError, McpError, RemoteProtocolError, Server, types
from trio_mcp.client.answers.sources import InputSources
from trio_mcp.jsonrpc.messages import ErrorData, Notification
from trio_mcp.testing.strategies import form_answers, forms

NAME = form(("name",), name={"type": "string"}, age={"type": "integer", "minimum": 0, "default": 30})


async def ask(era: str, params: Any, callback: Callable[[Any], Any], **more: Any) -> Any:
    return await answered(era, "elicitation/create", params, Answers(elicitation=callback, **more))


class Person(BaseModel):
    name: str
    age: int | None = None


class Dated(BaseModel):
    day: datetime.date = Field(alias="theDay")


async def later(answer: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return answer


@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"name": "Ada", "age": 36}, {"action": "accept", "content": {"name": "Ada", "age": 36}}),
        ({"name": "Ada"}, {"action": "accept", "content": {"age": 30, "name": "Ada"}}),
        (Person(name="Ada"), {"action": "accept", "content": {"age": 30, "name": "Ada"}}),
        (
            types.ElicitResult(action="accept", content={"name": "Ada", "age": 1}),
            {"action": "accept", "content": {"name": "Ada", "age": 1}},
        ),
        (types.ElicitResult(action="decline", content={"name": "secret"}), {"action": "decline"}),
        (None, {"action": "decline"}),
        ("decline", {"action": "decline"}),
        ("cancel", {"action": "cancel"}),
        (types.ElicitResult(action="cancel"), {"action": "cancel"}),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_a_callback_may_return(era: str, answer: Any, expected: Any, kind: str) -> None:
    seen: list[Any] = []

    def callback(params: Any) -> Any:
        seen.append(params)
        return answer if kind == "sync" else later(answer)

    assert await ask(era, NAME, callback) == expected
    (params,) = seen
    assert isinstance(params, types.ElicitRequestFormParams)
    assert params.message == "Please fill in"
    assert list(params.requested_schema.properties) == ["name", "age"]


async def test_an_answer_is_anything_that_has_a_json_form() -> None:
    asked = form(("theDay",), theDay={"type": "string", "format": "date"})
    expected = {"action": "accept", "content": {"theDay": "2026-07-28"}}
    day = datetime.date(2026, 7, 28)
    assert await ask(MODERN, asked, lambda _: {"theDay": day}) == expected
    assert await ask(MODERN, asked, lambda _: Dated(theDay=day)) == expected


async def test_accepting_with_a_word_takes_the_defaults() -> None:
    asked = form(("ok",), ok={"type": "boolean", "default": True})
    assert await ask(MODERN, asked, lambda _: "accept") == {"action": "accept", "content": {"ok": True}}


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize("answer", ["accept", {}, types.ElicitResult(action="accept")])
async def test_a_url(era: str, answer: Any) -> None:
    """The input on the page does not pass through the client, so there is no content (section Response Actions)."""
    seen: list[Any] = []

    def callback(params: Any) -> Any:
        seen.append(params)
        return answer

    params = url("https://example.org/pay?x=1", **({"elicitationId": "e1"} if era != MODERN else {}))
    assert await ask(era, params, callback) == {"action": "accept"}
    assert isinstance(seen[0], types.ElicitRequestURLParams)
    assert seen[0].url == "https://example.org/pay?x=1"


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        ({"name": 5}, r"ValueError: the answer does not match the requested schema: \['name'\]: 5 is not of type"),
        ({"name": "Ada", "age": -1}, r"\['age'\]: -1 is less than the minimum of 0"),
        ({"age": 5}, '"name" is a required property'),
        ({}, '"name" is a required property'),
        ({"name": "Ada", "nick": "A"}, "the form has no field 'nick'; fields of the form: 'name', 'age'"),
        ({"name": object()}, "TypeError: the answer can't be turned into JSON"),
        (5, "TypeError: the elicitation callback must return an ElicitResult, .*; got int"),
        ("yes", "TypeError: the elicitation callback must return"),
        (["name"], "got list"),
    ],
)
async def test_an_answer_that_does_not_fit_is_not_sent(
    answer: Any, match: str, caplog: pytest.LogCaptureFixture
) -> None:
    raised = await ask(MODERN, NAME, lambda _: answer)
    assert isinstance(raised, InputError)
    assert (raised.method, raised.key) == ("elicitation/create", "q")
    with pytest.raises(InputError, match=match):
        raise raised
    assert caplog.text == ""
    refused = await ask("2025-11-25", NAME, lambda _: answer)
    assert refused == ErrorData(-32603, "internal error in 'elicitation/create'")
    assert raised.reason.partition(": ")[2] in caplog.text  # for the author of the callback


async def test_a_url_takes_no_content() -> None:
    raised = await ask(MODERN, url(), lambda _: {"name": "Ada"})
    assert isinstance(raised, InputError)
    assert "does not pass through the client" in str(raised)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({}, "malformed parameters"),
        (None, "malformed parameters"),
        ([], "malformed parameters"),
        ({"message": "no schema"}, "requestedSchema"),
        ({**NAME, "mode": "voice"}, "malformed parameters"),
        ({"message": "x", "requestedSchema": {"type": "object"}}, "properties"),
        ({"message": "x", "requestedSchema": {"type": "array", "properties": {}}}, "type"),
        (form(a={"type": "string", "enum": "abc"}), "malformed parameters"),
        (form(a={"type": "string", "pattern": "("}), "the requested schema can't be used"),
        (form(a={"$ref": "https://example.org/a"}), "the requested schema can't be used"),
        (url("javascript:alert(1)"), "must contain a valid http or https URL"),
        (url("file:///etc/passwd"), "must contain a valid http or https URL"),
        (url("https://"), "must contain a valid http or https URL"),
        (url("https://exa mple.org"), "must contain a valid http or https URL"),
        (url("https://example.org/\u202egro"), "must contain a valid http or https URL"),
        (url("https://[::1"), "must contain a valid http or https URL"),
        (url("example.org"), "must contain a valid http or https URL"),
    ],
)
async def test_a_malformed_request_never_reaches_the_callback(params: Any, match: str) -> None:
    def callback(params: Any) -> Any:
        pytest.fail("the callback was called")

    raised = await ask(MODERN, params, callback)
    assert isinstance(raised, RemoteProtocolError)
    assert match in str(raised)
    assert "'q' of 'tools/call'" in str(raised)
    if isinstance(params, dict):
        refused = await ask("2025-11-25", params, callback)
        assert refused.code == -32602
        assert match in refused.message


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("modes", "params"), [(("form",), url()), (("url",), NAME), (("url",), {**NAME, "mode": "form"})]
)
async def test_a_mode_that_is_not_declared_is_refused(era: str, modes: Any, params: Any) -> None:
    """2025-11-25 `client/elicitation`, Error Handling: -32602."""
    refused = await ask(era, params, lambda _: pytest.fail("the callback was called"), elicitation_modes=modes)
    assert refused.code == -32602
    assert "does not support elicitation in" in refused.message


async def test_revisions_without_elicitation_or_without_urls_refuse_it() -> None:
    refused = await ask("2025-03-26", NAME, lambda _: {})
    assert refused.code == -32601
    refused = await ask("2025-06-18", url(), lambda _: "accept")
    assert refused.code == -32602
    refused = await ask("2025-06-18", NAME, lambda _: {}, elicitation_modes=("url",))
    assert refused.code == -32601


def answer_by(callback: Callable[[Any], Any], schema: dict[str, Any]) -> Any:
    sources = InputSources(Answers(elicitation=callback, elicitation_modes=("form",)))
    params = {"message": "x", "requestedSchema": schema}
    return sources.prepare(MODERN, "elicitation/create", params)


@given(st.data(), forms())
def test_any_answer_that_fits_is_sent_with_the_defaults(data: st.DataObject, schema: dict[str, Any]) -> None:
    answer = data.draw(form_answers(schema))
    sent = trio.run(answer_by(lambda _: answer, schema))
    defaults = {name: field["default"] for name, field in schema["properties"].items() if "default" in field}
    assert sent == {"action": "accept", "content": {**defaults, **answer}}


@given(st.data(), forms(min_fields=1))
def test_no_answer_that_does_not_fit_is_ever_sent(data: st.DataObject, schema: dict[str, Any]) -> None:
    answer, _ = data.draw(spoiled_answers(schema))
    # What is left out and has a default is filled in.
    fields, required = schema["properties"], schema["required"]
    mended = [name for name in required if name not in answer and "default" in fields[name]]
    if mended:
        return
    with pytest.raises(ValueError, match="does not match the requested schema"):
        trio.run(answer_by(lambda _: answer, schema))


# --- the client's language model (`client/sampling`) -----------------------------------------------------------------


TOOL = {"name": "weather", "inputSchema": {"type": "object"}}
TEXT = {"role": "assistant", "content": text("hi"), "model": "unknown", "stopReason": "endTurn"}
USES = {"role": "assistant", "content": [use("a"), use("b")], "model": "m", "stopReason": "toolUse"}


async def ask_model(era: str, params: Any, callback: Callable[[Any], Any], **more: Any) -> Any:
    return await answered(era, "sampling/createMessage", params, Answers(sampling=callback, **more))


def sampled(*content: Any, **more: Any) -> types.CreateMessageResult:
    wire = {"role": "assistant", "model": "m", "content": content[0] if len(content) == 1 else list(content), **more}
    return types.CreateMessageResult.from_wire(wire)


@pytest.mark.parametrize("era", ["2024-11-05", "2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_text_is_enough(era: str, kind: str) -> None:
    seen: list[Any] = []

    def sync(params: Any) -> str:
        seen.append(params)
        return "hi"

    async def wait(params: Any) -> str:
        return sync(params)

    asked = sample(systemPrompt="be short", temperature=0.5, modelPreferences={"hints": [{"name": "x"}]})
    assert await ask_model(era, asked, sync if kind == "sync" else wait) == TEXT
    (params,) = seen
    assert isinstance(params, types.CreateMessageRequestParams)
    assert (params.max_tokens, params.system_prompt, params.temperature) == (10, "be short", 0.5)
    assert params.messages[0].content_as_list == [types.TextContent(text="hello")]


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_a_whole_result_or_plain_data(era: str) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    expected = {"role": "assistant", "model": "m", "content": [text("look"), image], "stopReason": "maxTokens"}
    made = sampled(text("look"), image, stopReason="maxTokens")
    assert await ask_model(era, sample(), lambda _: made) == expected
    assert await ask_model(era, sample(), lambda _: expected) == expected


async def test_before_lists_of_blocks_a_message_is_one_block() -> None:
    """Lists of content came with 2025-11-25."""
    one = sampled(text("a"))
    one.content = [types.TextContent(text="a")]
    assert (await ask_model("2025-06-18", sample(), lambda _: one))["content"] == text("a")
    refused = await ask_model("2025-06-18", sample(), lambda _: sampled(text("a"), text("b")))
    assert refused == ErrorData(-32603, "internal error in 'sampling/createMessage'")


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_tools_reach_a_callback_that_declared_them(era: str) -> None:
    asked = sample(
        say("user", text("weather?")),
        say("assistant", use("1"), use("2")),
        say("user", used("2"), used("1")),
        tools=[TOOL],
        toolChoice={"mode": "auto"},
    )
    seen: list[Any] = []

    def callback(params: types.CreateMessageRequestParams) -> Any:
        seen.append(params)
        return USES

    assert await ask_model(era, asked, callback, sampling_features=("tools",)) == USES
    assert seen[0].tools[0].name == "weather"
    assert seen[0].tool_choice.mode == "auto"


@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25", MODERN])
@pytest.mark.parametrize("more", [{"tools": [TOOL]}, {"tools": []}, {"toolChoice": {"mode": "none"}}])
async def test_tools_are_refused_unless_declared(era: str, more: Any) -> None:
    """2025-11-25 schema, CreateMessageRequestParams: the client must return an error."""
    features: Any = ("context", "tools") if era == "2025-06-18" else ("context",)  # not known there
    refused = await ask_model(
        era, sample(**more), lambda _: pytest.fail("the callback was called"), sampling_features=features
    )
    assert refused.code == -32602
    assert "has not declared sampling.tools" in refused.message


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("messages", "what"),
    [
        ([say("assistant", use("1"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", text("well?"))], "a tool result is missing"),
        ([say("assistant", use("1"), use("2")), say("user", used("1"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", used("1"), used("1"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", used("2"))], "a tool result is missing"),
        ([say("assistant", use("1")), say("user", used("1"), text("so"))], "mixes tool results with other content"),
        ([say("user", used("1"))], "result has no tool use"),
        ([say("assistant", use("1")), say("user", used("1")), say("user", used("1"))], "result has no tool use"),
        ([say("user", use("1")), say("user", used("1"))], "tool uses must come from the assistant"),
        ([say("assistant", use("1")), say("assistant", used("1"))], "tool uses must come from the assistant"),
    ],
)
async def test_tool_uses_and_results_must_balance(era: str, messages: Any, what: str) -> None:
    """2025-11-25 `client/sampling`, Error Handling: -32602."""
    refused = await ask_model(
        era,
        sample(*messages, tools=[TOOL]),
        lambda _: pytest.fail("the callback was called"),
        sampling_features=("tools",),
    )
    assert refused.code == -32602
    assert what in refused.message


@pytest.mark.parametrize(
    ("more", "answer", "match"),
    [
        ({}, USES, "offers the model no tools"),
        ({"tools": []}, USES, "offers the model no tools"),
        ({"tools": [TOOL], "toolChoice": {"mode": "none"}}, USES, "toolChoice is 'none'"),
        ({"tools": [TOOL]}, sampled(used("1")), "tool_result, which only the server's messages may contain"),
        ({}, {"role": "assistant"}, "an invalid CreateMessageResult: content: Field required; model: Field required"),
        ({}, None, "TypeError: the sampling callback must return a CreateMessageResult or a string, got NoneType"),
    ],
)
async def test_an_invalid_answer_is_not_sent(more: Any, answer: Any, match: str) -> None:
    features = {"sampling_features": ("tools",)}
    raised = await ask_model(MODERN, sample(**more), lambda _: answer, **features)
    assert isinstance(raised, InputError)
    assert match in str(raised)
    assert await ask_model("2025-11-25", sample(**more), lambda _: answer, **features) == ErrorData(
        -32603, "internal error in 'sampling/createMessage'"
    )


async def test_the_user_refuses() -> None:
    """2025-11-25 `client/sampling`, Error Handling: -1. In the modern era nothing is sent, and the call says why."""

    def refuse(params: Any) -> Any:
        raise McpError(-1, "User rejected sampling request", {"by": "Ada"})

    refused = await ask_model("2025-11-25", sample(), refuse)
    assert refused == ErrorData(-1, "User rejected sampling request", {"by": "Ada"})
    raised = await ask_model(MODERN, sample(), refuse)
    assert isinstance(raised, InputError)
    assert isinstance(raised.__cause__, McpError)
    assert raised.reason == "McpError: User rejected sampling request (error -1)"


# --- where the server may work (`client/roots`) ----------------------------------------------------------------------


async def ask_roots(era: str, roots: Any, params: Any = None) -> Any:
    return await answered(era, "roots/list", params, Answers(roots=roots))


@pytest.mark.parametrize("era", ["2024-11-05", "2025-11-25", MODERN])
@pytest.mark.parametrize("params", [None, {}, {"_meta": {"a/b": 1}}])
async def test_roots_of_each_kind(era: str, params: Any) -> None:
    given = [types.Root(uri="file:///a/b", name="Project"), Path("/home/a b"), "file:///c%20d", Path("here/../there")]
    assert await ask_roots(era, given, params) == {
        "roots": [
            {"uri": "file:///a/b", "name": "Project"},
            {"uri": "file:///home/a%20b"},
            {"uri": "file:///c%20d"},
            {"uri": (Path.cwd() / "there").as_uri()},
        ]
    }
    assert await ask_roots(era, [], params) == {"roots": []}


@pytest.mark.parametrize("era", ["2025-11-25", MODERN])
async def test_a_function_is_asked_each_time(era: str) -> None:
    async def later() -> list[Path]:
        await trio.lowlevel.checkpoint()
        return [Path("/later")]

    assert await ask_roots(era, lambda: (Path("/now"),)) == {"roots": [{"uri": "file:///now"}]}
    assert await ask_roots(era, later) == {"roots": [{"uri": "file:///later"}]}


NO_ROOTS = "https://example.org/ | file:/one/slash | /a/path | file:///a/../b | file:///a/%2e%2E/b | file://[::1/a"


@each_of("root", NO_ROOTS, "", "file:///a b", "file:///a\nb")
async def test_what_is_not_a_root(root: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only file:// URIs, and none that leads elsewhere (sections Root and Security Considerations)."""
    with pytest.raises(ValueError, match="root"):
        Client(Server("x"), answers=Answers(roots=[root]))
    with pytest.raises(ValueError, match="root"):
        Client(Server("x"), answers=Answers(roots=[types.Root(uri=root)]))
    assert await ask_roots("2025-11-25", lambda: [root]) == ErrorData(-32603, "internal error in 'roots/list'")
    assert "root" in caplog.text
    refused = await ask_roots(MODERN, lambda: [root])
    assert isinstance(refused, InputError)
    assert "root" in str(refused)


async def test_a_legacy_server_is_told_of_changed_roots() -> None:
    async with asking(answers=Answers(roots=["file:///old"])) as (client, server):
        await client.set_roots([Path("/new")])
        assert await server.ask("roots/list") == {"roots": [{"uri": "file:///new"}]}
        assert server.heard[1:] == [Notification("notifications/roots/list_changed")]
        with pytest.raises(ValueError, match="must be a file:// URI"):
            await client.set_roots(["http://example.org"])
        assert await server.ask("roots/list") == {"roots": [{"uri": "file:///new"}]}
        await client.set_roots(lambda: [Path("/made")])
        assert await server.ask("roots/list") == {"roots": [{"uri": "file:///made"}]}
        assert (len(server.heard), server.questions) == (3, [])  # with notifications/initialized


async def test_a_modern_server_is_not_told() -> None:
    """2026-07-28 has no notifications/roots/list_changed."""
    async with rounds(asks(r=request("roots/list")), DONE, answers=Answers(roots=[])) as (client, asked):
        await client.set_roots([Path("/new")])
        await client.call_tool("x")
    assert (asked[1].params or {})["inputResponses"] == {"r": {"roots": [{"uri": "file:///new"}]}}
    assert [each.method for each in asked] == ["tools/call"] * 2


async def test_roots_can_be_set_before_connecting_and_only_if_declared() -> None:
    client = Client(Server("x"), answers=Answers(roots=[]))
    await client.set_roots([Path("/x")])
    async with asking() as (client, _):
        with pytest.raises(LocalProtocolError, match=r"has declared no roots: create it with answers=Answers\(roots="):
            await client.set_roots([])
