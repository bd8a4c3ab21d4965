"""Rules for prompts: the content of their messages, and the errors for faulty requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, member_of
from trio_mcp.conformance.rules.common import code_of, declares, is_unknown
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, answered, each
from trio_mcp.conformance.rules.resources import blocks_of, is_base64
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes

__all__: list[str] = []

# A MIME type: a type and a subtype (RFC 6838, section 4.2), with or without parameters.
_MIME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*(\s*;.*)?")
# The specification requires only that the URI of an embedded resource be "valid". So this check is looser than the
# check of listed resources, whose URIs must conform to RFC 3986 (Custom URI Schemes).
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]*")


@stated_rule(
    sentence="Send images and audio as Base64 with a MIME type; give embedded resources a URI, a MIME type, and "
    "text or Base64.",
    moves=("get-prompt",),
)
def prompt_content_valid(history: History) -> Iterator[Verdict]:
    for answer, _, asked in answered("prompts/get")(history):
        given = asked.params.get("arguments")
        # Arguments are compared by their repr, because an argument may be a list or an object, which no set can
        # contain.
        echoes = set(map(repr, given.values())) if isinstance(given, dict) else set()
        for block in blocks_of(asked.result, "messages"):
            resource = block.get("resource")
            parts = [*block.values(), *(resource.values() if isinstance(resource, dict) else ())]
            # A content block that repeats a value from the client is not judged: such values may come back unchanged.
            if echoes.isdisjoint(map(repr, parts)):
                yield Verdict(answer, _problem(block))


def _problem(block: dict[str, Any]) -> str | None:
    kind = block.get("type")
    if kind in ("image", "audio"):
        if not is_base64(block.get("data")):
            return f"the data of the {kind} is not Base64"
        mime = block.get("mimeType")
        return None if _is_mime(mime) else f"the MIME type of the {kind} is not valid: {mime!r:.60}"
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, dict):
        uri, mime = resource.get("uri"), resource.get("mimeType")
        if not isinstance(uri, str) or _SCHEME.fullmatch(uri) is None:
            return f"the URI of the resource is not valid: {uri!r:.60}"
        if not _is_mime(mime):
            return f"the MIME type of the resource is not valid: {mime!r:.60}"
        if not isinstance(resource.get("text"), str) and not is_base64(resource.get("blob")):
            return "the resource has neither text nor Base64 data"
    return None


def _is_mime(value: Any) -> bool:
    return isinstance(value, str) and _MIME.fullmatch(value) is not None


@stated_rule(
    sentence="Answer -32602 for a prompt that isn't there, or without an argument that it requires.",
    moves=("get-unknown-prompt", "prompt-without-arguments"),
)
@each(about("prompts/get"))
def prompt_errors(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    name = asked.params.get("name")
    given = asked.params.get("arguments")
    missing = _required(connection.listed["prompts/list"].get(str(name))) - set(given or ())
    unknown = is_unknown(connection, "prompts/list", name)
    # A server without prompts may rightly respond with -32601.
    if not declares(connection.server_capabilities, "prompts") or not (unknown or missing):
        return UNDECIDED
    code = code_of(asked)
    # The Python SDK sends 0 instead, and FastMCP sends -32603, which tells a client that the server has failed, not
    # that the request was wrong.
    if code == error_codes.INVALID_PARAMS:
        return None
    lacks = f"the request for the prompt {name!r:.60} lacks {', '.join(sorted(missing))}"
    what = f"there is no prompt {name!r:.60}" if unknown else lacks
    shown = "a result" if asked.error is None else f"{code}"
    return f"{what}, but the server responded with {shown}, not -32602"


def _required(prompt: dict[str, Any] | None) -> set[str]:
    required = (
        member_of(each, "name") for each in items_of(prompt, "arguments") if member_of(each, "required") is True
    )
    return {name for name in required if isinstance(name, str)}
