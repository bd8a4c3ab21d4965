"""``client/elicitation``, ``sampling``, ``roots`` and ``basic/patterns/mrtr``: what servers ask and clients answer."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from tests.requirements.case import Case
from tests.requirements.model import ALL, LEGACY, MODERN, Topic, since
from trio_mcp import Answers, Client, Context, InputOptions, McpError, Server, types
from trio_mcp.types import error_codes

FORMS = since("2025-06-18")
MRTR = "basic/patterns/mrtr"
ELICITATION, SAMPLING, ROOTS = "client/elicitation", "client/sampling", "client/roots"


class Person(BaseModel):
    name: str
    age: int = 30


def server() -> Server:
    made = Server("input", version="1.0", input=InputOptions(key=b"0123456789abcdef0123456789abcdef"))

    @made.tool
    async def who(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Person)
        return f"{answer.action} {answer.data}"

    @made.tool
    async def think(ctx: Context) -> str:
        reply = await ctx.sample("Two and two?", max_tokens=5)
        (block,) = reply.content_as_list
        assert isinstance(block, types.TextContent)
        return f"{reply.role} says {block.text}"

    @made.tool
    async def where(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    @made.tool
    async def both(ctx: Context) -> str:
        answer, roots = await ctx.gather(ctx.elicit("Who are you?", Person), ctx.list_roots())
        return f"{answer.action} {len(roots)}"

    return made


topic = Topic("Questions to the client", server)


async def said(client: Client, tool: str) -> str:
    """What a tool returned, in the form that every revision has."""
    (block,) = (await client.call_tool(tool)).content
    assert isinstance(block, types.TextContent)
    return block.text


def answering(answer: Any, **more: Any) -> Answers:
    return Answers(elicitation=lambda params: answer, **more)


@topic.row(f"{ELICITATION}#user-interaction-model", "A form that the user accepts comes back with its content.", FORMS)
async def accepted(case: Case) -> None:
    async with case.client(answers=answering({"name": "Ann", "age": 41})) as client:
        assert await said(client, "who") == "accept name='Ann' age=41"


@topic.row(f"{ELICITATION}#response-actions", "A form that the user declines comes back without content.", FORMS)
async def declined(case: Case) -> None:
    async with case.client(answers=answering("decline")) as client:
        assert await said(client, "who") == "decline None"


@topic.row(f"{ELICITATION}#response-actions", "A form that the user dismisses is cancelled, not declined.", FORMS)
async def dismissed(case: Case) -> None:
    async with case.client(answers=answering("cancel")) as client:
        assert await said(client, "who") == "cancel None"


@topic.row(f"{ELICITATION}#requested-schema", "A client fills in the defaults of a form's fields.", since("2025-11-25"))
async def defaults(case: Case) -> None:
    async with case.client(answers=answering({"name": "Ann"})) as client:
        assert await said(client, "who") == "accept name='Ann' age=30"


@topic.row(f"{SAMPLING}#creating-messages", "The model's answer comes back with its role.", ALL)
async def sampled(case: Case) -> None:
    async with case.client(answers=Answers(sampling=lambda params: "four")) as client:
        assert await said(client, "think") == "assistant says four"


@topic.row(f"{ROOTS}#listing-roots", "The roots of the client come back as file URIs.", ALL)
async def rooted(case: Case) -> None:
    async with case.client(answers=Answers(roots=["file:///srv", "file:///home"])) as client:
        assert await said(client, "where") == "file:///srv file:///home"


@topic.row(f"{ROOTS}#root-list-changes", "A client with roots declares whether it announces changes.", LEGACY)
async def roots_declared(case: Case) -> None:
    async with case.client(answers=Answers(roots=["file:///srv"])) as client:
        await client.set_roots(["file:///home"])
        assert await said(client, "where") == "file:///home"


@topic.row("basic#capabilities", "A client is not asked for an undeclared capability: the error -32021 names it.", ALL)
async def undeclared(case: Case) -> None:
    async with case.client() as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("think")
    assert caught.value.code == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.data == {"requiredCapabilities": {"sampling": {}}}


@topic.row(f"{MRTR}#inputrequiredresult", "Asking for input is a result with inputRequests and requestState.", MODERN)
async def question(case: Case) -> None:
    async with case.client(answers=answering("accept")) as client:
        result = await client.request("tools/call", {"name": "who", "arguments": {}})
    assert result["resultType"] == "input_required"
    ((_, request),) = result["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    assert isinstance(result["requestState"], str)


@topic.row(f"{MRTR}#inputrequests", "Each input request of a round has its own key.", MODERN)
async def several(case: Case) -> None:
    async with case.client(answers=answering({"name": "Ann"}, roots=["file:///srv"])) as client:
        result = await client.request("tools/call", {"name": "both", "arguments": {}})
        assert len(result["inputRequests"]) == 2
        assert await said(client, "both") == "accept 1"


async def refused(case: Case, name: str, change: Any) -> None:
    async with case.client(answers=Answers(roots=["file:///srv"])) as client:
        first = await client.call_tool_once("where")
        assert isinstance(first, types.InputRequiredResult)
        assert first.request_state is not None
        (key,) = first.input_requests or {}
        answer = {key: {"roots": []}}
        with pytest.raises(McpError) as caught:
            await client.call_tool_once(name, input_responses=answer, request_state=change(first.request_state))
    assert caught.value.code == error_codes.INVALID_PARAMS


@topic.row(f"{MRTR}#server-requirements-basic-workflow", "A requestState that was changed is refused.", MODERN)
async def tampered(case: Case) -> None:
    await refused(case, "where", lambda state: state[:-2] + ("AA" if state[-2:] != "AA" else "BB"))


@topic.row(f"{MRTR}#server-requirements-basic-workflow", "A requestState is refused on another request.", MODERN)
async def foreign(case: Case) -> None:
    await refused(case, "both", lambda state: state)


@topic.row(f"{MRTR}#error-handling", "A missing input response is asked for again.", MODERN)
async def missing(case: Case) -> None:
    async with case.client(answers=Answers(roots=["file:///srv"])) as client:
        first = await client.call_tool_once("where")
        assert isinstance(first, types.InputRequiredResult)
        again = await client.call_tool_once("where", input_responses={}, request_state=first.request_state)
    assert isinstance(again, types.InputRequiredResult)


@topic.row(f"{MRTR}#error-handling", "Input responses that were not asked for are ignored.", MODERN)
async def surplus(case: Case) -> None:
    async with case.client(answers=Answers(roots=["file:///srv"])) as client:
        first = await client.call_tool_once("where")
        assert isinstance(first, types.InputRequiredResult)
        (key,) = first.input_requests or {}
        answers = {key: {"roots": [{"uri": "file:///a"}]}, "surplus": {"roots": []}}
        result = await client.call_tool_once("where", input_responses=answers, request_state=first.request_state)
    assert isinstance(result, types.CallToolResult)
    assert result.structured_content == {"result": "file:///a"}


topic.held(
    """
    A requestState expires.
        basic/patterns/mrtr#server-requirements-basic-workflow input_replay.py::test_a_state_expires modern
    A requestState is valid only for the principal it was given to.
        basic/patterns/mrtr#server-requirements-basic-workflow
        context.py::test_only_the_same_identity_resumes_a_request modern
    A requestState with any bit flipped fails its signature check.
        basic/patterns/mrtr#security-considerations request_state.py::test_a_flipped_bit_is_refused modern
    Two requestStates can't be combined into a third.
        basic/patterns/mrtr#security-considerations request_state.py::test_a_splice_of_two_tokens_is_refused modern
    Only tools/call, prompts/get and resources/read may ask for input.
        basic/patterns/mrtr#supported-requests input_eras.py::test_only_tools_prompts_and_resources_may_ask modern
    Prompts and resources may ask for input, as tools may.
        basic/patterns/mrtr#supported-requests input_eras.py::test_prompts_and_resources_may_ask_too
    A response of the wrong shape is refused with -32602.
        basic/patterns/mrtr#error-handling input_replay.py::test_an_invalid_response_is_refused modern
    Each inputRequest matches the schema.
        basic/patterns/mrtr#inputrequests input_replay.py::test_the_result_that_asks_is_as_the_schema_says modern
    A form is a flat object of primitive fields.
        client/elicitation#requested-schema forms.py::test_a_field_that_is_not_flat_is_refused_by_name 2025-06-18+
    A form uses only keywords of its revision.
        client/elicitation#requested-schema
        forms.py::test_the_form_of_each_revision_is_as_its_schema_says 2025-06-18+
    A server may answer -32042 with the URLs to visit first.
        client/elicitation#url-elicitation-required-error
        input_replay.py::test_an_error_may_name_the_pages_to_visit 2025-11-25
    Only the client that was asked is notified when a URL elicitation completes.
        client/elicitation#completion-notifications-for-url-mode-elicitation
        input_replay.py::test_the_client_that_was_asked_hears_when_a_page_is_done 2025-11-25
    Every tool use in the messages has its result.
        client/sampling#tool-use-and-result-balance input_replay.py::test_uses_and_results_must_match 2025-11-25+
    A server may continue the model's tool uses over several requests.
        client/sampling#tools-in-sampling input_replay.py::test_a_loop_of_tools 2025-11-25+
    """,
    tests="tests/server/test_",
)
