"""Rules for tools: their definitions, their arguments, and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeGuard

from trio_mcp.conformance.members import object_of, objects_of
from trio_mcp.conformance.rules.common import (
    asked_about,
    code_of,
    declares,
    is_unknown,
    named,
    pages,
    schema_problem,
)
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, expected, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.schema.validator import DIALECTS
from trio_mcp.types import error_codes

__all__: list[str] = []

LISTING: Final = ("list-all", "list-twice", "next-page")
CALLING: Final = ("call-tool", "calls-at-once", "call-with-progress")


# --- definitions ------------------------------------------------------------------------------------------------------


def _listed(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each listed tool, preceded by the response that lists it."""
    for _, asked in history.requests("tools/list"):
        yield from ((asked.answers[0], tool) for tool in objects_of((asked.result or {}).get("tools")))


def _schemas(history: History) -> Iterator[tuple[Event, str, dict[str, Any]]]:
    """Yield each schema of a listed tool: the response that lists it, a name for use in messages, and the schema."""
    for event, tool in _listed(history):
        for key in ("inputSchema", "outputSchema"):
            if isinstance(tool.get(key), dict):
                yield event, f"the {key} of {tool.get('name')!r:.60}", tool[key]


@stated_rule(moves=LISTING)
@each(_listed)
def tool_input_schema_valid(_: Event, tool: dict[str, Any]) -> Opinion:
    kept = isinstance(tool.get("inputSchema"), dict)
    return None if kept else f"the inputSchema of {tool.get('name')!r:.60} is not an object"


@stated_rule(moves=LISTING)
@each(_schemas)
def schemas_valid(_: Event, what: str, schema: dict[str, Any]) -> Opinion:
    """Check that a schema is valid according to the meta-schema of its dialect."""
    import jsonschema_rs  # `jsonschema_rs` is loaded only if schemas are checked

    dialect = schema.get("$schema", DIALECTS[0])
    # Only 2020-12 must be supported (Schema Dialect). A schema in a dialect that the validator doesn't support may
    # still be valid.
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        return UNDECIDED
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as exc:
        return f"{what} is invalid: {str(exc.message)[:200]}"
    except (ValueError, jsonschema_rs.ReferencingError):
        # A `$ref` that leads out of the schema is not loaded ($ref Resolution), so whether the schema is valid stays
        # open.
        return UNDECIDED
    return None


@stated_rule(moves=LISTING)
@each(_schemas)
def schemas_in_2020_12(_: Event, what: str, schema: dict[str, Any]) -> Opinion:
    dialect = schema.get("$schema", DIALECTS[0])
    # Version 1 of the TypeScript SDK writes draft 7. A schema MAY be in another dialect, but 2020-12 is RECOMMENDED,
    # which is a SHOULD (RFC 2119, section 3): a client need not know any other.
    kept = isinstance(dialect, str) and dialect.removesuffix("#") == DIALECTS[0]
    return None if kept else f"{what} uses the dialect {dialect!r:.80}, not 2020-12"


_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@stated_rule(
    sentence="Build tool names from 1 to 128 ASCII letters, digits, `_`, `-` and `.`.",
    moves=LISTING,
)
@each(_listed)
def tool_name_format(_: Event, tool: dict[str, Any]) -> Opinion:
    name = tool.get("name")
    if not isinstance(name, str):
        return UNDECIDED
    shown = f"{name!r:.140}" if len(name) <= 128 else f"{name[:20]!r}… of {len(name)} characters"
    return None if _NAME.fullmatch(name) else f"the tool name {shown} is empty, too long, or has a forbidden character"


@stated_rule(moves=LISTING)
def tool_names_unique(history: History) -> Iterator[Verdict]:
    for connection in history:
        for chain in pages(connection, "tools/list"):
            names = named(chain[:1], "tools", "name")  # only the first page: `cursors_stable` judges overlapping pages
            twice = sorted({name for name in names if names.count(name) > 1})
            yield judged(not twice, chain[0].answers[0], f"more than one tool is called {', '.join(twice[:3])}")


@stated_rule(moves=("list-twice", "list-all", "list-everywhere"))
def list_order_stable(history: History) -> Iterator[Verdict]:
    last: dict[Any, list[str]] = {}
    for _, asked, answer in asked_about(history, "tools/list"):
        names = named([asked], "tools", "name")
        cursor = asked.params.get("cursor")
        before = last.get(cursor)
        # A list that has lost or gained a tool has no old order to keep.
        if before is not None and sorted(before) == sorted(names):
            yield judged(before == names, answer, "the same tools were listed in a different order before")
        last[cursor] = names


_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The form of an HTTP field name (RFC 9110, section 5.6.2)."""


@stated_rule(sentence="Annotate arguments with `x-mcp-header` as the rules for it say.", moves=LISTING)
@each(_listed)
def header_annotation_valid(_: Event, tool: dict[str, Any]) -> Opinion:
    found = list(_annotations(tool.get("inputSchema"), True))
    if not found:
        return UNDECIDED
    problem = _annotation_problem(found)
    return None if problem is None else f"the tool {tool.get('name')!r:.60}: {problem}"


def _annotations(schema: Any, reachable: bool) -> Iterator[tuple[Any, Any, bool]]:
    """Yield each ``x-mcp-header`` in a schema, the type it annotates, and whether a chain of properties leads to it."""
    for key, inner in object_of(schema).items():
        # Below any keyword but `properties`, an annotation doesn't belong to a single argument, so the specification
        # makes it invalid (Schema Extension).
        chained = reachable and key == "properties"
        for each_schema in objects_of(_subschemas(key, inner)):
            if "x-mcp-header" in each_schema:
                yield each_schema["x-mcp-header"], each_schema.get("type"), chained
            yield from _annotations(each_schema, chained)


def _subschemas(key: str, inner: Any) -> Any:
    """Return the schemas in the value of a keyword, as a list."""
    if key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
        return [inner]
    if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
        return list(object_of(inner).values())
    return inner if key in ("anyOf", "oneOf", "allOf", "prefixItems") else []


def _annotation_problem(found: list[tuple[Any, Any, bool]]) -> str | None:
    names = [name.lower() for name, _, _ in found if isinstance(name, str)]
    for name, kind, reachable in found:
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            return f"the x-mcp-header {name!r:.60} is not a valid header name"
        # Header names are case-insensitive, so `Region` and `region` would be one header for two arguments.
        if names.count(name.lower()) > 1:
            return f"the x-mcp-header {name!r:.60} is used more than once"
        # A schema without a type, or with several, may say elsewhere what the argument can be.
        if isinstance(kind, str) and kind not in ("integer", "string", "boolean"):
            return (
                f"the x-mcp-header {name!r:.60} is on an argument of the type {kind!r:.60}, which is not integer, "
                "string or boolean"
            )
        if not reachable:
            return f"the x-mcp-header {name!r:.60} is on a schema that no chain of properties leads to"
    return None


# --- calls ------------------------------------------------------------------------------------------------------------


def _called(history: History) -> Iterator[tuple[Event, RecordedRequest, dict[str, Any]]]:
    """Yield each call of a tool with the same definition in all lists: response, request and definition."""
    definitions: dict[str, list[dict[str, Any]]] = {}
    for _, tool in _listed(history):
        definitions.setdefault(str(tool.get("name")), []).append(tool)
    for _, asked, answer in asked_about(history, "tools/call"):
        found = definitions.get(str(asked.params.get("name")), [])
        # A tool may change during a run, and then it isn't known which definition applied to a call. If a tool is
        # called as a task, the first response isn't the tool's result.
        if found and all(each == found[0] for each in found) and "task" not in asked.params:
            yield answer, asked, found[0]


def _called_wrongly(history: History) -> Iterator[tuple[Event, RecordedRequest, dict[str, Any], str]]:
    """Yield the calls with arguments that do not conform to the tool's input schema, each with the problem."""
    for answer, asked, tool in _called(history):
        problem = schema_problem(history, tool.get("inputSchema"), asked.params.get("arguments", {}))
        if problem is not None:
            yield answer, asked, tool, problem


def _is_final(result: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    return result is not None and result.get("resultType", "complete") == "complete"


@stated_rule(
    sentence="Check the arguments of a tool call: don't serve what the tool's input schema forbids.",
    moves=("call-near-valid",),
)
@each(_called_wrongly)
def tool_arguments_validated(_: Event, asked: RecordedRequest, tool: dict[str, Any], problem: str) -> Opinion:
    if _is_conversion(tool["inputSchema"], asked.params.get("arguments", {})):
        return UNDECIDED
    # A result with `isError` and a JSON-RPC error are both refusals. A request for input doesn't count, because a
    # server may ask for input before it looks at the arguments.
    served = _is_final(asked.result) and asked.result.get("isError") is not True
    return f"the tool {asked.params['name']} accepted invalid arguments: {problem}" if served else None


def _is_conversion(schema: dict[str, Any], arguments: Any) -> bool:
    """Return whether a server that checks arguments may still have accepted these, by converting or dropping values.

    The specification requires a check. It does not forbid converting "5" to 5, or dropping an unknown member.
    """
    import jsonschema_rs  # `jsonschema_rs` is loaded only if schemas are checked

    # The errors AnyOf and OneOf say only that the value fits no branch. If the value is neither an object nor an array,
    # its type is mostly the reason.
    kinds = ("Type", "AnyOf", "OneOf")
    unknown = ("AdditionalProperties", "UnevaluatedProperties")
    errors = jsonschema_rs.validator_for(schema).iter_errors(arguments)
    found = [(type(each.kind).__name__.removeprefix("ValidationErrorKind_"), each.instance) for each in errors]
    return all(
        kind in unknown or (kind in kinds and not isinstance(instance, (dict, list))) for kind, instance in found
    )


@stated_rule(section="server/tools#error-handling", moves=("call-near-valid",))
@each(_called_wrongly)
def tool_errors_in_result(_: Event, asked: RecordedRequest, _tool: dict[str, Any], _problem: str) -> Opinion:
    # In a retry with a state or answers, -32602 may be about the state or the answers.
    if "requestState" in asked.params or "inputResponses" in asked.params:
        return UNDECIDED
    kept = code_of(asked) != error_codes.INVALID_PARAMS
    return None if kept else "invalid arguments were answered with -32602, which models don't see"


def _called_in_vain(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield the calls of tools that are not in the list of tools, provided that the whole list was read."""
    for answer, connection, asked in about("tools/call")(history):
        if is_unknown(connection, "tools/list", asked.params.get("name")):
            yield answer, connection, asked


@expected(
    "Answer a call of an unknown tool with an error, not with a result.",
    "The text lists unknown tools under protocol errors, without a keyword in any revision; a client can then tell a "
    "tool that is gone from one that failed.",
    section="server/tools#error-handling",
    moves=("call-unknown-tool",),
)
@each(_called_in_vain)
def unknown_tool_refused(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    # Most peers respond with `isError`, among them all official SDKs except version 2 for TypeScript.
    problem = f"there is no tool {asked.params.get('name')!r:.60}, but the call has a result"
    return None if asked.error is not None else problem


@expected(
    "Answer -32602 to a call of an unknown tool.",
    "The text gives this code in an example, without a keyword in any revision.",
    section="server/tools#error-handling",
    moves=("call-unknown-tool",),
)
@each(_called_in_vain)
def unknown_tool_code(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # A server without tools may rightly respond with -32601, because it doesn't know the method.
    if asked.error is None or not declares(connection.server_capabilities, "tools"):
        return UNDECIDED
    code = code_of(asked)
    return None if code == error_codes.INVALID_PARAMS else f"an unknown tool was answered with {code}, not -32602"


@stated_rule(moves=("call-in-other-case",))
@each(_called_in_vain)
def tool_name_case_sensitive(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    name = str(asked.params.get("name"))
    # A server may have a tool in each spelling, but then the list would contain the called tool as well.
    similar = next((each for each in connection.tools if each.lower() == name.lower()), None)
    if similar is None:
        return UNDECIDED
    served = asked.result is not None and asked.result.get("isError") is not True
    return f"the tool name {name} was taken for {similar}" if served else None


# --- results ----------------------------------------------------------------------------------------------------------


@stated_rule(moves=CALLING)
def structured_content_conforms(history: History) -> Iterator[Verdict]:
    for answer, asked, tool in _called(history):
        result, schema = asked.result, tool.get("outputSchema")
        # The schema describes the result of a call that succeeds; it doesn't say what an error looks like.
        if not isinstance(schema, dict) or not _is_final(result) or result.get("isError") is True:
            continue
        if "structuredContent" not in result:
            yield broken(answer, f"{asked.params['name']} has an output schema, but the result lacks structuredContent")
        else:
            problem = schema_problem(history, schema, result["structuredContent"])
            yield judged(problem is None, answer, f"the structuredContent of {asked.params['name']}: {problem}")


@stated_rule(moves=CALLING)
@each(about("tools/call"))
def structured_content_as_text(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    result = asked.result
    if not _is_final(result) or "structuredContent" not in result:
        return UNDECIDED
    texts = [each.get("text") for each in objects_of(result.get("content"))]
    kept = any(isinstance(text, str) and _repeats(text, result["structuredContent"]) for text in texts)
    return None if kept else "no text block contains the structured content as JSON; add one beside the text for people"


def _repeats(text: str, structured: Any) -> bool:
    """Return whether a text gives an older client all of the structured content."""
    if _holds(text, structured):
        return True
    # Up to 2025-11-25, structured content must be an object, so any other value is wrapped in an object. FastMCP, the
    # Python SDK and our own server name the only member of that object `result`, and repeat just the value as text, so
    # nothing is lost.
    if isinstance(structured, dict) and [*structured] == ["result"]:
        value = structured["result"]
        return text == value if isinstance(value, str) else _holds(text, value)
    # From 2026-07-28 on, the structured content may itself be a string.
    return isinstance(structured, str) and text == structured


def _holds(text: str, value: Any) -> bool:
    # The two are compared as JSON, since spaces and the order of members are free. The text is the peer's, and may be
    # nested too deeply to parse.
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


@stated_rule(moves=CALLING)
@each(about("tools/call"))
def embedded_resource_capability(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    kinds = [each.get("type") for each in objects_of((asked.result or {}).get("content"))]
    if not kinds:
        return UNDECIDED
    kept = "resource" not in kinds or declares(connection.server_capabilities, "resources")
    return None if kept else "a tool result embeds a resource, but the server does not declare resources"
