"""The modern era: what each request says of itself, and how it is sent again with input."""

from __future__ import annotations

from collections.abc import Iterator

from trio_mcp.conformance.rules.clients.shared import modern, parts, retries
from trio_mcp.conformance.rules.history import History, is_response
from trio_mcp.conformance.rules.model import Verdict, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.types import meta


@stated_rule(sentence="Each request names the version and the client's capabilities in its _meta.")
def request_meta_complete(history: History) -> Iterator[Verdict]:
    """Judge each request of a client of the modern era."""
    for connection in modern(history):
        for asked in connection.requests:
            # A client of both eras may open like this for an older server, which has no such fields.
            if asked.method != "initialize":
                version, declared = asked.meta.get(meta.PROTOCOL_VERSION), asked.meta.get(meta.CLIENT_CAPABILITIES)
                kept = isinstance(version, str) and isinstance(declared, dict)
                yield judged(kept, asked.event, "its _meta lacks the version or the capabilities")


@stated_rule()
def client_info_sent(history: History) -> Iterator[Verdict]:
    """Judge each request of a client of the modern era."""
    for connection in modern(history):
        for asked in connection.requests:
            if asked.method != "initialize":
                yield judged(
                    isinstance(asked.meta.get(meta.CLIENT_INFO), dict), asked.event, "its _meta lacks clientInfo"
                )


@stated_rule(sentence="A client sends no responses.")
def no_client_responses(history: History) -> Iterator[Verdict]:
    """Judge each message of a client of the modern era."""
    for connection in modern(history):
        for event, message in parts(connection):
            yield judged(not is_response(message), event, "it is a response")


@stated_rule(sentence="A retry brings back the state that the server gave, exactly, and none if it gave none.")
def request_state_echoed(history: History) -> Iterator[Verdict]:
    """Judge each request with a state or with answers."""
    for connection in modern(history):
        # Several requests may have rounds open at once, so any state that was given is real.
        given = [a.result["requestState"] for a in connection.requests if a.result and "requestState" in a.result]
        for asked in connection.requests:
            if "requestState" in asked.params:
                state = asked.params["requestState"]
                yield judged(state in given, asked.event, f"the state {state!r} was never given")
        for before, retry in retries(connection):
            if "requestState" in (before.result or {}):
                kept = "requestState" in retry.params
                yield judged(kept, retry.event, "the retry lacks the state")


@stated_rule(section="basic/patterns/mrtr#client-requirements-basic-workflow")
def retry_has_new_id(history: History) -> Iterator[Verdict]:
    """Judge each retry."""
    for connection in modern(history):
        for before, retry in retries(connection):
            # Ids are free again once they are answered, but for a retry MRTR still demands a new one.
            yield judged(retry.id != before.id, retry.event, f"it has the id {retry.id!r} of the first request")


@stated_rule()
def input_answered(history: History) -> Iterator[Verdict]:
    """Judge each retry of a request that was answered with questions."""
    for connection in modern(history):
        for before, retry in retries(connection):
            wanted, given = (before.result or {}).get("inputRequests"), retry.params.get("inputResponses")
            if isinstance(wanted, dict) and wanted:
                # Answers to what wasn't asked are not an error: a server should ignore them (Error Handling).
                missing = set(wanted) - set(given if isinstance(given, dict) else ())
                yield judged(not missing, retry.event, f"there is no answer to {sorted(missing)}")
