"""The questions of a server to a client, in both eras: requests of its own, and rounds of input."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from trio_mcp.conformance.rules.common import MODERN, answer_of, code_of, declares, lost
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import meta
from trio_mcp.types.input_required import input_response_from_wire

__all__: list[str] = []

NEEDED: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
"""The capability that a question needs, by its method."""
ASKING: Final = ("prompts/get", "resources/read", "tools/call")
URL_REQUIRED: Final = -32042
LOCAL: Final = ("localhost", "127.0.0.1", "::1")
MOVES: Final = ("call-tool", "call-without-capabilities", "call-with-capabilities", "get-prompt", "read-resource")
ROUNDS: Final = ("continue-rounds",)


@attrs.frozen
class ServerQuestion:
    """A server's question: a request, or an entry of an input round.

    Attributes:
        event: The message that holds it.
        method: Its method.
        params: Its parameters.
        declared: What the client had declared.
        revision: The revision spoken.
    """

    event: Event
    method: str
    params: dict[str, Any]
    declared: dict[str, Any]
    revision: str

    @property
    def mode(self) -> str:
        """The mode of an elicitation."""
        return str(self.params.get("mode", "form"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of sampling."""
        found = self.params.get("messages")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _rounds(history: History) -> Iterator[tuple[Connection, RecordedRequest, Event, dict[str, Any]]]:
    """Yield each request that was answered with a round of input, the answer's event and its result."""
    for connection in history:
        # In the legacy era a result may have any members besides its own, so `resultType` there means nothing.
        for asked in connection.requests if connection.modern else ():
            answer = answer_of(asked)
            if answer is not None and asked.result is not None and asked.result.get("resultType") == "input_required":
                yield connection, asked, answer, asked.result


def _questions(history: History, *methods: str) -> Iterator[ServerQuestion]:
    """Yield the questions of these methods, or all."""
    for connection in history:
        for asked in connection.questions:
            if asked.method in (methods or NEEDED):
                declared, revision = connection.client_capabilities, connection.revision
                yield ServerQuestion(asked.event, asked.method, asked.params, declared, revision)
    for connection, asked, answer, result in _rounds(history):
        for each in _object(result.get("inputRequests")).values():
            method = str(_object(each).get("method"))
            if method in (methods or NEEDED):
                # Each request of the modern era declares for itself, and a server must not go by an earlier one
                # (Statelessness).
                declared = _object(asked.meta.get(meta.CLIENT_CAPABILITIES))
                yield ServerQuestion(
                    answer, method, _object(_object(each).get("params")), declared, connection.revision
                )


# --- what may be asked ------------------------------------------------------------------------------------------------


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    older="basic/lifecycle#operation",
    sentence="Ask a client only for what it has declared: sampling (with tools), elicitation or roots.",
    moves=MOVES,
)
def input_within_capabilities(history: History) -> Iterator[Verdict]:
    for question in _questions(history):
        needed = NEEDED[question.method]
        if {"tools", "toolChoice"} & set(question.params) and needed == "sampling":
            needed = "sampling.tools"
        yield judged(declares(question.declared, needed), question.event, f"the client did not declare {needed}")


@stated_rule(since="2025-11-25", moves=MOVES)
def elicitation_within_modes(history: History) -> Iterator[Verdict]:
    for question in _questions(history, "elicitation/create"):
        modes = _object(question.declared.get("elicitation"))
        # Without modes the capability is that for forms.
        kept = question.mode in modes or (question.mode == "form" and "url" not in modes)
        yield judged(kept, question.event, f"the client did not declare the mode {question.mode!r:.40}")


@stated_rule(
    since="2025-11-25",
    sentence="Ask for the context of servers in sampling only if the client has declared `sampling.context`.",
    moves=MOVES,
)
def sampling_context_declared(history: History) -> Iterator[Verdict]:
    for question in _questions(history, "sampling/createMessage"):
        # Left out it means "none", which asks nothing of a client; the other values are soft-deprecated (Capabilities).
        wanted = question.params.get("includeContext", "none")
        kept = wanted == "none" or declares(question.declared, "sampling.context")
        yield judged(kept, question.event, f"includeContext is {wanted!r:.40}, and the client lacks sampling.context")


# --- elicitation ------------------------------------------------------------------------------------------------------


@stated_rule(
    since="2025-06-18",
    older="client/elicitation",
    sentence="Say in each elicitation why it is needed, and send a schema for a form, or a URL (in 2025-11-25 "
    "with an id).",
    moves=MOVES,
)
def elicitation_shape(history: History) -> Iterator[Verdict]:
    for question in _questions(history, "elicitation/create"):
        wanted: dict[str, type] = {"message": str, "requestedSchema": dict}
        if question.mode == "url":
            wanted = {"message": str, "url": str}
            # 2026-07-28 dropped the id together with the notification that names it.
            if question.revision == "2025-11-25":
                wanted["elicitationId"] = str
        wrong = [name for name, kind in wanted.items() if not isinstance(question.params.get(name), kind)]
        known = question.mode in ("form", "url")
        problem = f"it lacks {', '.join(wrong)}" if known else f"there is no mode {question.mode!r:.40}"
        yield judged(known and not wrong, question.event, problem)


def _urls(history: History) -> Iterator[tuple[Event, str]]:
    for question in _questions(history, "elicitation/create"):
        if question.mode == "url" and isinstance(question.params.get("url"), str):
            yield question.event, question.params["url"]


@stated_rule(since="2025-11-25", moves=MOVES)
def elicitation_url_valid(history: History) -> Iterator[Verdict]:
    for event, url in _urls(history):
        yield judged(_is_url(url), event, f"{url!r:.80} is not a URL")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    # `urlsplit` takes nearly any text. What counts as valid isn't said, so this is the least on which all readings
    # agree.
    return bool(parts.scheme) and bool(parts.netloc or parts.path) and url.isprintable() and " " not in url


@stated_rule(since="2025-11-25", moves=MOVES)
def elicitation_https(history: History) -> Iterator[Verdict]:
    for event, url in _urls(history):
        if _is_url(url):
            parts = urlsplit(url)
            # A server in development looks like any other, so this computer stands for it. Schemes such as
            # `mailto` have no HTTPS to prefer.
            yield judged(parts.scheme != "http" or parts.hostname in LOCAL, event, f"{url!r:.80} is not HTTPS")


@stated_rule(since="2025-11-25", moves=MOVES)
def elicitation_no_links(history: History) -> Iterator[Verdict]:
    for question in _questions(history, "elicitation/create"):
        if question.mode == "form":
            fields = _object(_object(question.params.get("requestedSchema")).get("properties")).values()
            texts = [question.params.get("message")]
            # Defaults and choices are left out: they are data, and a form may well ask which of several URLs to use.
            texts += [_object(field).get(key) for field in fields for key in ("title", "description")]
            found = next((text for text in texts if isinstance(text, str) and _LINK.search(text)), None)
            yield judged(found is None, question.event, f"the form has a link: {found!r:.100}")


# Whether a URL is "intended to be clickable" can't be seen; one with a scheme is what clients make a link of.
_LINK: Final = re.compile(r"https?://\S")


@stated_rule(
    since="2025-11-25",
    sentence="Tell only the client that was asked that an elicitation is complete, and name its id.",
    moves=MOVES,
)
def elicitation_complete_known(history: History) -> Iterator[Verdict]:
    for connection in history:
        # Order is left aside: over HTTP the notification may overtake the question or the error that gave the id.
        given = {
            each.params.get("elicitationId") for each in connection.questions if each.method == "elicitation/create"
        }
        for asked in connection.requests:
            given |= {_object(each).get("elicitationId") for each in _required(asked)}
        for event in connection.notifications("server", "notifications/elicitation/complete"):
            named = _object(event.message.get("params")).get("elicitationId")
            kept = isinstance(named, str) and named in given
            yield judged(kept, event, f"this client was given no elicitation {named!r:.80}")


def _required(asked: RecordedRequest) -> list[Any]:
    found = _object((asked.error or {}).get("data")).get("elicitations")
    return found if code_of(asked) == URL_REQUIRED and isinstance(found, list) else []


@stated_rule(
    since="2025-11-25",
    sentence="List in error -32042 the elicitations that are needed: by URL, each with an id.",
    moves=MOVES,
)
def url_required_error_shape(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            # Before 2025-11-25 the code meant nothing, and 2026-07-28 forbids it (Error Codes), which is judged
            # elsewhere.
            if code_of(asked) != URL_REQUIRED or connection.revision != "2025-11-25":
                continue
            wrong = [each for each in map(_object, _required(asked)) if not _is_by_url(each)]
            kept = bool(_required(asked)) and not wrong
            yield judged(kept, asked.answers[0], "its elicitations are missing, or not all by URL with an id")


def _is_by_url(each: dict[str, Any]) -> bool:
    return each.get("mode") == "url" and all(isinstance(each.get(key), str) for key in ("url", "elicitationId"))


# --- sampling ---------------------------------------------------------------------------------------------------------


@stated_rule(moves=MOVES)
def sampling_message_shape(history: History) -> Iterator[Verdict]:
    for question in _questions(history, "sampling/createMessage"):
        wrong = [m for m in question.messages if m.get("role") not in ("user", "assistant") or "content" not in m]
        yield judged(not wrong, question.event, "a message lacks its role or its content")


def _blocks(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    return [block for block in map(_object, blocks) if block.get("type") == kind]


@stated_rule(
    since="2025-11-25",
    sentence="Answer all uses of tools in the next message of sampling, with nothing beside the results.",
    moves=MOVES,
)
def sampling_tool_balance(history: History) -> Iterator[Verdict]:
    for question in _questions(history, "sampling/createMessage"):
        owed: list[Any] = []
        problem = None
        for message in question.messages:
            content = message.get("content")
            count = len(content) if isinstance(content, list) else 1
            results = [block.get("toolUseId") for block in _blocks(message, "tool_result")]
            # Results may come in any order. As texts, even ids that are malformed can be sorted.
            if sorted(map(str, results)) != sorted(map(str, owed)):
                problem = problem or f"the results are of {results}, and the uses {owed}"
            if results and len(results) != count:
                problem = problem or "there is something else beside the results"
            owed = [block.get("id") for block in _blocks(message, "tool_use")]
        # The model's next words are another message, and the results must come before any.
        if owed:
            problem = problem or f"the uses {owed} have no results"
        yield Verdict(question.event, problem)


# --- rounds of input --------------------------------------------------------------------------------------------------


@stated_rule(moves=(*MOVES, *ROUNDS))
def input_required_has_content(history: History) -> Iterator[Verdict]:
    for _, _, answer, result in _rounds(history):
        kept = result.get("inputRequests") is not None or result.get("requestState") is not None
        yield judged(kept, answer, "it has neither inputRequests nor requestState")


@stated_rule(moves=(*MOVES, *ROUNDS))
def input_requests_known(history: History) -> Iterator[Verdict]:
    for _, _, answer, result in _rounds(history):
        for key, each in _object(result.get("inputRequests")).items():
            method = _object(each).get("method")
            yield judged(method in NEEDED, answer, f"{key!r:.40} asks for {method!r:.60}")


@stated_rule(moves=("list-all", "complete", "discover", *MOVES))
def input_required_where_allowed(history: History) -> Iterator[Verdict]:
    for _, asked, answer, _ in _rounds(history):
        yield judged(asked.method in ASKING, answer, f"{asked.method} is answered with a request for input")


def _retries(history: History) -> Iterator[tuple[Connection, RecordedRequest, dict[str, Any]]]:
    """Yield each request with answers or a state, and the newest result before that asked for input for the same."""
    for connection in history:
        asking: list[tuple[str, Any, dict[str, Any]]] = []
        for asked in connection.requests if connection.modern else ():
            subject = _subject(asked)
            # Nothing says which round a retry belongs to, so it is taken for the newest for the same thing, as from an
            # honest client.
            if {"inputResponses", "requestState"} & set(asked.params):
                found = [result for method, what, result in asking if (method, what) == (asked.method, subject)]
                if found:
                    yield connection, asked, found[-1]
            if asked.result is not None and asked.result.get("resultType") == "input_required":
                asking.append((asked.method, subject, asked.result))


@stated_rule(
    sentence="Take a state for what an attacker may have written: answer even if it was changed.", moves=ROUNDS
)
def request_state_tampering_survived(history: History) -> Iterator[Verdict]:
    for _, asked, before in _retries(history):
        # Whether a changed state must be refused depends on what it decides, which can't be seen; that there is a
        # response can.
        if "requestState" in asked.params and asked.params["requestState"] != before.get("requestState"):
            if (mark := lost(asked)) is not None:
                yield broken(mark, "a request with a state that was changed is not answered")
            elif asked.answers:
                yield held(asked.answers[0])


@stated_rule(sentence="Go on if the client brings no answers, or does not come back.", moves=ROUNDS)
def unfulfilled_input_survived(history: History) -> Iterator[Verdict]:
    for connection, asked, answer, _ in _rounds(history):
        place = connection.position(answer)
        same = [
            each
            for each in connection.requests
            if connection.position(each.event) > place
            and (each.method, _subject(each)) == (asked.method, _subject(asked))
        ]
        # With a retry the round was not given up, so the next answers don't show how the server copes.
        if any({"inputResponses", "requestState"} & set(each.params) for each in same):
            continue
        dead = next((mark for each in same if (mark := lost(each)) is not None), None)
        if dead is not None or any(each.answers for each in same):
            yield judged(dead is None, dead or answer, "it is not answered any more after a round that was given up")


def _subject(asked: RecordedRequest) -> Any:
    return asked.params.get("name", asked.params.get("uri"))


@stated_rule(
    sentence="Check the answers that a client brings: what does not fit its question is refused, or asked for again.",
    moves=ROUNDS,
)
def bad_input_responses_refused(history: History) -> Iterator[Verdict]:
    for _, asked, before in _retries(history):
        given = asked.params.get("inputResponses")
        questions = _object(before.get("inputRequests"))
        wrong = [key for key, each in _object(given).items() if key in questions and not _fits(questions[key], each)]
        if wrong and asked.result is not None:
            # A result with `isError` counts as acceptance: for an invalid schema the text wants an error of JSON-RPC.
            kept = asked.result.get("resultType") != "complete"
            yield judged(kept, asked.answers[0], f"the answer to {wrong[0]!r:.40} is accepted")
        elif wrong and asked.answers:
            yield held(asked.answers[0])


def _fits(question: Any, given: Any) -> bool:
    # pydantic's errors are ValueErrors; the other two come from questions that are malformed themselves.
    try:
        input_response_from_wire(str(_object(question).get("method")), given)
    except (ValueError, KeyError, TypeError):
        return False
    return True


@stated_rule(moves=ROUNDS)
def missing_input_asked_again(history: History) -> Iterator[Verdict]:
    for _, asked, before in _retries(history):
        # With a changed state, it may be the state that is refused.
        same = asked.params.get("requestState") == before.get("requestState")
        if before.get("inputRequests") and same and not asked.params.get("inputResponses") and asked.answers:
            yield judged(asked.error is None, asked.answers[0], "a retry without answers is refused")


# --- caching ----------------------------------------------------------------------------------------------------------

CACHED: Final = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


@stated_rule(
    sentence="Say with each result that may be cached how long, not negative, and for whom.",
    moves=("list-all", "read-resource", "discover"),
)
def cache_hints_present(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests(*CACHED):
        result = asked.result
        # A server of both eras may take a request that does not declare the modern one for one of the other.
        modern = asked.meta.get(meta.PROTOCOL_VERSION) in MODERN
        if result is not None and modern and result.get("resultType", "complete") == "complete":
            ttl, scope = result.get("ttlMs"), result.get("cacheScope")
            # Time-to-Live says integer, the schema number, so fractions are let through.
            known = isinstance(ttl, (int, float)) and not isinstance(ttl, bool) and ttl >= 0
            kept = known and scope in ("public", "private")
            yield judged(kept, asked.answers[0], f"ttlMs is {ttl!r:.40}, and cacheScope {scope!r:.40}")


@stated_rule(sentence="Give all pages of a list the same cacheScope.", moves=("list-all", "next-page"))
def cache_scope_same_on_pages(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests(*CACHED[1:5]):
        result, place = asked.result, connection.position(asked.event)
        if result is None or not connection.modern or "cursor" not in asked.params:
            continue
        for before in connection.requests:
            page = before.result
            earlier = before.method == asked.method and page is not None and connection.position(before.event) < place
            # Pages are paired by their cursor: several readings of one list may run at the same time.
            if earlier and page is not None and page.get("nextCursor") == asked.params["cursor"]:
                kept = page.get("cacheScope") == result.get("cacheScope")
                yield judged(kept, asked.answers[0], "the page before it has another cacheScope")
                break
