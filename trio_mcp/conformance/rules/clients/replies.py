"""Replies: what a client answers when a server asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs
from pydantic import ValidationError

from trio_mcp.conformance.rules.clients.shared import legacy, parts, retries
from trio_mcp.conformance.rules.history import History, RecordedRequest, is_response
from trio_mcp.conformance.rules.model import Verdict, broken, judged, rule
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types.error_codes import METHOD_NOT_FOUND
from trio_mcp.types.input_required import input_response_from_wire
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS


def _withdrawn(asked: RecordedRequest) -> bool:
    # The reply may have been on its way, or left out: both are right.
    return asked.cancelled is not None


@stated_rule(
    who="client",
    revisions=LEGACY_REVISIONS,
    section="basic#responses",
    sentence="A client answers each request of the server, once, with its id.",
)
def questions_answered(history: History) -> Iterator[Verdict]:
    """Judge each request of the server that was not cancelled."""
    for connection in legacy(history):
        for asked in connection.questions:
            if _withdrawn(asked):
                continue
            if len(asked.answers) > 1:
                yield broken(asked.answers[1], f"{asked.id!r} is answered a second time")
            elif asked.answers:
                yield Verdict(asked.answers[0])
            # A person, or a model, may take as long as they like.
            elif asked.overdue is not None and asked.method not in ("elicitation/create", "sampling/createMessage"):
                yield broken(asked.overdue, f"{asked.method} is not answered")


@stated_rule(who="client", section="basic#responses", sentence="A client answers nothing that it was not asked.")
def answers_are_asked_for(history: History) -> Iterator[Verdict]:
    """Judge each response of the client by its id."""
    for connection in history:
        ids = {(type(asked.id), asked.id) for asked in connection.questions}
        for event, message in parts(connection):
            # A response without an id says that something could not be read.
            if is_response(message) and is_request_id(answered := message.get("id")):
                yield judged((type(answered), answered) in ids, event, f"nothing with the id {answered!r} was asked")


@stated_rule(who="client", sentence="A client answers a ping with an empty result.")
def client_ping_answered(history: History) -> Iterator[Verdict]:
    """Judge each ping of the server that was answered, or overdue."""
    for connection in legacy(history):
        for asked in connection.questions:
            if asked.method == "ping" and (asked.answers or asked.overdue is not None):
                event = asked.answers[0] if asked.answers else asked.overdue
                assert event is not None
                # Members of the result, such as `_meta`, are for the rules of shape; here it is that there is one.
                yield judged(asked.result is not None, event, "a ping has no result")


@rule(
    "SHOULD",
    "client",
    "basic#error-responses",
    "A client refuses a request whose method it does not know with -32601.",
    older="client/roots#error-handling",
    revisions=LEGACY_REVISIONS,
)
def client_method_not_found(history: History) -> Iterator[Verdict]:
    """Judge the responses to methods that no revision has."""
    for connection in legacy(history):
        for asked in connection.questions:
            if asked.answers and all(method_spec(revision, asked.method) is None for revision in REVISIONS):
                # Version 1 of the Python SDK says -32602. The text has -32601 for roots alone, JSON-RPC for every
                # method, hence a SHOULD.
                code = asked.error.get("code") if asked.error else None
                yield judged(
                    code == METHOD_NOT_FOUND, asked.answers[0], f"the response to {asked.method} has code {code}"
                )


@rule(
    "MUST",
    "client",
    "client/elicitation",
    "What a client answers to a question has the form that the schema gives it.",
)
def client_results_valid(history: History) -> Iterator[Verdict]:
    """Judge the results for sampling, elicitation and roots, in both eras."""
    for event, method, _, result in _given(history):
        try:
            input_response_from_wire(method, result)
        except (ValidationError, KeyError) as exc:
            yield broken(event, f"the result for {method} is invalid: {str(exc).splitlines()[0]}")
        else:
            yield Verdict(event)


@stated_rule()
def elicitation_answer_conforms(history: History) -> Iterator[Verdict]:
    """Judge accepted forms."""
    for event, method, params, result in _given(history):
        schema = params.get("requestedSchema")
        if method == "elicitation/create" and result.get("action") == "accept" and isinstance(schema, dict):
            # A form in which nothing is required may be accepted without content.
            kept = jsonschema_rs.is_valid(schema, result.get("content", {}))
            yield judged(kept, event, "the content does not fit the form")


@stated_rule(sentence="The URI of a root begins with file://, and does not climb.")
def root_uri_is_file(history: History) -> Iterator[Verdict]:
    """Judge each list of roots."""
    for event, method, _, result in _given(history):
        roots = result.get("roots")
        if method == "roots/list" and isinstance(roots, list):
            uris = [str(root.get("uri")) for root in roots if isinstance(root, dict)]
            # Dots that are percent-encoded climb, too, once a server has decoded the path.
            wrong = [uri for uri in uris if not uri.startswith("file://") or ".." in unquote(uri).split("/")]
            yield judged(not wrong, event, f"a root is {wrong[:1]}")


def _given(history: History) -> Iterator[tuple[Event, str, dict[str, Any], dict[str, Any]]]:
    """Yield the results that a client gave to questions: the event, the method, its parameters and the result."""
    for connection in history:
        for asked in connection.questions:
            if asked.method in QUESTIONS and asked.result is not None:
                yield asked.answers[0], asked.method, asked.params, asked.result
        for before, retry in retries(connection):
            asked_for = (before.result or {}).get("inputRequests")
            given = retry.params.get("inputResponses")
            for key, response in given.items() if isinstance(given, dict) else ():
                question = asked_for.get(key) if isinstance(asked_for, dict) else None
                if isinstance(question, dict) and question.get("method") in QUESTIONS and isinstance(response, dict):
                    params = question.get("params")
                    yield retry.event, question["method"], params if isinstance(params, dict) else {}, response


QUESTIONS: Final = ("sampling/createMessage", "elicitation/create", "roots/list")
