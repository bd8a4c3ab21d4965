"""Rules for the questions that a server asks a client, as requests or in results, and for caching hints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from trio_mcp.conformance.members import object_of, objects_of
from trio_mcp.conformance.rules.common import MODERN, code_of, declares, lost, subject_of
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, params_of
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta
from trio_mcp.types.input_required import input_response_from_wire

__all__: list[str] = []

NEEDED: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
"""The capability that a client must declare to be asked a question, by the question's method."""
ASKING: Final = ("prompts/get", "resources/read", "tools/call")
URL_REQUIRED: Final = -32042
LOCAL: Final = ("localhost", "127.0.0.1", "::1")
MOVES: Final = ("call-tool", "call-without-capabilities", "call-with-capabilities", "get-prompt", "read-resource")
ROUNDS: Final = ("continue-rounds",)


@attrs.frozen
class ServerQuestion:
    """A server's question to a client: a request, or in the modern era an entry in a result that asks for input.

    Such a result is one of the call itself, or the state of its task.

    Attributes:
        event: The event of the message that contains the question.
        method: The question's method.
        params: The question's parameters.
        declared: The capabilities that the client had declared.
        revision: The revision spoken on the connection.
    """

    event: Event
    method: str
    params: dict[str, Any]
    declared: dict[str, Any]
    revision: str

    @property
    def mode(self) -> str:
        """The mode of an elicitation; ``form`` if it names none."""
        return str(self.params.get("mode", "form"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of a sampling request."""
        return objects_of(self.params.get("messages"))


def _rounds(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest, dict[str, Any]]]:
    """Yield each response that asks for input, with its connection, its request and its result."""
    for connection in history:
        # In the legacy era a result may have any additional members, so a member called `resultType` means nothing
        # there.
        for asked in connection.requests if connection.modern else ():
            if asked.result is not None and asked.result.get("resultType") == "input_required":
                yield asked.answers[0], connection, asked, asked.result


def _entries(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest, str, dict[str, Any]]]:
    """Yield each question in the results that ask for input, after its response, connection, request and key.

    The questions of tasks count, too.
    """
    for answer, connection, asked, result in _rounds(history):
        for key, entry in object_of(result.get("inputRequests")).items():
            yield answer, connection, asked, key, object_of(entry)
    # A task asks in the same form, in its state (`io.modelcontextprotocol/tasks`, Task Update Requests).
    for connection, asked in history.requests("tasks/get"):
        if connection.modern and asked.result is not None and asked.result.get("status") == "input_required":
            for key, entry in object_of(asked.result.get("inputRequests")).items():
                yield asked.answers[0], connection, asked, key, object_of(entry)


def _questions(*methods: str) -> Occasions[ServerQuestion]:
    """Return a function that yields each question with one of these methods, in both eras."""

    def occasions(history: History) -> Iterator[tuple[Event, ServerQuestion]]:
        for connection in history:
            for asked in connection.questions:
                if asked.method in methods:
                    declared, revision = connection.client_capabilities, connection.revision
                    yield asked.event, ServerQuestion(asked.event, asked.method, asked.params, declared, revision)
        for answer, connection, asked, _, entry in _entries(history):
            method = str(entry.get("method"))
            if method in methods:
                # Each request of the modern era declares its own capabilities, and a server must not rely on the
                # capabilities that an earlier request declared (Statelessness).
                declared = object_of(asked.meta.get(meta.CLIENT_CAPABILITIES))
                params = object_of(entry.get("params"))
                yield answer, ServerQuestion(answer, method, params, declared, connection.revision)

    return occasions


# --- what may be asked ------------------------------------------------------------------------------------------------


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    older="basic/lifecycle#operation",
    sentence="Ask a client only for what it has declared: sampling (with tools), elicitation or roots.",
    moves=MOVES,
)
@each(_questions(*NEEDED))
def input_within_capabilities(_: Event, question: ServerQuestion) -> Opinion:
    needed = NEEDED[question.method]
    if {"tools", "toolChoice"} & set(question.params) and needed == "sampling":
        needed = "sampling.tools"
    return None if declares(question.declared, needed) else f"the client did not declare {needed}"


@stated_rule(moves=MOVES)
@each(_questions("elicitation/create"))
def elicitation_within_modes(_: Event, question: ServerQuestion) -> Opinion:
    modes = object_of(question.declared.get("elicitation"))
    # A client that declares elicitation without naming a mode supports forms.
    kept = question.mode in modes or (question.mode == "form" and "url" not in modes)
    return None if kept else f"the client did not declare the elicitation mode {question.mode!r:.40}"


@stated_rule(
    sentence="Ask for the context of servers in sampling only if the client has declared `sampling.context`.",
    moves=MOVES,
)
@each(_questions("sampling/createMessage"))
def sampling_context_declared(_: Event, question: ServerQuestion) -> Opinion:
    # If `includeContext` is left out, it means "none", which requires no capability; the other values are
    # soft-deprecated (Capabilities).
    wanted = question.params.get("includeContext", "none")
    kept = wanted == "none" or declares(question.declared, "sampling.context")
    return None if kept else f"includeContext is {wanted!r:.40}, but the client did not declare sampling.context"


# --- elicitation ------------------------------------------------------------------------------------------------------


@stated_rule(
    older="client/elicitation",
    sentence="Say in each elicitation why it is needed, and send a schema for a form, or a URL (in 2025-11-25 "
    "with an id).",
    moves=MOVES,
)
@each(_questions("elicitation/create"))
def elicitation_shape(_: Event, question: ServerQuestion) -> Opinion:
    wanted: dict[str, type] = {"message": str, "requestedSchema": dict}
    if question.mode == "url":
        wanted = {"message": str, "url": str}
        # 2026-07-28 dropped the id of elicitations, together with the notification that repeats it.
        if question.revision == "2025-11-25":
            wanted["elicitationId"] = str
    elif question.mode != "form":
        return f"there is no elicitation mode {question.mode!r:.40}"
    wrong = [name for name, kind in wanted.items() if not isinstance(question.params.get(name), kind)]
    return f"the elicitation lacks {', '.join(wrong)}" if wrong else None


def _urls(history: History) -> Iterator[tuple[Event, str]]:
    for event, question in _questions("elicitation/create")(history):
        if question.mode == "url" and isinstance(question.params.get("url"), str):
            yield event, question.params["url"]


@stated_rule(moves=MOVES)
@each(_urls)
def elicitation_url_valid(_: Event, url: str) -> Opinion:
    return None if _is_url(url) else f"{url!r:.80} is not a URL"


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    # `urlsplit` accepts nearly any string. The specification doesn't say what counts as valid, so this checks only what
    # any definition of a valid URL would require.
    return bool(parts.scheme) and bool(parts.netloc or parts.path) and url.isprintable() and " " not in url


@stated_rule(moves=MOVES)
@each(_urls)
def elicitation_https(_: Event, url: str) -> Opinion:
    if not _is_url(url):
        return UNDECIDED
    parts = urlsplit(url)
    # URLs on the local computer are allowed, because nothing shows whether a server is still in development. Schemes
    # such as `mailto` have no HTTPS counterpart.
    return f"{url!r:.80} is not an HTTPS URL" if parts.scheme == "http" and parts.hostname not in LOCAL else None


@stated_rule(moves=MOVES)
@each(_questions("elicitation/create"))
def elicitation_no_links(_: Event, question: ServerQuestion) -> Opinion:
    if question.mode != "form":
        return UNDECIDED
    fields = object_of(object_of(question.params.get("requestedSchema")).get("properties")).values()
    texts = [question.params.get("message")]
    # Defaults and choices are left out: they are data, and a form may well ask which of several URLs to use.
    texts += [object_of(field).get(key) for field in fields for key in ("title", "description")]
    found = next((text for text in texts if isinstance(text, str) and _LINK.search(text)), None)
    return None if found is None else f"the form has a link: {found!r:.100}"


# The specification forbids URLs that are "intended to be clickable". An intention can't be observed, but clients turn
# URLs with a scheme into links, so URLs with a scheme count.
_LINK: Final = re.compile(r"https?://\S")


@stated_rule(
    sentence="Tell only the client that was asked that an elicitation is complete, and name its id.",
    moves=MOVES,
)
def elicitation_complete_known(history: History) -> Iterator[Verdict]:
    for connection in history:
        # The order of messages is ignored: over HTTP the notification may overtake the question or the error that
        # introduced the id.
        given = {
            each.params.get("elicitationId") for each in connection.questions if each.method == "elicitation/create"
        }
        for asked in connection.requests:
            given |= {object_of(each).get("elicitationId") for each in _required(asked)}
        for event in connection.notifications("server", "notifications/elicitation/complete"):
            named = params_of(event).get("elicitationId")
            kept = isinstance(named, str) and named in given
            yield judged(kept, event, f"this client was given no elicitation with the id {named!r:.80}")


def _required(asked: RecordedRequest) -> list[Any]:
    found = object_of((asked.error or {}).get("data")).get("elicitations")
    return found if code_of(asked) == URL_REQUIRED and isinstance(found, list) else []


def _required_urls(history: History) -> Iterator[tuple[Event, list[Any]]]:
    """Yield each error -32042 in revision 2025-11-25, with the elicitations that it lists."""
    for connection, asked in history.requests():
        # Before 2025-11-25 the code had no meaning. 2026-07-28 forbids it (Error Codes), which `error_codes_retired`
        # checks.
        if code_of(asked) == URL_REQUIRED and connection.revision == "2025-11-25":
            yield asked.answers[0], _required(asked)


@stated_rule(
    sentence="List in error -32042 the elicitations that are needed: by URL, each with an id.",
    moves=MOVES,
)
@each(_required_urls)
def url_required_error_shape(_: Event, required: list[Any]) -> Opinion:
    kept = bool(required) and all(_is_by_url(object_of(each)) for each in required)
    return None if kept else "the error must list elicitations, each with mode 'url', a URL and an id"


def _is_by_url(each: dict[str, Any]) -> bool:
    return each.get("mode") == "url" and all(isinstance(each.get(key), str) for key in ("url", "elicitationId"))


# --- sampling ---------------------------------------------------------------------------------------------------------


@stated_rule(moves=MOVES)
@each(_questions("sampling/createMessage"))
def sampling_message_shape(_: Event, question: ServerQuestion) -> Opinion:
    kept = all(m.get("role") in ("user", "assistant") and "content" in m for m in question.messages)
    return None if kept else "a sampling message lacks content or a valid role"


def content_of(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the blocks of one kind in the content of a sampling message, which is a single block or a list."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    return [block for block in objects_of(blocks) if block.get("type") == kind]


@stated_rule(
    sentence="Follow the tool uses of a sampling message with a message of all their results, and nothing else.",
    moves=MOVES,
)
@each(_questions("sampling/createMessage"))
def sampling_tool_balance(_: Event, question: ServerQuestion) -> Opinion:
    owed: list[Any] = []
    for message in question.messages:
        content = message.get("content")
        results = [block.get("toolUseId") for block in content_of(message, "tool_result")]
        # Results may come in any order. The ids are compared as text, so that even malformed ones can be sorted.
        if sorted(map(str, results)) != sorted(map(str, owed)):
            return f"the tool results do not match the preceding tool uses: uses {owed}, results {results}"
        if results and len(results) != (len(content) if isinstance(content, list) else 1):
            return "the message with the tool results contains other content as well"
        owed = [block.get("id") for block in content_of(message, "tool_use")]
    # After the last message the model replies, and the results must come before its reply.
    return f"the tool uses {owed} have no results" if owed else None


# --- rounds of input --------------------------------------------------------------------------------------------------


@stated_rule(moves=(*MOVES, *ROUNDS))
@each(_rounds)
def input_required_has_content(
    _: Event, _connection: Connection, _asked: RecordedRequest, result: dict[str, Any]
) -> Opinion:
    kept = result.get("inputRequests") is not None or result.get("requestState") is not None
    return None if kept else "the result has neither inputRequests nor requestState"


@stated_rule(moves=(*MOVES, *ROUNDS))
@each(_entries)
def input_requests_known(
    _: Event, _connection: Connection, _asked: RecordedRequest, key: str, entry: dict[str, Any]
) -> Opinion:
    method = entry.get("method")
    return None if method in NEEDED else f"the input request {key!r:.40} must not have the method {method!r:.60}"


@stated_rule(moves=(*MOVES, *ROUNDS))
@each(_rounds)
def input_request_keys_unique(
    answer: Event, _connection: Connection, _asked: RecordedRequest, _result: dict[str, Any]
) -> Opinion:
    repeated = answer.facts.get("repeated")
    return f"two input requests have the same key: {repeated!s:.80}" if repeated else None


@stated_rule(moves=("list-all", "complete", "discover", *MOVES))
@each(_rounds)
def input_required_where_allowed(
    _: Event, _connection: Connection, asked: RecordedRequest, _result: dict[str, Any]
) -> Opinion:
    return None if asked.method in ASKING else f"{asked.method} must not be answered with a request for input"


def _retries(history: History) -> Iterator[tuple[Event, RecordedRequest, dict[str, Any]]]:
    """Yield each retry with answers or a state, and the newest earlier result that asked for input for the same call.

    The event to blame is the first response to the retry, or the mark in the transcript that says that no response will
    come; a retry with neither is left out.
    """
    for connection in history:
        asking: dict[tuple[str, str], dict[str, Any]] = {}
        for asked in connection.requests if connection.modern else ():
            # A retry doesn't say which request for input it responds to, so it is matched with the newest request for
            # input that has the same method and subject, as is right if the client is honest.
            what = asked.method, repr(subject_of(asked))
            event = asked.answers[0] if asked.answers else lost(asked)
            if {"inputResponses", "requestState"} & set(asked.params) and what in asking and event is not None:
                yield event, asked, asking[what]
            if asked.result is not None and asked.result.get("resultType") == "input_required":
                asking[what] = asked.result


@stated_rule(
    sentence="Treat a state as if an attacker may have written it: answer even if it was changed.", moves=ROUNDS
)
@each(_retries)
def request_state_tampering_survived(_: Event, asked: RecordedRequest, before: dict[str, Any]) -> Opinion:
    # Whether a changed state must be refused depends on what the server uses the state for, which the transcript
    # doesn't show. But the transcript does show whether there is a response.
    if "requestState" not in asked.params or asked.params["requestState"] == before.get("requestState"):
        return UNDECIDED
    return None if asked.answers else "a request with a changed requestState was not answered"


@stated_rule(moves=ROUNDS)
@each(_rounds)
def unfulfilled_input_survived(
    answer: Event, connection: Connection, asked: RecordedRequest, _result: dict[str, Any]
) -> Opinion:
    place = connection.position(answer)
    same = [
        each
        for each in connection.requests
        if connection.position(each.event) > place
        and (each.method, subject_of(each)) == (asked.method, subject_of(asked))
    ]
    # A client that retried has not given up, so the later responses don't show how the server copes with a client that
    # gives up.
    if any({"inputResponses", "requestState"} & set(each.params) for each in same):
        return UNDECIDED
    dead = next((mark for each in same if (mark := lost(each)) is not None), None)
    if dead is not None:
        return broken(dead, "the repeated request got no response after the client had given up a round of input")
    return None if any(each.answers for each in same) else UNDECIDED


@stated_rule(
    sentence="Check the answers that a client sends: refuse those that don't fit their questions, or ask again.",
    moves=ROUNDS,
)
@each(_retries)
def bad_input_responses_refused(_: Event, asked: RecordedRequest, before: dict[str, Any]) -> Opinion:
    questions = object_of(before.get("inputRequests"))
    given = object_of(asked.params.get("inputResponses"))
    wrong = [key for key, each in given.items() if key in questions and not _fits(questions[key], each)]
    if not wrong or not asked.answers:
        return UNDECIDED
    # A result with `isError` counts as acceptance: for an answer that doesn't fit its schema, the specification asks
    # for a JSON-RPC error.
    accepted = asked.result is not None and asked.result.get("resultType") == "complete"
    return f"the malformed answer to {wrong[0]!r:.40} was accepted" if accepted else None


def _fits(question: Any, given: Any) -> bool:
    # pydantic's errors are ValueErrors. A KeyError or TypeError comes from a question that is itself malformed.
    try:
        input_response_from_wire(str(object_of(question).get("method")), given)
    except (ValueError, KeyError, TypeError):
        return False
    return True


@stated_rule(moves=ROUNDS)
@each(_retries)
def missing_input_asked_again(_: Event, asked: RecordedRequest, before: dict[str, Any]) -> Opinion:
    # If the state was changed, the refusal may be about the state.
    same = asked.params.get("requestState") == before.get("requestState")
    if not before.get("inputRequests") or not same or asked.params.get("inputResponses") or not asked.answers:
        return UNDECIDED
    return None if asked.error is None else "the server refused a retry without inputResponses"


# --- caching ----------------------------------------------------------------------------------------------------------

CACHED: Final = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


def _cached(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each complete result that may be cached, preceded by its response."""
    for _, asked in history.requests(*CACHED):
        # A server of both eras may treat a request that does not declare the modern era as a legacy one.
        modern = asked.meta.get(meta.PROTOCOL_VERSION) in MODERN
        if asked.result is not None and modern and asked.result.get("resultType", "complete") == "complete":
            yield asked.answers[0], asked.result


@stated_rule(
    sentence="Say with each result that may be cached for how long, never negative, and for whom.",
    moves=("list-all", "read-resource", "discover"),
)
@each(_cached)
def cache_hints_present(_: Event, result: dict[str, Any]) -> Opinion:
    ttl, scope = result.get("ttlMs"), result.get("cacheScope")
    # The specification's text says "integer" (Time-to-Live), but its schema says "number", so fractions are allowed.
    known = isinstance(ttl, (int, float)) and not isinstance(ttl, bool) and ttl >= 0
    kept = known and scope in ("public", "private")
    return None if kept else f"the ttlMs {ttl!r:.40} or the cacheScope {scope!r:.40} is not valid"


def _page_pairs(history: History) -> Iterator[tuple[Event, dict[str, Any], dict[str, Any]]]:
    """Yield the result of each page of a list except the first, with the result of the previous page."""
    for connection, asked in history.requests(*CACHED[1:5]):
        if asked.result is None or not connection.modern or "cursor" not in asked.params:
            continue
        place = connection.position(asked.event)
        for before in connection.requests:
            page = before.result if before.method == asked.method else None
            # Pages are paired by their cursor, because the kit may read the same list several times at once.
            earlier = page is not None and connection.position(before.event) < place
            if earlier and page is not None and page.get("nextCursor") == asked.params["cursor"]:
                yield asked.answers[0], asked.result, page
                break


@stated_rule(moves=("list-all", "next-page"))
@each(_page_pairs)
def cache_scope_same_on_pages(_: Event, result: dict[str, Any], before: dict[str, Any]) -> Opinion:
    kept = before.get("cacheScope") == result.get("cacheScope")
    return None if kept else "the previous page has a different cacheScope"
