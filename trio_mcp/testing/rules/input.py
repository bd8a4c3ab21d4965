"""Rules for what a server asks of its client: requests in the legacy era, rounds of input in the modern era."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from trio_mcp.testing.rules.common import MODERN, code_of, declares, is_ordered, is_plain, lost, notifications, since
from trio_mcp.testing.rules.history import Asked, Connection, History
from trio_mcp.testing.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.testing.transcript.events import Event
from trio_mcp.types import error_codes, meta
from trio_mcp.types.common import INPUT_REQUIRED
from trio_mcp.types.methods import method_spec

__all__: list[str] = []

ASKING: Final = ("call-with-capabilities", "continue-rounds", "call-tool")


@attrs.frozen
class Question:
    """What a server asks: a request of its own, or an entry of a result.

    Attributes:
        event: The message that it is in.
        method: Its method.
        params: Its parameters.
        capabilities: What the client declared, as far as it counts here.
    """

    event: Event
    method: str
    params: dict[str, Any]
    capabilities: dict[str, Any]


def _questions(history: History) -> Iterator[Question]:
    for connection in history:
        for asked in connection.questions:
            if connection.hello is not None:
                yield Question(asked.event, asked.method, asked.params, connection.client_capabilities)
        for asked in connection.requests:
            if _asks(asked):
                declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
                for each in _entries(asked):
                    method, params = each.get("method"), each.get("params")
                    if isinstance(method, str) and isinstance(declared, dict):
                        yield Question(asked.answers[0], method, params if isinstance(params, dict) else {}, declared)


def _asks(asked: Asked) -> bool:
    return asked.result is not None and asked.result.get("resultType") == INPUT_REQUIRED


def _entries(asked: Asked) -> list[dict[str, Any]]:
    found = (asked.result or {}).get("inputRequests")
    return [each for each in found.values() if isinstance(each, dict)] if isinstance(found, dict) else []


# --- rounds -----------------------------------------------------------------------------------------------------------


def _rounds(history: History) -> Iterator[tuple[Connection, Asked, Event]]:
    for connection in history:
        for asked in connection.requests:
            if connection.modern and _asks(asked):
                yield connection, asked, asked.answers[0]


@rule(
    "MUST",
    "server",
    "basic/patterns/mrtr#supported-requests",
    "Ask for input only in answer to tools/call, prompts/get and resources/read.",
    revisions=MODERN,
    moves=(*ASKING, "list-all", "get-prompt", "read-resource"),
)
def input_required_where_allowed(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            if asked.result is None or not connection.modern:
                continue
            spec = method_spec(connection.revision, asked.method)
            if spec is not None:
                kept = spec.may_ask_for_input or not _asks(asked)
                yield judged(kept, asked.answers[0], f"{asked.method} was answered with a request for input")


@rule(
    "MUST",
    "server",
    "basic/patterns/mrtr#server-requirements-basic-workflow",
    "Put input requests, `requestState` or both into each request for input.",
    revisions=MODERN,
    moves=ASKING,
)
def input_required_has_content(history: History) -> Iterator[Verdict]:
    for _, asked, answer in _rounds(history):
        result = asked.result or {}
        kept = "inputRequests" in result or "requestState" in result
        yield judged(kept, answer, "the result has neither inputRequests nor requestState")


@rule(
    "MUST",
    "server",
    "basic/patterns/mrtr#server-requirements-basic-workflow",
    "Ask only for elicitation, sampling or roots.",
    revisions=MODERN,
    moves=ASKING,
)
def input_requests_known(history: History) -> Iterator[Verdict]:
    known = ("elicitation/create", "sampling/createMessage", "roots/list")
    for _, asked, answer in _rounds(history):
        wrong = next((each.get("method") for each in _entries(asked) if each.get("method") not in known), None)
        yield judged(wrong is None, answer, f"a client can't be asked for {wrong!r:.60}")


@rule(
    "SHOULD",
    "server",
    "basic/patterns/mrtr#error-handling",
    "Ask again for answers that are missing, rather than refuse.",
    revisions=MODERN,
    moves=("continue-rounds",),
)
def missing_input_asked_again(history: History) -> Iterator[Verdict]:
    for connection in history:
        for before, asked in _retries(connection):
            questions = (before.result or {}).get("inputRequests")
            responses = asked.params.get("inputResponses", {})
            if not asked.answers or not isinstance(questions, dict) or not isinstance(responses, dict):
                continue
            if set(questions) - set(responses) and _same_state(before, asked) and is_plain(connection, asked.event):
                code = code_of(asked)
                # Other errors may have other reasons.
                kept = code != error_codes.INVALID_PARAMS
                yield judged(kept, asked.answers[0], "missing answers were refused with -32602, not asked for again")


@rule(
    "SHOULD",
    "server",
    "basic/patterns/mrtr#error-handling",
    "Ignore answers that were not asked for, and check those that were.",
    revisions=MODERN,
    moves=("continue-rounds",),
)
def bad_input_responses_refused(history: History) -> Iterator[Verdict]:
    for connection in history:
        for before, asked in _retries(connection):
            questions = (before.result or {}).get("inputRequests")
            responses = asked.params.get("inputResponses")
            if not asked.answers or not isinstance(questions, dict) or not isinstance(responses, dict):
                continue
            wrong = [key for key in questions if key in responses and _is_nonsense(questions[key], responses[key])]
            if wrong and _same_state(before, asked):
                result = asked.result
                served = result is not None and not _asks(asked) and result.get("isError") is not True
                yield judged(not served, asked.answers[0], f"the answer to {wrong[0]!r:.60} was nonsense, but taken")


def _is_nonsense(question: Any, response: Any) -> bool:
    """Return whether an answer can't be what its question asks for, whatever one makes of it."""
    method = question.get("method") if isinstance(question, dict) else None
    if not isinstance(response, dict):
        return True
    if method == "elicitation/create":
        return response.get("action") not in ("accept", "decline", "cancel")
    if method == "sampling/createMessage":
        return not isinstance(response.get("content"), (dict, list))
    return method == "roots/list" and not isinstance(response.get("roots"), list)


def _retries(connection: Connection) -> Iterator[tuple[Asked, Asked]]:
    """Yield each request for input with the request that came back with answers or its state."""
    rounds = [asked for asked in connection.requests if connection.modern and _asks(asked)]
    for asked in connection.requests:
        if "inputResponses" not in asked.params and "requestState" not in asked.params:
            continue
        before = [
            each
            for each in rounds
            if connection.position(each.answers[0]) < connection.position(asked.event)
            and each.method == asked.method
            and _subject(each) == _subject(asked)
            and _same_state(each, asked)
        ]
        if before:
            yield before[-1], asked


def _subject(asked: Asked) -> Any:
    return [asked.params.get(key) for key in ("name", "uri", "arguments")]


def _same_state(before: Asked, asked: Asked) -> bool:
    return bool((before.result or {}).get("requestState") == asked.params.get("requestState"))


@rule(
    "MUST",
    "server",
    "basic/patterns/mrtr#server-requirements-basic-workflow",
    "Live with a `requestState` that was changed: answer, and go on.",
    revisions=MODERN,
    moves=("continue-rounds",),
)
def request_state_tampering_survived(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests("tools/call", "prompts/get", "resources/read"):
        if not connection.modern or not isinstance(asked.params.get("requestState"), str):
            continue
        states = [(each.result or {}).get("requestState") for each in connection.requests if _asks(each)]
        if states and asked.params["requestState"] not in states:
            if asked.answers:
                yield held(asked.answers[0])
            elif connection.close is not None and connection.close.sender == "server" and is_ordered(connection):
                yield broken(connection.close, "the server ended over a requestState that was changed")
            elif (mark := lost(asked)) is not None:
                yield broken(mark, "a request whose requestState was changed was not answered")


# --- what may be asked ------------------------------------------------------------------------------------------------


@rule(
    "MUST",
    "server",
    "basic/patterns/mrtr#server-requirements-basic-workflow",
    "Ask for no input that the client did not declare.",
    older="basic/lifecycle#operation",
    revisions=since("2025-06-18"),
    moves=ASKING,
)
def input_within_capabilities(history: History) -> Iterator[Verdict]:
    needs = {"roots/list": "roots", "sampling/createMessage": "sampling", "elicitation/create": "elicitation"}
    for question in _questions(history):
        needed = needs.get(question.method)
        if question.method == "sampling/createMessage" and (
            "tools" in question.params or "toolChoice" in question.params
        ):
            needed = "sampling.tools"
        if needed is not None:
            kept = declares(question.capabilities, needed)
            yield judged(kept, question.event, f"{question.method} was asked, but the client did not declare {needed}")


@rule(
    "MUST",
    "server",
    "client/elicitation#capabilities",
    "Ask in no mode that the client lacks.",
    revisions=since("2025-11-25"),
    moves=ASKING,
)
def elicitation_within_modes(history: History) -> Iterator[Verdict]:
    for question in _questions(history):
        declared = question.capabilities.get("elicitation")
        if question.method == "elicitation/create" and isinstance(declared, dict):
            mode = question.params.get("mode", "form")
            # An empty object stands for forms.
            kept = mode in (declared or {"form": {}})
            yield judged(kept, question.event, f"the client did not declare elicitation by {mode!r:.20}")


@rule(
    "MUST",
    "server",
    "client/elicitation#elicitation-requests",
    "Say in each elicitation why it is needed; send a schema with each form, and a URL with each other one.",
    revisions=since("2025-06-18"),
    moves=ASKING,
)
def elicitation_shape(history: History) -> Iterator[Verdict]:
    for question in _questions(history):
        if question.method == "elicitation/create":
            params = question.params
            needed: dict[str, type] = {"message": str}
            mode = params.get("mode", "form")
            needed |= {"url": str} if mode == "url" else {"requestedSchema": dict}
            wrong = next((key for key, kind in needed.items() if not isinstance(params.get(key), kind)), None)
            if mode not in ("form", "url"):
                wrong = "mode"
            yield judged(wrong is None, question.event, f"the elicitation has no valid {wrong}")


@rule(
    "MUST",
    "server",
    "client/elicitation#url-mode-elicitation-requests",
    "Send a URL that is valid.",
    revisions=since("2025-11-25"),
    moves=ASKING,
)
def elicitation_url_valid(history: History) -> Iterator[Verdict]:
    for question in _questions(history):
        url = question.params.get("url")
        if question.method == "elicitation/create" and question.params.get("mode") == "url" and isinstance(url, str):
            yield judged(_is_url(url), question.event, f"{url!r:.100} is not a URL")


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+", value) is not None and bool(
        parts.netloc or parts.scheme not in ("http", "https")
    )


_LINK: Final = re.compile(r"https?://\S")


@rule(
    "SHOULD",
    "server",
    "client/elicitation#safe-url-handling",
    "Put no links into a form.",
    revisions=since("2025-11-25"),
    moves=ASKING,
)
def elicitation_no_links(history: History) -> Iterator[Verdict]:
    for question in _questions(history):
        if question.method == "elicitation/create" and question.params.get("mode", "form") == "form":
            texts = list(_texts(question.params.get("message")))
            schema = question.params.get("requestedSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            for field in properties.values() if isinstance(properties, dict) else ():
                if isinstance(field, dict):
                    texts += [*_texts(field.get("title")), *_texts(field.get("description"))]
            found = next((text for text in texts if _LINK.search(text)), None)
            yield judged(found is None, question.event, f"the form has a link: {found!r:.100}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value


# --- sampling ---------------------------------------------------------------------------------------------------------


def _samplings(history: History) -> Iterator[tuple[Question, list[tuple[Any, list[dict[str, Any]]]]]]:
    """Yield the requests for sampling with their messages: role and blocks of each."""
    for question in _questions(history):
        found = question.params.get("messages")
        if question.method == "sampling/createMessage" and isinstance(found, list):
            messages = []
            for each in found:
                content = each.get("content") if isinstance(each, dict) else None
                blocks = content if isinstance(content, list) else [content]
                role = each.get("role") if isinstance(each, dict) else None
                messages.append((role, [block for block in blocks if isinstance(block, dict)]))
            yield question, messages


@rule(
    "MUST",
    "server",
    "client/sampling#tool-use-and-result-balance",
    "Answer all tool uses of a message in the next one, with their results and nothing else.",
    revisions=since("2025-11-25"),
    moves=ASKING,
)
def sampling_tool_balance(history: History) -> Iterator[Verdict]:
    for question, messages in _samplings(history):
        yield Verdict(question.event, _balance_problem(messages))


def _balance_problem(messages: list[tuple[Any, list[dict[str, Any]]]]) -> str | None:
    waiting: list[Any] = []
    for role, blocks in messages:
        results = [block.get("toolUseId") for block in blocks if block.get("type") == "tool_result"]
        if results and len(results) < len(blocks):
            return "a message mixes tool results with other content"
        if results and role != "user":
            return f"tool results are in a message of the {role}"
        if sorted(map(str, results)) != sorted(map(str, waiting)):
            return f"the tool uses {waiting} are followed by the results {results}"
        waiting = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    return None if not waiting else f"the tool uses {waiting} are followed by nothing"


@rule(
    "SHOULD",
    "server",
    "client/sampling#capabilities",
    "Use `thisServer` and `allServers` only if the client declared `sampling.context`.",
    revisions=since("2025-11-25"),
    moves=ASKING,
)
def sampling_context_declared(history: History) -> Iterator[Verdict]:
    for question, _ in _samplings(history):
        wanted = question.params.get("includeContext", "none")
        kept = wanted == "none" or declares(question.capabilities, "sampling.context")
        yield judged(kept, question.event, f"includeContext is {wanted!r:.20}, but sampling.context is not declared")


# --- elicitation by URL in 2025-11-25 ---------------------------------------------------------------------------------


@rule(
    "MUST",
    "server",
    "client/elicitation#url-elicitation-required-error",
    "List in -32042 the elicitations that are needed, each by URL and with its id.",
    revisions=("2025-11-25",),
    moves=("call-tool",),
)
def url_required_error_shape(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            if code_of(asked) != error_codes.URL_ELICITATION_REQUIRED:
                continue
            data = (asked.error or {}).get("data")
            found = data.get("elicitations") if isinstance(data, dict) else None
            kept = bool(found) and isinstance(found, list) and all(map(_is_by_url, found))
            yield judged(
                kept, asked.answers[0], "error.data.elicitations must list elicitations by URL, with their ids"
            )


def _is_by_url(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("mode") == "url"
        and all(isinstance(value.get(key), str) for key in ("url", "elicitationId", "message"))
    )


@rule(
    "MUST",
    "server",
    "client/elicitation#completion-notifications-for-url-mode-elicitation",
    "Name in the notification that an elicitation is complete the id of one that this client was sent.",
    revisions=("2025-11-25",),
    moves=("call-tool",),
)
def elicitation_complete_known(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in notifications(connection, "server", "notifications/elicitation/complete"):
            params = event.message.get("params")
            found = params.get("elicitationId") if isinstance(params, dict) else None
            place = connection.position(event)
            yield judged(found in _given_ids(connection, place), event, f"no elicitation had the id {found!r:.60}")


def _given_ids(connection: Connection, before: int) -> set[Any]:
    found: set[Any] = set()
    for asked in connection.questions:
        if asked.method == "elicitation/create" and connection.position(asked.event) < before:
            found.add(_hashable(asked.params.get("elicitationId")))
    for asked in connection.requests:
        data = (asked.error or {}).get("data")
        listed = data.get("elicitations") if isinstance(data, dict) else None
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict):
                found.add(_hashable(each.get("elicitationId")))
    return found


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (str, int)) else None
