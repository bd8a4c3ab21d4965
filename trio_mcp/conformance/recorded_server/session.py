"""A recorded server at work: it handles the messages of one client as the recording says, over any transport."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from trio_mcp.conformance.members import member_of, object_of
from trio_mcp.conformance.recorded_server.book import (
    LISTEN,
    Book,
    Cue,
    RecordedStep,
    comparable,
    key_of,
    request_text,
    shown,
)
from trio_mcp.conformance.rules.history import id_key, is_notification, is_request, is_response
from trio_mcp.conformance.transcript.masking import Masker
from trio_mcp.types import error_codes, meta

__all__ = ["Play", "RecordedSession", "Send", "error"]

Send = Callable[[Any], Awaitable[None]]
"""Sends a message."""

MAX_PLAYS: Final = 1000
"""How many requests of a client may be under way (an arbitrary choice)."""


@attrs.define(eq=False)
class Play:
    """A message of the client under way.

    Attributes:
        message: The message.
        cues: The recorded messages like it: the first is followed; the others are those that the client may turn to.
        scope: Cancelled when the client gives up the message.
        send: Sends on the stream of the message's own response, while there is one.
    """

    message: dict[str, Any]
    cues: list[Cue]
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    send: Send | None = None

    @property
    def streams(self) -> bool:
        """Whether anything besides the response belongs to the message's own stream."""
        cue = self.cues[0] if self.cues else None
        return cue is not None and (
            cue.method == LISTEN or any(step.kind != "answer" and not step.apart for step in cue.steps)
        )

    @property
    def refused(self) -> int | None:
        """The HTTP status with which it was refused, if it got no other response."""
        cue = self.cues[0] if self.cues else None
        refused = cue is not None and not cue.steps and cue.status is not None and cue.status >= 400
        return cue.status if cue is not None and refused else None

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        cue = self.cues[0] if self.cues else None
        return 200 if cue is None or cue.status is None else cue.status


class RecordedSession:
    """A recorded server for one client.

    Args:
        book: The recording.
        send_apart: Sends what does not belong to the stream of a request.
    """

    def __init__(self, book: Book, send_apart: Send) -> None:
        self._book = book
        self._send_apart = send_apart
        self._masker = Masker()
        self._used: dict[str, int] = {}
        self._plays: dict[Any, Play] = {}
        self._listening: dict[int, Play] = {}
        self._questions: dict[Any, tuple[trio.Event, list[Any]]] = {}
        self._asked = 0

    def begin(self, message: Any) -> Play | None:
        """Take a message from the client; return what has to be played for it, if anything.

        This does not wait, so messages are taken in the order in which they arrive.
        """
        if is_response(message):
            if (waiting := self._questions.pop(id_key(message.get("id")), None)) is not None:
                waiting[1].append(message)
                waiting[0].set()
        elif is_request(message):
            play = Play(message, self._next(self._book.find(message["method"], self._params(message))))
            self._plays[id_key(message["id"])] = play
            return play
        elif is_notification(message):
            if message["method"] != "notifications/cancelled":
                found = self._next(self._book.notices.get(message["method"], []))
                return Play(message, found) if found else None
            if (given_up := self._plays.get(id_key(member_of(message, "params", "requestId")))) is not None:
                given_up.scope.cancel("cancelled by the client")
        return None

    def _params(self, message: dict[str, Any]) -> dict[str, Any]:
        return object_of(self._masker.value(message).get("params"))

    def _next(self, cues: list[Cue]) -> list[Cue]:
        """Return the recorded messages from the next one on: each is used once, and the last one from then on."""
        if not cues:
            return []
        key = f"{cues[0].method} {cues[0].key}"
        place = self._used.get(key, 0)
        self._used[key] = place + 1
        place = min(place, len(cues) - 1)
        return [cues[place], *cues[:place], *cues[place + 1 :]]

    async def play(self, play: Play, send: Send) -> None:
        """Do what was recorded for a message; a request that is cancelled ends without a response."""
        play.send = send
        try:
            with play.scope:
                if is_request(play.message):
                    await self._respond(play)
                else:
                    await self._follow(play, play.cues[0])
        finally:
            play.send = None
            if is_request(play.message) and self._plays.get(key := id_key(play.message["id"])) is play:
                del self._plays[key]

    async def _respond(self, play: Play) -> None:
        message = play.message
        if len(self._plays) > MAX_PLAYS:
            await self._answer(play, error(message, error_codes.INTERNAL_ERROR, "too many requests are under way"))
            return
        if not play.cues:
            await self._answer(play, self._unrecorded(message))
            return
        cue = play.cues[0]
        if cue.method == LISTEN:
            for each in play.cues:
                self._listening[id(each)] = play
        try:
            await self._follow(play, cue)
            if not cue.is_answered and (cue.cancelled or cue.method == LISTEN):
                await trio.sleep_forever()  # until the client gives up, as it did
            if not cue.is_answered:
                text = f"the recording ends before the response to {request_text(cue.key)}"
                await self._answer(play, error(message, error_codes.INTERNAL_ERROR, text))
        finally:
            if cue.method == LISTEN:
                self._listening = {key: each for key, each in self._listening.items() if each is not play}

    def _unrecorded(self, message: dict[str, Any]) -> dict[str, Any]:
        method, params = message["method"], self._params(message)
        if method == "ping":
            return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
        what = f"not in the recording: {request_text(key_of(method, params))}"
        if (nearest := self._book.nearest(method, params)) is not None:
            return error(message, error_codes.INVALID_PARAMS, f"{what}; the nearest recorded request is {nearest}")
        methods = shown(", ".join(self._book.methods))
        return error(message, error_codes.METHOD_NOT_FOUND, f"{what}; the recorded methods are {methods}")

    async def _answer(self, play: Play, message: dict[str, Any]) -> None:
        if play.send is not None:
            await play.send(message)

    async def _follow(self, play: Play, cue: Cue) -> None:
        place = 0
        while place < len(cue.steps):
            step = cue.steps[place]
            if step.kind == "answer":
                await self._answer(play, {**step.message, "id": play.message["id"]})
            elif step.kind == "notice":
                await self._notify(play, step)
            else:
                given = await self._ask(play, step)
                if given is not None and not _fits(step, given):
                    other = _other(play.cues, place, step, given)
                    if other is None:
                        await self._answer(play, _other_answer(play.message, step, given))
                        return
                    cue = other
            place += 1

    async def _notify(self, play: Play, step: RecordedStep) -> None:
        message, send = step.message, self._way(play, step)
        params = object_of(message.get("params"))
        if message["method"] == "notifications/progress":
            token = member_of(play.message, "params", "_meta", meta.PROGRESS_TOKEN)
            # A client that does not want progress gets none, and so does one whose request has ended.
            if token is None or step.apart:
                return
            params = {**params, "progressToken": token}
        elif message["method"] == "notifications/cancelled":
            return  # the server gave up a question, whose answer is not waited for here
        listener = play if step.listener is None else self._listening.get(id(step.listener))
        if member_of(params, "_meta", meta.SUBSCRIPTION_ID) is not None:
            if listener is None:
                return  # the client does not listen
            params = {**params, "_meta": {**params["_meta"], meta.SUBSCRIPTION_ID: listener.message["id"]}}
        if step.listener is not None:
            if listener is None or listener.send is None:
                return
            send = listener.send
        await send({**message, "params": params} if "params" in message else message)

    def _way(self, play: Play, step: RecordedStep) -> Send:
        return self._send_apart if step.apart or play.send is None else play.send

    async def _ask(self, play: Play, step: RecordedStep) -> dict[str, Any] | None:
        """Ask the client what was asked; return its response, or None if the recorded client gave none."""
        self._asked += 1
        question = f"recorded-{self._asked}"
        answered, answers = trio.Event(), list[Any]()
        self._questions[question_key := id_key(question)] = answered, answers
        await self._way(play, step)({**step.message, "id": question})
        if step.answer is None:
            return None
        try:
            await answered.wait()
        finally:
            self._questions.pop(question_key, None)
        found: dict[str, Any] = self._masker.value(answers[0])
        return found


def _fits(step: RecordedStep, given: dict[str, Any]) -> bool:
    """Return whether the client's answer to a question is as good as the one that was recorded."""
    recorded = object_of(step.answer)
    if "error" in recorded or "error" in given:
        return "error" in recorded and "error" in given
    return bool(comparable(recorded.get("result")) == comparable(given.get("result")))


def _other(cues: list[Cue], place: int, step: RecordedStep, given: dict[str, Any]) -> Cue | None:
    """Return another recording of the same request in which the client answered as it has now."""
    for cue in cues:
        found = cue.steps[place] if place < len(cue.steps) else None
        is_same = found is not None and found.message.get("method") == step.message["method"]
        if found is not None and is_same and found.answer is not None and _fits(found, given):
            return cue
    return None


def _apart(one: dict[str, Any], other: dict[str, Any]) -> tuple[Any, Any]:
    """Return what differs between two responses: where both filled in a form, the fields that differ."""
    first, second = (each.get("result", each.get("error")) for each in (one, other))
    forms = [member_of(each, "content") for each in (first, second)]
    if not all(isinstance(form, dict) for form in forms) or member_of(first, "action") != member_of(second, "action"):
        return first, second
    old, new = forms
    differing = [name for name in {**old, **new} if name not in old or name not in new or old[name] != new[name]]
    fields = ({name: form[name] for name in differing if name in form} for form in (old, new))
    return next(fields), next(fields)


def _other_answer(message: dict[str, Any], step: RecordedStep, given: dict[str, Any]) -> dict[str, Any]:
    texts = [shown(json.dumps(each)) for each in _apart(object_of(step.answer), given)]
    text = f"not in the recording: {step.message['method']} was answered with {texts[0]}, and now with {texts[1]}"
    return error(message, error_codes.INTERNAL_ERROR, text)


def error(message: dict[str, Any], code: int, text: str) -> dict[str, Any]:
    """Return an error response to a request."""
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}}
