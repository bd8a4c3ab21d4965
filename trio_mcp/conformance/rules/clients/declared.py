"""Rules for a client's capabilities: what a server may ask of it, and how it responds to anything else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import attrs

from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.clients.extension_tasks import task_answers
from trio_mcp.conformance.rules.clients.shared import legacy, retries
from trio_mcp.conformance.rules.common import code_of, declares, is_ordered, is_same_id
from trio_mcp.conformance.rules.history import History, id_key, params_of
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each
from trio_mcp.conformance.rules.questions import NEEDED, content_of
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.jsonrpc.messages import is_request_id
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.types.versions import LEGACY_REVISIONS

LONGEST_TOKEN: Final = 128
"""An upper bound on the characters in one token of a model. An arbitrary choice: far more than any token has."""


@attrs.frozen
class QuestionReply:
    """A client's reply to a server's question: a response, or in the modern era an answer.

    An answer comes in a retry of the request, or in an update of its task.

    Attributes:
        event: The event that carries the reply.
        method: The method of the question.
        params: The parameters of the question.
        declared: The capabilities that the client had declared.
        result: The result; None if the reply is an error.
        code: The code of the error; None if the reply is not an error with a code.
    """

    event: Event
    method: str
    params: dict[str, Any]
    declared: dict[str, Any]
    result: dict[str, Any] | None
    code: Any = None

    def declares(self, *names: str) -> bool:
        """Return whether the client had declared a capability, given as a path of names."""
        return declares(self.declared, ".".join(names))


def replies(*methods: str, withdrawn: bool = False) -> Occasions[QuestionReply]:
    """Return, as occasions for a rule, the first reply to each question of these methods.

    Args:
        methods: The methods of the questions.
        withdrawn: Whether to include replies to questions that were withdrawn.
    """

    def occasions(history: History) -> Iterator[tuple[Event, QuestionReply]]:
        for connection in history:
            for asked in connection.questions:
                if asked.method in methods and asked.answers and (withdrawn or asked.cancelled is None):
                    event, declared, code = asked.answers[0], connection.client_capabilities, code_of(asked)
                    yield event, QuestionReply(event, asked.method, asked.params, declared, asked.result, code)
            for before, retry in retries(connection):
                given = object_of(retry.params.get("inputResponses"))
                for key, question in object_of((before.result or {}).get("inputRequests")).items():
                    method, result = str(object_of(question).get("method")), given.get(key)
                    if method in methods and isinstance(result, dict):
                        # The capabilities are those of the request to which the server responded with the question.
                        # Those in the retry came too late for the server to go by them.
                        declared = object_of(before.meta.get(meta.CLIENT_CAPABILITIES))
                        params = object_of(question.get("params"))
                        yield retry.event, QuestionReply(retry.event, method, params, declared, result)
            for update, question, result in task_answers(connection):
                method, params = str(question.get("method")), object_of(question.get("params"))
                if method in methods:
                    declared = object_of(update.meta.get(meta.CLIENT_CAPABILITIES))
                    yield update.event, QuestionReply(update.event, method, params, declared, result)

    return occasions


@stated_rule(sentence="A client that supports sampling, elicitation or roots declares it.")
@each(replies(*NEEDED))
def client_capabilities_declared(_: Event, reply: QuestionReply) -> Opinion:
    """Require that a client that replies with a result has declared the capability."""
    # An error shows nothing, because a client that supports the feature may refuse as well as one that doesn't.
    kept = reply.result is None or reply.declares(NEEDED[reply.method])
    return None if kept else f"the client answered {reply.method} without declaring the capability"


@stated_rule()
@each(replies("sampling/createMessage"))
def sampling_tools_refused(_: Event, reply: QuestionReply) -> Opinion:
    """Require an error for sampling with tools, or with a choice of tools, from a client that has not declared it."""
    if not {"tools", "toolChoice"} & set(reply.params) or reply.declares("sampling", "tools"):
        return UNDECIDED
    # The clients of all official SDKs give a result, and so break this rule. How a client could refuse in 2026-07-28 is
    # open to interpretation, because an answer in a retry can't be an error.
    return None if reply.result is None else "the client accepted tools for sampling without declaring that capability"


@stated_rule()
@each(replies("elicitation/create"))
def elicitation_mode_refused(_: Event, reply: QuestionReply) -> Opinion:
    """Require the error -32602 for an elicitation in a mode that the client has not declared."""
    # Without the capability the client need not know the method at all, and -32601 is right.
    if not reply.declares("elicitation") or _has_mode(reply):
        return UNDECIDED
    kept = reply.result is None and reply.code == INVALID_PARAMS
    return None if kept else f"the client did not refuse the mode {reply.params.get('mode', 'form')!r} with -32602"


@stated_rule(
    sentence="A client supports each mode of elicitation that it has declared; a request without a mode is for a form.",
)
@each(replies("elicitation/create"))
def elicitation_mode_supported(_: Event, reply: QuestionReply) -> Opinion:
    """Check that a client does not refuse an elicitation in a mode that it has declared."""
    if not reply.declares("elicitation") or not _has_mode(reply):
        return UNDECIDED
    # A person may decline, and a client may fail for reasons of its own. Only these two codes say that the client can't
    # ask in this mode at all.
    kept = reply.code not in (INVALID_PARAMS, METHOD_NOT_FOUND)
    return None if kept else f"the client refused the mode {reply.params.get('mode', 'form')!r}, which it had declared"


def _has_mode(reply: QuestionReply) -> bool:
    # A capability that names no modes covers forms only.
    named = any(reply.declares("elicitation", mode) for mode in ("form", "url"))
    mode = reply.params.get("mode", "form")
    return reply.declares("elicitation", str(mode)) if named else mode == "form"


@stated_rule(
    sentence="The model uses a tool if the server requires one, and no tool if the server wants none.",
)
@each(replies("sampling/createMessage"))
def tool_choice_respected(_: Event, reply: QuestionReply) -> Opinion:
    """Check that the result of sampling uses a tool if ``toolChoice`` requires one, and none if it forbids them."""
    mode = object_of(reply.params.get("toolChoice")).get("mode")
    # Other results are not judged: "auto" leaves the choice to the model, and a client without `sampling.tools` may
    # ignore `toolChoice`.
    if reply.result is None or mode not in ("required", "none") or not reply.declares("sampling", "tools"):
        return UNDECIDED
    uses = bool(content_of(reply.result, "tool_use"))
    problem = "the model uses a tool" if uses else "the model uses no tool"
    return None if uses == (mode == "required") else f"{problem}, though toolChoice is {mode}"


@stated_rule()
@each(replies("sampling/createMessage"))
def max_tokens_respected(_: Event, reply: QuestionReply) -> Opinion:
    """Check that no sampled text is too long to fit in ``maxTokens`` tokens, whatever the model's tokenizer."""
    limit, text = reply.params.get("maxTokens"), object_of((reply.result or {}).get("content")).get("text")
    if not isinstance(limit, int) or not isinstance(text, str):
        return UNDECIDED
    return (
        f"a text of {len(text)} characters is longer than {limit} tokens" if len(text) > limit * LONGEST_TOKEN else None
    )


@stated_rule()
def roots_change_announced(history: History) -> Iterator[Verdict]:
    """Check that a list of roots that differs from the previous one was announced by a notification."""
    for connection in legacy(history):
        if object_of(connection.client_capabilities.get("roots")).get("listChanged") is not True:
            continue
        notices = [connection.position(each) for each in connection.notifications("client", CHANGED)]
        listed = [asked for asked in connection.questions if asked.method == "roots/list" and asked.result]
        for before, later in itertools.pairwise(listed):
            # Any notification after the earlier question counts, as it may have been on its way when the client
            # answered the later question.
            begin = connection.position(before.event)
            told = any(place > begin for place in notices)
            same = (before.result or {}).get("roots") == (later.result or {}).get("roots")
            yield judged(same or told, later.answers[0], "the roots have changed, but that was not announced")


CHANGED: Final = "notifications/roots/list_changed"


@stated_rule(
    who="client",
    revisions=LEGACY_REVISIONS,
    sentence="A client reports progress only of what the server has asked with a token and not got yet, and more "
    "each time.",
)
def client_progress_known(history: History) -> Iterator[Verdict]:
    """Check that the client reports progress only with tokens of open requests, and that the progress increases."""
    for connection in legacy(history):
        told: dict[Any, float] = {}
        for event in connection.notifications("client", "notifications/progress"):
            token, progress = params_of(event).get("progressToken"), params_of(event).get("progress")
            asked = [one for one in connection.questions if is_same_id(one.meta.get(meta.PROGRESS_TOKEN), token)]
            if not asked or not is_request_id(token):
                yield broken(event, f"no request has the token {token!r}")
            # Over HTTP messages may overtake each other, so their order proves nothing.
            elif not is_ordered(connection):
                yield held(event)
            # A token is free again once its request has its response, so the newest request with the token is meant.
            elif asked[-1].answers and connection.position(asked[-1].answers[0]) < connection.position(event):
                yield broken(event, f"the request with the token {token!r} had already been answered")
            elif isinstance(progress, (int, float)):
                key = id_key(token)
                yield judged(
                    progress > told.get(key, float("-inf")),
                    event,
                    f"the progress {progress} is not greater than before",
                )
                told[key] = progress
