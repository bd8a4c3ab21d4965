"""The rules all wire models keep: names, unknown fields, nulls, identifiers and numbers."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from pydantic import ValidationError

from tests.strategies import constructs
from trio_mcp.testing.strategies import request_ids
from trio_mcp.types._base import WireModel, make
from trio_mcp.types.bases import Annotations
from trio_mcp.types.capabilities import ClientCapabilities, SamplingCapability
from trio_mcp.types.common import Implementation
from trio_mcp.types.content import ImageContent, TextContent, ToolResultContent
from trio_mcp.types.elicitation import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    RequestedSchema,
    StringSchema,
)
from trio_mcp.types.envelopes import (
    CallToolResultResponse,
    Error,
    JSONRPCErrorResponse,
    JSONRPCRequest,
    JSONRPCResultResponse,
)
from trio_mcp.types.input_required import InputRequiredResult, input_response_from_wire
from trio_mcp.types.lifecycle import CancelledNotificationParams
from trio_mcp.types.notices import ProgressNotificationParams
from trio_mcp.types.roots import ListRootsRequest, ListRootsResult, Root
from trio_mcp.types.sampling import CreateMessageResult, SamplingMessage
from trio_mcp.types.tasks import Task
from trio_mcp.types.tool_messages import CallToolRequestParams, CallToolResult, ListToolsResult
from trio_mcp.types.tools import Tool, ToolAnnotations
from trio_mcp.types.versions import REVISIONS

ODD_IDS = [True, False, 1.0, 1.5, None, [], {}, b"1"]


@pytest.mark.parametrize("odd", ODD_IDS, ids=repr)
def test_ids_are_strings_or_integers_and_nothing_else(odd: Any) -> None:
    """JSON-RPC ids and progress tokens: True and 1.0 are not integers here, although Python has them equal 1.

    Nor is True a number of progress.
    """
    shapes: list[tuple[type[WireModel], dict[str, Any]]] = [
        (JSONRPCRequest, {"jsonrpc": "2.0", "method": "ping", "id": odd}),
        (JSONRPCResultResponse, {"jsonrpc": "2.0", "result": {}, "id": odd}),
        (ProgressNotificationParams, {"progress": 1, "progressToken": odd}),
        (ProgressNotificationParams, {"progress": True, "progressToken": 1}),
    ]
    if odd is not None:
        shapes.append((CancelledNotificationParams, {"requestId": odd}))
    for model, wire in shapes:
        with pytest.raises(ValidationError):
            model.from_wire(wire)


@given(request_ids())
def test_ids_keep_their_value_and_their_type(request_id: int | str) -> None:
    wire = CancelledNotificationParams.from_wire({"requestId": request_id}).to_wire()
    assert wire == {"requestId": request_id}
    assert type(wire["requestId"]) is type(request_id)


@pytest.mark.parametrize("number", [50, 50.0, 0, 0.5, -1, 2**60, 1e300])
def test_numbers_keep_their_type(number: float) -> None:
    """Progress 50 stays 50: peers and users compare what they see with what they sent."""
    wire = ProgressNotificationParams.from_wire({"progressToken": 1, "progress": number, "total": number}).to_wire()
    assert (type(wire["progress"]), wire["progress"]) == (type(number), number)
    assert (type(wire["total"]), wire["total"]) == (type(number), number)


def test_both_forms_of_a_name_construct_and_only_the_wire_form_is_read() -> None:
    by_name = CallToolResult(content=[], is_error=True, meta={"k": 1})
    by_alias = CallToolResult.model_validate({"content": [], "isError": True, "_meta": {"k": 1}})
    assert by_name == by_alias
    assert by_name.to_wire() == {"content": [], "isError": True, "_meta": {"k": 1}}

    read = CallToolResult.from_wire({"content": [], "is_error": True, "meta": {"k": 1}})
    assert (read.is_error, read.meta) == (None, None)
    assert read.to_wire() == {"content": [], "is_error": True, "meta": {"k": 1}}, "unknown fields, so they survive"


def test_unknown_fields_and_nulls_survive_at_every_depth() -> None:
    wire = {
        "tools": [
            {
                "name": "t",
                "inputSchema": {"type": "object", "default": None},
                "annotations": {"title": "T", "xHint": None},
                "xTool": {"deep": [None, {"deeper": None}]},
                "_meta": {"com.example/x": None},
            }
        ],
        "xList": None,
    }
    result = ListToolsResult.from_wire(wire)
    assert result.to_wire() == wire
    assert result.tools[0].model_extra == {"xTool": {"deep": [None, {"deeper": None}]}}


def test_optional_fields_of_none_are_left_out_at_every_depth() -> None:
    tool = Tool(name="t", title=None, input_schema={"type": "object"}, annotations=None)
    assert ListToolsResult(tools=[tool], next_cursor=None).to_wire() == {
        "tools": [{"name": "t", "inputSchema": {"type": "object"}}]
    }
    received = Implementation.from_wire({"name": "n", "version": "1", "title": None})
    assert received.to_wire() == {"name": "n", "version": "1"}


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}, [None], {"result": None}])
def test_structured_content_of_any_json_value_survives_null_included(value: Any) -> None:
    """2026-07-28 server/tools: structured content is any JSON value, so null is a value, unlike absence."""
    wire = {"content": [], "structuredContent": value}
    assert CallToolResult.from_wire(wire).to_wire() == wire
    assert CallToolResult(content=[], structured_content=value).to_wire() == wire
    block = {"type": "tool_result", "toolUseId": "1", "content": [], "structuredContent": value}
    assert ToolResultContent.from_wire(block).to_wire() == block
    message = {"role": "user", "content": [block]}
    assert SamplingMessage.from_wire(message).to_wire() == message, "nested as well"


def test_structured_content_never_set_is_absent() -> None:
    assert "structuredContent" not in CallToolResult(content=[]).to_wire()
    assert "structuredContent" not in CallToolResult.from_wire({"content": []}).to_wire()


def test_null_ttl_of_a_task_is_kept() -> None:
    """2025-11-25 basic/utilities/tasks: null means for good, and the field is required."""
    wire = {"taskId": "1", "status": "working", "createdAt": "t", "lastUpdatedAt": "t", "ttl": None}
    assert Task.from_wire(wire).to_wire() == wire
    with pytest.raises(ValidationError):
        Task.from_wire({key: value for key, value in wire.items() if key != "ttl"})


ERROR = {"code": -32700, "message": "m"}


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        # JSON-RPC 2.0, section 5, asks for null where the id could not be read; MCP since 2025-11-25 for no id.
        (JSONRPCErrorResponse, {"jsonrpc": "2.0", "id": None, "error": ERROR}),
        (JSONRPCErrorResponse, {"jsonrpc": "2.0", "error": ERROR}),
        (Error, {**ERROR, "data": None}),
        (ImageContent, {"type": "image", "data": "AA==\n", "mimeType": "image/png"}),
        # Outside its range: an unusable hint must not cost a list of tools.
        (Annotations, {"priority": 2}),
    ],
)
def test_what_is_null_absent_or_odd_stays_as_it_came(model: type[WireModel], wire: dict[str, Any]) -> None:
    assert model.from_wire(wire).to_wire() == wire
    assert model.model_validate(wire).to_wire() == wire


def test_content_is_told_apart_by_type() -> None:
    with pytest.raises(ValidationError):
        CallToolResult.from_wire({"content": [{"type": "hologram"}]})
    with pytest.raises(ValidationError):
        CallToolResult.from_wire({"content": [{"text": "no type"}]})


def test_sampling_content_is_one_block_or_several() -> None:
    """2025-11-25 client/sampling: the shape that came is the shape that goes."""
    block = {"type": "text", "text": "hi"}
    single = SamplingMessage.from_wire({"role": "user", "content": block})
    several = CreateMessageResult.from_wire({"role": "assistant", "model": "m", "content": [block, block]})
    assert single.content == TextContent(text="hi")
    assert single.content_as_list == [TextContent(text="hi")]
    assert several.content_as_list == several.content
    assert single.to_wire()["content"] == block
    assert several.to_wire()["content"] == [block, block]


def test_an_elicitation_without_mode_is_a_form() -> None:
    """2025-06-18 has no mode; since 2025-11-25 its absence means the same."""
    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    page = {"message": "m", "mode": "url", "url": "https://example.com", "elicitationId": "1"}
    assert isinstance(ElicitRequest.from_wire(_elicit(form)).params, ElicitRequestFormParams)
    assert isinstance(ElicitRequest.from_wire(_elicit(page)).params, ElicitRequestURLParams)
    assert isinstance(ElicitRequest(params=ElicitRequestURLParams(message="m", url="u")).params, ElicitRequestURLParams)
    with pytest.raises(ValidationError):
        ElicitRequest.from_wire(_elicit({**form, "mode": "telepathy"}))


def _elicit(params: dict[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": params}


def test_a_form_field_of_no_known_kind_is_passed_on() -> None:
    """Servers in the wild ask with `anyOf`, which the restricted schema lacks; the other fields are not lost for it."""
    optional = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    wire = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}, "b": optional}}
    form = RequestedSchema.from_wire(wire)
    assert form.properties == {"a": StringSchema(min_length=1), "b": optional}
    assert form.to_wire() == wire


def test_a_result_that_asks_is_told_apart_by_its_result_type() -> None:
    """2026-07-28 basic/patterns/mrtr: a result with the fields of an answer still asks if it says so."""
    result = {"resultType": "input_required", "content": [], "requestState": "s"}
    asks = CallToolResultResponse.from_wire({"jsonrpc": "2.0", "id": 1, "result": result})
    answers = CallToolResultResponse.from_wire({"jsonrpc": "2.0", "id": 1, "result": {**result, "resultType": "x"}})
    assert isinstance(asks.result, InputRequiredResult)
    assert isinstance(answers.result, CallToolResult)


def test_answers_are_validated_as_what_was_asked() -> None:
    """The answer's construct follows from the question, not from what the answer looks like."""
    assert input_response_from_wire(ListRootsRequest(), {"roots": []}) == ListRootsResult(roots=[])
    assert input_response_from_wire("elicitation/create", {"action": "decline"}) == ElicitResult(action="decline")
    with pytest.raises(ValidationError):
        input_response_from_wire("sampling/createMessage", {"roots": []})
    with pytest.raises(KeyError):
        input_response_from_wire("tools/call", {})


def test_models_may_stand_where_plain_data_is_declared() -> None:
    params = CallToolRequestParams(name="t", input_responses={"q": ElicitResult(action="cancel", content=None)})
    assert params.to_wire() == {"name": "t", "inputResponses": {"q": {"action": "cancel"}}}
    # An extension's field can hold constructs of the protocol, too; what goes out is plain data all the same.
    params = CallToolRequestParams.model_validate({"name": "t", "x": [Root(uri="file:///")]})
    assert params.to_wire() == {"name": "t", "x": [{"uri": "file:///"}]}


def test_the_wire_form_has_a_meta_of_its_own() -> None:
    """Sessions stamp `_meta` of what they send; the caller's params must not change by it."""
    params = CallToolRequestParams(name="t", meta={"a": 1})
    params.to_wire()["_meta"]["progressToken"] = 7
    assert params.meta == {"a": 1}


def test_a_capability_is_declared_by_being_there() -> None:
    assert ClientCapabilities(sampling=SamplingCapability()).to_wire() == {"sampling": {}}
    assert ClientCapabilities.from_wire({"sampling": {}}).sampling is not None


def test_subclasses_of_users_keep_the_rules() -> None:
    class Extended(Tool):
        danger_level: int | None = None

    wire = {"name": "t", "inputSchema": {}, "dangerLevel": 3, "y": None}
    assert Extended.from_wire(wire).danger_level == 3
    assert Extended.from_wire(wire).to_wire() == wire


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_model_says_what_it_is(revision: str) -> None:
    """Docstrings are what the reference documentation shows."""
    undocumented = [model.__name__ for model in constructs(revision) if not model.__dict__.get("__doc__")]
    assert undocumented == []


SCHEMA = {"type": "object"}
HINTS = ToolAnnotations(read_only_hint=True)


class Text(str):
    pass


def tool_or_errors(make: Callable[..., Tool], values: dict[str, Any]) -> Tool | list[Any]:
    try:
        return make(**values)
    except ValidationError as exc:
        return list(exc.errors(include_url=False))


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a", "input_schema": SCHEMA},
        {"name": "a", "input_schema": SCHEMA, "title": None, "description": "d", "icons": None, "annotations": HINTS},
        {"name": Text("a"), "input_schema": SCHEMA, "icons": [{"src": "https://a.example/i.png"}, {"src": 1}]},
        {"name": "a", "input_schema": SCHEMA, "annotations": {"readOnlyHint": True}, "other": 1},
        {"name": 3, "input_schema": SCHEMA},
        {"name": "a", "input_schema": {1: 2}},
        {"name": "a", "input_schema": [("type", "object")]},
        {"name": "a", "input_schema": None},
        {"name": "a", "input_schema": SCHEMA, "title": 5},
        {"name": "a", "input_schema": SCHEMA, "meta": "m"},
        {"name": "a", "input_schema": SCHEMA, "annotations": {"readOnlyHint": "perhaps"}},
        {"name": "a", "input_schema": SCHEMA, "annotations": Annotations()},
        {"name": "a"},
    ],
    ids=repr,
)
def test_what_is_made_without_a_validator_is_what_the_validator_makes(values: dict[str, Any]) -> None:
    """And what the validator refuses is refused, with its error."""
    expected, made = tool_or_errors(Tool, values), tool_or_errors(functools.partial(make, Tool), values)
    if not isinstance(expected, Tool) or not isinstance(made, Tool):
        assert made == expected
        return
    assert made == expected
    assert list(vars(made)) == list(vars(expected))
    assert made.model_fields_set == expected.model_fields_set
    assert made.model_dump() == expected.model_dump()
    assert type(made.name) is type(expected.name)
    assert made.input_schema is not values["input_schema"]
    assert (made.annotations is HINTS) == (expected.annotations is HINTS)
