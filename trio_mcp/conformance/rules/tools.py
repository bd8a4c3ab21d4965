"""Rules for tools: their definitions, their arguments, and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

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
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.schema.validator import DIALECTS
from trio_mcp.types import error_codes

__all__: list[str] = []

LISTING: Final = ("list-all", "list-twice", "next-page")
CALLING: Final = ("call-tool", "calls-at-once", "call-with-progress")


# --- definitions ------------------------------------------------------------------------------------------------------


def _listed(history: History) -> Iterator[tuple[Connection, Event, dict[str, Any]]]:
    for connection, asked in history.requests("tools/list"):
        items = (asked.result or {}).get("tools")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                yield connection, asked.answers[0], item


@stated_rule(since="2025-11-25", moves=LISTING)
def tool_input_schema_valid(history: History) -> Iterator[Verdict]:
    for _, event, tool in _listed(history):
        schema = tool.get("inputSchema")
        kept = isinstance(schema, dict)
        yield judged(kept, event, f"the inputSchema of {tool.get('name')!r:.60} is not an object")


@stated_rule(since="2025-11-25", moves=LISTING)
def schemas_valid(history: History) -> Iterator[Verdict]:
    for _, event, tool in _listed(history):
        for key in ("inputSchema", "outputSchema"):
            schema = tool.get(key)
            if isinstance(schema, dict) and (problem := _schema_fault(schema)) != "unknown":
                yield judged(not problem, event, f"the {key} of {tool.get('name')!r:.60} is invalid: {problem}")


def _schema_fault(schema: dict[str, Any]) -> str:
    """Say what is wrong with a schema by the schema of its dialect; ``unknown`` for a dialect that is not known."""
    import jsonschema_rs  # loaded only where schemas are checked

    dialect = schema.get("$schema", DIALECTS[0])
    # Only 2020-12 must be supported (Schema Dialect); a schema in a dialect that isn't known here may still be valid.
    if not isinstance(dialect, str) or dialect.removesuffix("#") not in DIALECTS:
        return "unknown"
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as exc:
        return str(exc.message)[:200]
    except (ValueError, jsonschema_rs.ReferencingError):
        # A `$ref` that leads out of the schema is not loaded ($ref Resolution), so what it means stays open.
        return "unknown"
    return ""


@stated_rule(since="2025-11-25", moves=LISTING)
def schemas_in_2020_12(history: History) -> Iterator[Verdict]:
    for _, event, tool in _listed(history):
        for key in ("inputSchema", "outputSchema"):
            schema = tool.get(key)
            if isinstance(schema, dict):
                dialect = schema.get("$schema", DIALECTS[0])
                # Version 1 of the TypeScript SDK writes draft 7, which is allowed: 2020-12 is only RECOMMENDED, hence a
                # SHOULD.
                kept = isinstance(dialect, str) and dialect.removesuffix("#") == DIALECTS[0]
                yield judged(kept, event, f"the {key} of {tool.get('name')!r:.60} is in {dialect!r:.80}")


_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@stated_rule(
    since="2025-11-25",
    sentence="Build tool names from 1 to 128 ASCII letters, digits, `_`, `-` and `.`.",
    moves=LISTING,
)
def tool_name_format(history: History) -> Iterator[Verdict]:
    for _, event, tool in _listed(history):
        name = tool.get("name")
        if isinstance(name, str):
            shown = f"{name!r:.140}" if len(name) <= 128 else f"{name[:20]!r}… of {len(name)} characters"
            yield judged(_NAME.fullmatch(name) is not None, event, f"the tool name {shown} is not of that form")


@stated_rule(since="2025-11-25", moves=LISTING)
def tool_names_unique(history: History) -> Iterator[Verdict]:
    for connection in history:
        for chain in pages(connection, "tools/list"):
            for page in chain[:1]:  # an overlap of pages is another fault
                names = named([page], "tools", "name")
                twice = sorted({name for name in names if names.count(name) > 1})
                yield judged(not twice, page.answers[0], f"two tools are called {', '.join(twice[:3])}")


@stated_rule(moves=("list-twice", "list-all", "list-everywhere"))
def list_order_stable(history: History) -> Iterator[Verdict]:
    last: dict[Any, list[str]] = {}
    for _, asked, answer in asked_about(history, "tools/list"):
        names = named([asked], "tools", "name")
        cursor = asked.params.get("cursor")
        before = last.get(cursor)
        # A list that has lost or gained a tool has no old order to keep.
        if before is not None and sorted(before) == sorted(names):
            yield judged(before == names, answer, "the same tools came in another order before")
        last[cursor] = names


_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A field name (RFC 9110, section 5.6.2)."""


@stated_rule(sentence="Annotate arguments with `x-mcp-header` as the rules for it say.", moves=LISTING)
def header_annotation_valid(history: History) -> Iterator[Verdict]:
    for _, event, tool in _listed(history):
        schema = tool.get("inputSchema")
        if isinstance(schema, dict):
            found = list(_annotations(schema, True))
            if found:
                problem = _annotation_problem(found)
                yield judged(problem is None, event, f"the tool {tool.get('name')!r:.60}: {problem}")


def _annotations(schema: Any, reachable: bool) -> Iterator[tuple[Any, Any, bool]]:
    """Yield each annotation, the type it is on, and whether a chain of properties leads to it from the root."""
    if not isinstance(schema, dict):
        return
    for key, inner in schema.items():
        if key == "properties" and isinstance(inner, dict):
            for each in inner.values():
                if isinstance(each, dict) and "x-mcp-header" in each:
                    yield each["x-mcp-header"], each.get("type"), reachable
                yield from _annotations(each, reachable)
        # Behind these keywords an annotation means no single argument, so Schema Extension makes it invalid.
        elif key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
            yield from _beside(inner)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(inner, list):
            for each in inner:
                yield from _beside(each)
        elif key in ("$defs", "definitions", "patternProperties", "dependentSchemas") and isinstance(inner, dict):
            for each in inner.values():
                yield from _beside(each)


def _beside(schema: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Yield the annotations of a subschema that no chain of properties leads to."""
    if isinstance(schema, dict):
        if "x-mcp-header" in schema:
            yield schema["x-mcp-header"], schema.get("type"), False
        yield from _annotations(schema, False)


def _annotation_problem(found: list[tuple[Any, Any, bool]]) -> str | None:
    names = [name.lower() for name, _, _ in found if isinstance(name, str)]
    for name, kind, reachable in found:
        if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
            return f"the x-mcp-header {name!r:.60} is not the name of a header"
        # Header names have no case, so `Region` and `region` would be one header for two arguments.
        if names.count(name.lower()) > 1:
            return f"the x-mcp-header {name!r:.60} is used more than once"
        # Without a type, or with several, what it may be is told elsewhere.
        if isinstance(kind, str) and kind not in ("integer", "string", "boolean"):
            return f"the x-mcp-header {name!r:.60} is on the type {kind!r:.60}"
        if not reachable:
            return f"the x-mcp-header {name!r:.60} is on a schema that no chain of properties leads to"
    return None


# --- calls ------------------------------------------------------------------------------------------------------------


def _called(history: History) -> Iterator[tuple[RecordedRequest, Event, dict[str, Any]]]:
    """Yield the answered calls of tools that are listed, where all lists agree on their definition."""
    definitions: dict[str, list[dict[str, Any]]] = {}
    for _, _, tool in _listed(history):
        definitions.setdefault(str(tool.get("name")), []).append(tool)
    for _, asked, answer in asked_about(history, "tools/call"):
        found = definitions.get(str(asked.params.get("name")), [])
        # A tool may change during a run, and which definition a call met isn't known. As a task, the first answer isn't
        # the tool's result.
        if found and all(each == found[0] for each in found) and "task" not in asked.params:
            yield asked, answer, found[0]


def _is_final(result: dict[str, Any] | None) -> bool:
    return result is not None and result.get("resultType", "complete") == "complete"


@stated_rule(
    sentence="Check the arguments of a tool call: don't serve what the tool's input schema forbids.",
    moves=("call-near-valid",),
)
def tool_arguments_validated(history: History) -> Iterator[Verdict]:
    for asked, answer, tool in _called(history):
        arguments = asked.params.get("arguments", {})
        problem = schema_problem(history, tool.get("inputSchema"), arguments)
        if problem is None or _is_conversion(tool["inputSchema"], arguments):
            continue
        result = asked.result
        # `isError` and an error are refusals, and a server may ask for input before it looks at the arguments.
        served = _is_final(result) and result is not None and result.get("isError") is not True
        yield judged(not served, answer, f"{asked.params['name']} was served with invalid arguments: {problem}")


def _is_conversion(schema: dict[str, Any], arguments: Any) -> bool:
    """Return whether arguments may have been checked and converted: a text for a number, and the like.

    The text asks for a check. It does not forbid to take "5" for 5, or to drop a member that is unknown.
    """
    import jsonschema_rs  # loaded only where schemas are checked

    # AnyOf and OneOf say only that no branch fits, which for a plain value is mostly a matter of its type.
    kinds = ("Type", "AnyOf", "OneOf")
    unknown = ("AdditionalProperties", "UnevaluatedProperties")
    errors = jsonschema_rs.validator_for(schema).iter_errors(arguments)
    found = [(type(each.kind).__name__.removeprefix("ValidationErrorKind_"), each.instance) for each in errors]
    return all(
        kind in unknown or (kind in kinds and not isinstance(instance, (dict, list))) for kind, instance in found
    )


@stated_rule(since="2025-11-25", section="server/tools#error-handling", moves=("call-near-valid",))
def tool_errors_in_result(history: History) -> Iterator[Verdict]:
    for asked, answer, tool in _called(history):
        # In a retry -32602 may be about the state or the answers.
        if "requestState" in asked.params or "inputResponses" in asked.params:
            continue
        if schema_problem(history, tool.get("inputSchema"), asked.params.get("arguments", {})) is not None:
            kept = code_of(asked) != error_codes.INVALID_PARAMS
            yield judged(kept, answer, "invalid arguments were answered with -32602, which models don't see")


@rule(
    "SHOULD",
    "server",
    "server/tools#error-handling",
    "Answer a call of an unknown tool with an error, not with a result.",
    moves=("call-unknown-tool",),
)
def unknown_tool_refused(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call"):
        name = asked.params.get("name")
        if is_unknown(connection, "tools/list", name):
            # Most peers answer with `isError`, among them all official SDKs but version 2 for TypeScript. The text
            # lists unknown tools under protocol errors, yet has no SHOULD there, so this is a matter of reading.
            yield judged(asked.error is not None, answer, f"there is no tool {name!r:.60}, but the call has a result")


@rule(
    "SHOULD",
    "server",
    "server/tools#error-handling",
    "Answer -32602 to a call of an unknown tool.",
    moves=("call-unknown-tool",),
)
def unknown_tool_code(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call"):
        # A server without tools may rightly say -32601: to it the method is unknown.
        if asked.error is None or not declares(connection.server_capabilities, "tools"):
            continue
        if is_unknown(connection, "tools/list", asked.params.get("name")):
            kept = code_of(asked) == error_codes.INVALID_PARAMS
            yield judged(kept, answer, f"an unknown tool was answered with {code_of(asked)}")


@stated_rule(since="2025-11-25", moves=("call-in-other-case",))
def tool_name_case_sensitive(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call"):
        name = str(asked.params.get("name"))
        similar = [each for each in connection.tools if each.lower() == name.lower()]
        # A server may have tools in both spellings, so the name must be missing from a list that was read to its end.
        if similar and is_unknown(connection, "tools/list", name):
            result = asked.result
            served = result is not None and result.get("isError") is not True
            yield judged(not served, answer, f"{name} was taken for {similar[0]}")


# --- results ----------------------------------------------------------------------------------------------------------


@stated_rule(since="2025-06-18", moves=CALLING)
def structured_content_conforms(history: History) -> Iterator[Verdict]:
    for asked, answer, tool in _called(history):
        result, schema = asked.result, tool.get("outputSchema")
        # The schema describes what a tool returns if all goes well; what an error looks like it doesn't say.
        if not isinstance(schema, dict) or result is None or not _is_final(result) or result.get("isError") is True:
            continue
        if "structuredContent" not in result:
            yield broken(answer, f"{asked.params['name']} has an output schema, but the result no structuredContent")
            continue
        problem = schema_problem(history, schema, result["structuredContent"])
        yield judged(problem is None, answer, f"the structuredContent of {asked.params['name']}: {problem}")


@stated_rule(since="2025-06-18", moves=CALLING)
def structured_content_as_text(history: History) -> Iterator[Verdict]:
    for _, asked, answer in asked_about(history, "tools/call"):
        result = asked.result
        if result is None or "structuredContent" not in result or not _is_final(result):
            continue
        blocks = result.get("content")
        texts = [each.get("text") for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
        structured = result["structuredContent"]
        kept = any(isinstance(text, str) and _repeats(text, structured) for text in texts)
        problem = "no text block has the structured content as JSON: add one, beside what people are to read"
        yield judged(kept, answer, problem)


def _repeats(text: str, structured: Any) -> bool:
    """Return whether an older client learns all from a text that is in structured content."""
    if _holds(text, structured):
        return True
    # A value that is not an object needs a wrapper until 2025-11-25. FastMCP, the Python SDK and our own server name
    # its only member so, and repeat the value without it: nothing is lost.
    if isinstance(structured, dict) and [*structured] == ["result"]:
        value = structured["result"]
        return text == value if isinstance(value, str) else _holds(text, value)
    # A text may be structured content itself from 2026-07-28 on.
    return isinstance(structured, str) and text == structured


def _holds(text: str, value: Any) -> bool:
    # Compared as JSON, since spaces and the order of members are free. The text is the peer's, and may be nested too
    # deeply to parse.
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


@stated_rule(since="2025-06-18", moves=CALLING)
def embedded_resource_capability(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call"):
        blocks = (asked.result or {}).get("content")
        kinds = [each.get("type") for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
        if "resource" in kinds:
            kept = declares(connection.server_capabilities, "resources")
            yield judged(kept, answer, "a tool embeds a resource, but resources is not declared")
        elif kinds:
            yield held(answer)
