"""The ``requestState`` of a request that waits for input (2026-07-28 `basic/patterns/mrtr`), sans-IO.

It passes through the client, so it is signed (HMAC-SHA256), and bound to the request, the principal and a time. It is
not encrypted: the client can read the answers so far, the handler's state, and digests of the questions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import attrs
from pydantic_core import from_json

from trio_mcp.errors import TrioMcpError

__all__ = ["MAX_STATE", "MIN_KEY", "Answer", "Question", "RequestState", "StateRefused", "StateSealer", "digest_of"]

MIN_KEY = 32
"""Bytes of a key: as many as the hash has (RFC 2104, section 3)."""

MAX_STATE = 1_000_000
"""Characters of a token: the answers of a few rounds, but no bulk."""

_VERSION = "1"
# What the retry adds to the request; everything else is what the client asks for.
_ADDED = frozenset({"_meta", "inputResponses", "requestState"})


class StateRefused(TrioMcpError):
    """A token is not for this request; the text may be told to the client."""


class Question(NamedTuple):
    """What was asked under a key.

    Attributes:
        method: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.
        digest: Of the whole question: an answer belongs to the very question that was asked.
    """

    method: str
    digest: str


class Answer(NamedTuple):
    """A question, and its answer as plain data."""

    question: Question
    data: Any


@attrs.frozen
class RequestState:
    """What a server has to know when the client comes back.

    Attributes:
        round: How often the request has been answered with questions.
        questions: Those of the last round, by key.
        answers: Those of the rounds before, by key.
        memory: What the handler wants to do once only, by key: see `Context.once`.
        state: The handler's own (`InputRequired`); JSON.
        parked: Where the suspended handler waits; None if the handler is to run again.
    """

    round: int = 0
    questions: dict[str, Question] = attrs.Factory(dict)
    answers: dict[str, Answer] = attrs.Factory(dict)
    memory: dict[str, Any] = attrs.Factory(dict)
    state: Any = None
    parked: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "r": self.round,
            "q": {key: [each.method, each.digest] for key, each in self.questions.items()},
            "a": {key: [each.question.method, each.question.digest, each.data] for key, each in self.answers.items()},
            "o": self.memory,
            "s": self.state,
            "k": self.parked,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RequestState:
        """From what `to_json` gave."""
        return cls(
            round=data["r"],
            questions={key: Question(*each) for key, each in data["q"].items()},
            answers={key: Answer(Question(method, digest), it) for key, (method, digest, it) in data["a"].items()},
            memory=data["o"],
            state=data["s"],
            parked=data["k"],
        )


def digest_of(value: Any) -> str:
    """A digest of JSON data, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class StateSealer:
    """Makes tokens of states, and states of tokens.

    Args:
        audience: Who may open what it seals: the server's name.
        keys: The first seals, any opens; None for a random one, with which no other process opens anything.
        clock: Gives the seconds since the epoch.

    Raises:
        TypeError, ValueError: A key can't be used.
    """

    def __init__(
        self, audience: str, keys: bytes | Sequence[bytes] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        if keys is None:
            keys = [secrets.token_bytes(MIN_KEY)]
        elif isinstance(keys, (bytes, bytearray, memoryview)):
            keys = [bytes(keys)]
        elif isinstance(keys, str) or not isinstance(keys, Sequence):
            raise TypeError(f"request_state_key must be bytes or a sequence of bytes, got {type(keys).__name__}")
        if not keys:
            raise ValueError("request_state_key must have a key; None makes a random one")
        for key in keys:
            if not isinstance(key, (bytes, bytearray)):
                raise TypeError(f"request_state_key must be bytes or a sequence of bytes, got a {type(key).__name__}")
            if len(key) < MIN_KEY:
                raise ValueError(
                    f"a key in request_state_key has {len(key)} bytes; it needs {MIN_KEY} or more, "
                    f"for example secrets.token_bytes({MIN_KEY})"
                )
        self._keys = tuple(bytes(key) for key in keys)
        self._domain = f"trio_mcp requestState {_VERSION}\0{audience}\0".encode("utf-8", "backslashreplace")
        self._clock = clock

    def seal(
        self, state: RequestState, method: str, params: dict[str, Any], principal: str | None, seconds: float
    ) -> str:
        """Make a token.

        Args:
            state: What to remember.
            method: The request's method.
            params: Its parameters, as the client sent them.
            principal: On whose behalf it is made, if that is known.
            seconds: How long the token is good for.

        Raises:
            ValueError: It would be longer than `MAX_STATE`.
        """
        payload = {
            **state.to_json(),
            "m": method,
            "d": _digest_of_params(params),
            "p": principal,
            "e": self._clock() + seconds,
        }
        body = _encode(json.dumps(payload, separators=(",", ":")).encode())
        token = f"{_VERSION}.{body}.{self._mac(self._keys[0], body)}"
        if len(token) > MAX_STATE:
            raise ValueError(f"the answers and the state so far take {len(token)} characters; {MAX_STATE} is the limit")
        return token

    def open(self, token: object, method: str, params: dict[str, Any], principal: str | None) -> RequestState:
        """Make a state of a token; the arguments are as for `seal`.

        Raises:
            StateRefused: It is not one of ours, has been changed, is of another request or principal, or is too old.
        """
        payload = self._verified(token)
        if payload is None or (payload["m"], payload["d"], payload["p"]) != (
            method,
            _digest_of_params(params),
            principal,
        ):
            raise StateRefused("the requestState is not valid for this request; make the request again without it")
        if payload["e"] < self._clock():
            raise StateRefused("the requestState has expired; make the request again without it")
        return RequestState.from_json(payload)

    def _verified(self, token: object) -> Any:
        """The payload of a token whose signature is right; None for any other."""
        if type(token) is not str or len(token) > MAX_STATE or not token.isascii():
            return None
        version, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        # All keys are tried, whichever fits: the time taken says nothing of them.
        fits = [hmac.compare_digest(self._mac(key, body), mac) for key in self._keys]
        if version != _VERSION or not any(fits):
            return None
        try:
            return from_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):  # signed by us, so it can't be; but nothing here may raise anything else
            return None

    def _mac(self, key: bytes, body: str) -> str:
        return _encode(hmac.digest(key, self._domain + body.encode(), "sha256"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _digest_of_params(params: dict[str, Any]) -> str:
    return digest_of({name: value for name, value in params.items() if name not in _ADDED})
