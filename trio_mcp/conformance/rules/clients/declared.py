"""Capabilities of a client: what it may be asked, and what it makes of what it may not be asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import attrs

from trio_mcp.conformance.rules.clients.shared import legacy, retries
from trio_mcp.conformance.rules.common import is_ordered
from trio_mcp.conformance.rules.history import History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.types.versions import LEGACY_REVISIONS

NEEDED: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
"""The capability that a question needs, by its method."""
LONGEST_TOKEN: Final = 128
"""Characters; chosen: far more than a token of any model has."""


@attrs.frozen
class QuestionReply:
    """A client's reply to a question: a response, or in the modern era an answer in a retry.

    Attributes:
        event: The event of the reply.
        method: The method of the question.
        params: Its parameters.
        declared: What the client had declared.
        result: The result, if it is one.
        code: The code of the error, if it is one.
    """

    event: Event
    method: str
    params: dict[str, Any]
    declared: dict[str, Any]
    result: dict[str, Any] | None
    code: Any = None

    def declares(self, *names: str) -> bool:
        """Return whether the client had declared a capability, or one below it."""
        found: Any = self.declared
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found is not None and found is not False


def replies(history: History, *methods: str) -> Iterator[QuestionReply]:
    """Yield the first reply to each question of these methods, or of all; not to those that were withdrawn."""
    for connection in history:
        for asked in connection.questions:
            if asked.method in (methods or NEEDED) and asked.answers and asked.cancelled is None:
                error = asked.error
                code = None if error is None else error.get("code")
                declared = connection.client_capabilities
                yield QuestionReply(asked.answers[0], asked.method, asked.params, declared, asked.result, code)
        for before, retry in retries(connection):
            given = _object(retry.params.get("inputResponses"))
            for key, question in _object((before.result or {}).get("inputRequests")).items():
                method, result = str(_object(question).get("method")), given.get(key)
                if method in (methods or NEEDED) and isinstance(result, dict):
                    # The server could only go by what was declared with the request that it answered, so the retry's
                    # own doesn't count.
                    declared = _object(before.meta.get(meta.CLIENT_CAPABILITIES))
                    yield QuestionReply(retry.event, method, _object(question.get("params")), declared, result)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


@stated_rule(sentence="A client that supports sampling, elicitation or roots declares it.")
def client_capabilities_declared(history: History) -> Iterator[Verdict]:
    """Judge each reply: who gives a result supports it."""
    for reply in replies(history):
        # An error shows nothing: a client that supports a feature may refuse as well as one that doesn't.
        kept = reply.result is None or reply.declares(NEEDED[reply.method])
        yield judged(kept, reply.event, f"it answers {reply.method}, which it does not declare")


@stated_rule(since="2025-11-25")
def sampling_tools_refused(history: History) -> Iterator[Verdict]:
    """Judge the replies to sampling with tools, or with a choice of tools."""
    for reply in replies(history, "sampling/createMessage"):
        if {"tools", "toolChoice"} & set(reply.params) and not reply.declares("sampling", "tools"):
            # The clients of all official SDKs answer. In 2026-07-28 it is a matter of reading how they could refuse:
            # what a retry brings for a question can't be an error.
            yield judged(reply.result is None, reply.event, "it takes tools for sampling, which it does not declare")


@stated_rule(since="2025-11-25")
def elicitation_mode_refused(history: History) -> Iterator[Verdict]:
    """Judge the replies to elicitations by clients that have declared another mode."""
    for reply in replies(history, "elicitation/create"):
        # Without the capability the method itself is unknown, and -32601 is right.
        if reply.declares("elicitation") and not _has_mode(reply):
            kept = reply.result is None and reply.code == INVALID_PARAMS
            yield judged(kept, reply.event, f"the mode {reply.params.get('mode', 'form')!r} is not refused with -32602")


@stated_rule(
    since="2025-11-25",
    sentence="A client supports each mode of elicitation that it has declared; a request without a mode is for a form.",
)
def elicitation_mode_supported(history: History) -> Iterator[Verdict]:
    """Judge the replies to elicitations in declared modes, by whether they say that this can't be asked."""
    for reply in replies(history, "elicitation/create"):
        if reply.declares("elicitation") and _has_mode(reply):
            # A user may decline, and a client fail for reasons of its own; these two codes say that it never could ask.
            kept = reply.code not in (INVALID_PARAMS, METHOD_NOT_FOUND)
            yield judged(kept, reply.event, f"it refuses the mode {reply.params.get('mode', 'form')!r}")


def _has_mode(reply: QuestionReply) -> bool:
    # Without modes the capability is that for forms.
    named = any(reply.declares("elicitation", mode) for mode in ("form", "url"))
    mode = reply.params.get("mode", "form")
    return reply.declares("elicitation", str(mode)) if named else mode == "form"


@stated_rule(
    since="2025-11-25",
    sentence="The model uses a tool if the server requires one, and no tool if the server wants none.",
)
def tool_choice_respected(history: History) -> Iterator[Verdict]:
    """Judge the results of sampling with a choice of tools."""
    for reply in replies(history, "sampling/createMessage"):
        mode = _object(reply.params.get("toolChoice")).get("mode")
        # "auto" leaves the choice to the model, and a client without `sampling.tools` may ignore what it doesn't know.
        if reply.result is not None and mode in ("required", "none") and reply.declares("sampling", "tools"):
            content = reply.result.get("content")
            blocks = content if isinstance(content, list) else [content]
            uses = any(_object(block).get("type") == "tool_use" for block in blocks)
            problem = "the model uses a tool" if uses else "the model uses no tool"
            yield judged(uses == (mode == "required"), reply.event, f"{problem}, though toolChoice is {mode}")


@stated_rule()
def max_tokens_respected(history: History) -> Iterator[Verdict]:
    """Judge texts that have more characters than any model's tokens could hold."""
    for reply in replies(history, "sampling/createMessage"):
        limit, text = reply.params.get("maxTokens"), _object((reply.result or {}).get("content")).get("text")
        if isinstance(limit, int) and isinstance(text, str):
            kept = len(text) <= limit * LONGEST_TOKEN
            yield judged(kept, reply.event, f"{len(text)} characters are more than {limit} tokens")


@stated_rule()
def roots_change_announced(history: History) -> Iterator[Verdict]:
    """Judge each list of roots after the first: if it differs, the change was announced in between, or right after."""
    for connection in legacy(history):
        if _object(connection.client_capabilities.get("roots")).get("listChanged") is not True:
            continue
        notices = [connection.position(each) for each in connection.notifications("client", CHANGED)]
        listed = [asked for asked in connection.questions if asked.method == "roots/list" and asked.result]
        for before, later in itertools.pairwise(listed):
            # Until the next question was answered the notice may have been on its way.
            begin = connection.position(before.event)
            told = any(place > begin for place in notices)
            same = (before.result or {}).get("roots") == (later.result or {}).get("roots")
            yield judged(same or told, later.answers[0], "the roots are others than before, and that was not announced")


CHANGED: Final = "notifications/roots/list_changed"


@stated_rule(
    who="client",
    revisions=LEGACY_REVISIONS,
    sentence="A client reports progress only of what the server has asked with a token and not got yet, and more "
    "each time.",
)
def client_progress_known(history: History) -> Iterator[Verdict]:
    """Judge each progress notification of the client."""
    for connection in legacy(history):
        told: dict[Any, float] = {}
        for event in connection.notifications("client", "notifications/progress"):
            params = _object(event.message.get("params"))
            token, progress = params.get("progressToken"), params.get("progress")
            asked = [each for each in connection.questions if _same(each.meta.get(meta.PROGRESS_TOKEN), token)]
            if not asked:
                yield broken(event, f"no request has the token {token!r}")
            # Over HTTP messages may overtake each other.
            elif not is_ordered(connection):
                yield Verdict(event)
            # A token is free again once its request is answered, so the newest request with it is the one meant.
            elif _answered_before(asked[-1], event, connection.position):
                yield broken(event, f"the request with the token {token!r} was answered before")
            elif isinstance(progress, (int, float)):
                key = type(token), token
                yield judged(progress > told.get(key, float("-inf")), event, f"the progress {progress} is not more")
                told[key] = progress


def _same(value: Any, token: Any) -> bool:
    return is_request_id(value) and type(value) is type(token) and value == token


def _answered_before(asked: RecordedRequest, event: Event, position: Any) -> bool:
    return bool(asked.answers) and position(asked.answers[0]) < position(event)
