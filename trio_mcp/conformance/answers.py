"""Makes the kit's responses, valid and wrong ones, to requests from a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trio_mcp.conformance.members import member_of, object_of
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.versions import MODERN_REVISIONS, at_least

__all__ = ["ROOT", "answer_to", "capabilities_of", "input_responses", "response_to", "round_of", "wrong_answer_to"]

ROOT: Final = "file:///kit"
"""The URI of the kit's only root, a directory that need not exist."""


def capabilities_of(revision: str) -> dict[str, Any]:
    """Return the client capabilities that the kit declares by default in a revision."""
    declared: dict[str, Any] = {"roots": {}, "sampling": {}}
    # In the modern era, a client has no notification for changed roots, and so no capability for it either.
    if revision not in MODERN_REVISIONS:
        declared["roots"] = {"listChanged": True}
    # Elicitation was introduced in revision 2025-06-18, and its modes in 2025-11-25 (`client/elicitation`,
    # Capabilities). If the kit declared them in an earlier revision, a server might rely on something that its revision
    # lacks.
    if at_least(revision, "2025-11-25"):
        declared["elicitation"] = {"form": {}, "url": {}}
    elif at_least(revision, "2025-06-18"):
        declared["elicitation"] = {}
    return declared


def response_to(question: Mapping[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response to a server's request: an error if its method is unknown or its capability undeclared."""
    head = {"jsonrpc": "2.0", "id": question["id"]}
    # A ping needs no capability: whichever side receives it must respond (`basic/utilities/ping`). Any other method
    # begins with the name of the client capability that it needs.
    needed = {"ping": ""}.get(question["method"], question["method"].partition("/")[0])
    answer = answer_to(question) if needed in ("", *capabilities) else None
    # The kit sends an error rather than nothing: a server may wait for this response before it continues with the kit's
    # own request, whose response would then seem to be lost.
    if answer is None:
        return head | {"error": {"code": METHOD_NOT_FOUND, "message": "the client does not support this request"}}
    return head | {"result": answer}


def answer_to(question: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a valid result for a server's request to the client; None if the protocol has no such request."""
    params = object_of(question.get("params"))
    match question.get("method"):
        case "ping":
            return {}
        case "roots/list":
            return {"roots": [{"uri": ROOT, "name": "kit"}]}
        case "sampling/createMessage":
            return {
                "role": "assistant",
                "content": {"type": "text", "text": "An answer of the kit."},
                "model": "kit",
                "stopReason": "endTurn",
            }
        case "elicitation/create":
            # Only a response to a form has content. In URL mode, accepting just means that the person agrees to open
            # the page (`client/elicitation`, URL mode).
            if params.get("mode") == "url":
                return {"action": "accept"}
            # The form is filled in with the simplest valid values.
            fields = object_of(member_of(params, "requestedSchema", "properties"))
            return {"action": "accept", "content": {name: _field(object_of(each)) for name, each in fields.items()}}
    return None


def wrong_answer_to(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result that is invalid for a server's request to the client."""
    if question.get("method") == "elicitation/create":
        return {"action": "perhaps", "content": [None]}
    # This object is invalid both as a list of roots and as a sampling result, because each member has a type that
    # neither allows.
    return {"roots": "none", "role": 7, "content": None}


def input_responses(questions: Mapping[str, Any], how: str) -> dict[str, Any]:
    """Return the kit's responses to the input requests of a server, by key: ``wrong`` ones, or else valid ones."""
    answer = wrong_answer_to if how == "wrong" else answer_to
    return {key: answer(each) for key, each in questions.items() if isinstance(each, Mapping)}


def round_of(result: Mapping[str, Any], how: str) -> dict[str, Any]:
    """Return the parameters that a retry adds to its request: the answers to the questions, and the state."""
    questions = object_of(result.get("inputRequests"))
    more: dict[str, Any] = {}
    if questions and how != "none":
        more["inputResponses"] = input_responses(questions, how)
    if (state := result.get("requestState")) is not None:
        # A client must echo the state exactly as it got it. If `how` is "state", the kit changes the state instead, to
        # see whether the server checks it.
        more["requestState"] = f"{state}x" if how == "state" else state
    return more


def _field(schema: Mapping[str, Any]) -> Any:
    # A default counts as valid, whatever limits the schema sets, because the server itself chose it.
    if "default" in schema:
        return schema["default"]
    if choices := _choices(schema):
        return choices[0]
    match schema.get("type"):
        case "boolean":
            return True
        case "integer" | "number":
            # Zero may be out of bounds. A bound itself is always valid, because forms have no exclusive bounds
            # (`client/elicitation`, Requested Schema).
            least, most = schema.get("minimum"), schema.get("maximum")
            return least if least is not None else min(0, most) if most is not None else 0
        case "array":
            count = max(1, int(schema.get("minItems") or 0))
            return _choices(schema.get("items") or {})[:count]
    # A form may name only these four formats (`client/elicitation`, Requested Schema).
    sample = {
        "email": "kit@example.com",
        "uri": "https://example.com/",
        "date": "2026-01-31",
        "date-time": "2026-01-31T12:00:00Z",
    }
    text = sample.get(str(schema.get("format")), "kit")
    most = schema.get("maxLength")
    return text.ljust(int(schema.get("minLength") or 0), "x")[: most if isinstance(most, int) else None]


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    # Since 2025-11-25, choices may have titles: a single choice then uses `oneOf`, and the items of a multiple choice
    # use `anyOf` (`client/elicitation`, Requested Schema).
    titled = schema.get("oneOf") or schema.get("anyOf")
    return [each.get("const") for each in titled if isinstance(each, Mapping)] if isinstance(titled, list) else []
