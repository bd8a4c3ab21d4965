"""Rules for replies: how a client responds to a server's requests."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import jsonschema_rs
from pydantic import ValidationError

from trio_mcp.conformance.members import objects_of
from trio_mcp.conformance.rules.clients.declared import QuestionReply, replies
from trio_mcp.conformance.rules.clients.shared import legacy
from trio_mcp.conformance.rules.common import code_of, messages_of
from trio_mcp.conformance.rules.history import History, RecordedRequest, id_key, is_response
from trio_mcp.conformance.rules.model import Verdict, broken, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.questions import NEEDED
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.input_required import input_response_from_wire
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS


def _asked(history: History) -> Iterator[tuple[Event, RecordedRequest]]:
    """Yield each request of a server in the legacy era, with its first response or the mark that no response came."""
    for connection in legacy(history):
        for asked in connection.questions:
            event = asked.answers[0] if asked.answers else asked.overdue
            if event is not None:
                yield event, asked


@stated_rule(
    who="client",
    revisions=LEGACY_REVISIONS,
    section="basic#responses",
    sentence="A client answers each request of the server, once, with its id.",
)
@each(_asked)
def questions_answered(_: Event, asked: RecordedRequest) -> Opinion:
    """Require exactly one response to each request of the server that was not cancelled."""
    # Whether a cancelled request gets a response is not judged: the response may have been on its way, or left out, and
    # both are right.
    if asked.cancelled is not None:
        return UNDECIDED
    if asked.answers:
        return (
            broken(asked.answers[1], f"the request {asked.id!r} was answered twice") if len(asked.answers) > 1 else None
        )
    # For these methods the client asks a person or a model, who may take as long as they like.
    patient = asked.method in ("elicitation/create", "sampling/createMessage")
    return UNDECIDED if patient else f"{asked.method} was not answered"


@stated_rule(who="client", section="basic#responses", sentence="A client answers nothing that it was not asked.")
def answers_are_asked_for(history: History) -> Iterator[Verdict]:
    """Check that each response from the client has the id of a request from the server."""
    for connection in history:
        ids = {id_key(asked.id) for asked in connection.questions}
        for event in messages_of(connection, "client"):
            # A response without an id says that a message could not be read, so it belongs to no request.
            if is_response(event.message) and is_request_id(answered := event.message.get("id")):
                yield judged(id_key(answered) in ids, event, f"no request has the id {answered!r}")


@stated_rule(who="client", sentence="A client answers a ping with an empty result.")
@each(_asked)
def client_ping_answered(_: Event, asked: RecordedRequest) -> Opinion:
    """Require a result for each ping of the server."""
    if asked.method != "ping":
        return UNDECIDED
    # This rule requires only a result; its members, such as `_meta`, are judged by other rules.
    return None if asked.result is not None else "a ping was not answered with a result"


@rule(
    "SHOULD",
    "client",
    "basic#error-responses",
    "A client refuses a request whose method it does not know with -32601.",
    older="client/roots#error-handling",
    revisions=LEGACY_REVISIONS,
)
@each(_asked)
def client_method_not_found(_: Event, asked: RecordedRequest) -> Opinion:
    """Require the error -32601 in the response to a request whose method no revision defines."""
    if not asked.answers or any(method_spec(revision, asked.method) is not None for revision in REVISIONS):
        return UNDECIDED
    # The rule is only a SHOULD, because MCP requires -32601 only for roots, though JSON-RPC requires it for every
    # method. Version 1 of the Python SDK sends -32602.
    code = code_of(asked)
    return None if code == METHOD_NOT_FOUND else f"the error code for {asked.method} is {code}, not -32601"


@rule(
    "MUST",
    "client",
    "client/elicitation",
    "What a client answers to a question has the form that the schema gives it.",
)
@each(replies(*NEEDED, withdrawn=True))
def client_results_valid(_: Event, reply: QuestionReply) -> Opinion:
    """Check that results for sampling, elicitation and roots are valid, in both eras."""
    if reply.result is None:
        return UNDECIDED
    try:
        input_response_from_wire(reply.method, reply.result)
    except (ValidationError, KeyError) as exc:
        return f"the result for {reply.method} is invalid: {str(exc).splitlines()[0]}"
    return None


@stated_rule()
@each(replies("elicitation/create", withdrawn=True))
def elicitation_answer_conforms(_: Event, reply: QuestionReply) -> Opinion:
    """Check that the content of an accepted form conforms to the requested schema."""
    schema = reply.params.get("requestedSchema")
    if reply.result is None or reply.result.get("action") != "accept" or not isinstance(schema, dict):
        return UNDECIDED
    # A form in which nothing is required may be accepted without content.
    kept = jsonschema_rs.is_valid(schema, reply.result.get("content", {}))
    return None if kept else "the content does not conform to the requested schema"


@stated_rule(sentence="The URI of a root begins with file://, and does not climb.")
@each(replies("roots/list", withdrawn=True))
def root_uri_is_file(_: Event, reply: QuestionReply) -> Opinion:
    """Check that the roots in each list have ``file://`` URIs without ``..`` in their paths."""
    roots = (reply.result or {}).get("roots")
    if not isinstance(roots, list):
        return UNDECIDED
    uris = [str(root.get("uri")) for root in objects_of(roots)]
    # Percent-encoded dots count, too: they climb once a server has decoded the path.
    wrong = [uri for uri in uris if not uri.startswith("file://") or ".." in unquote(uri).split("/")]
    return f"the URI of a root is invalid: {wrong[0]!r}" if wrong else None
