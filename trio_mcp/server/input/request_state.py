"""Makes and reads the ``requestState`` of a request that waits for input (2026-07-28 `basic/patterns/mrtr`).

The state passes through the client, so it is signed (HMAC-SHA256) and bound to the request, the principal and an expiry
time. It is not encrypted: the client can read the answers so far, the handler's state, and digests of the questions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import from_json

from trio_mcp import _attrs as attrs
from trio_mcp.errors import TrioMcpError
from trio_mcp.principal import Principal
from trio_mcp.server.input.options import MIN_KEY, checked_keys

if TYPE_CHECKING:  # few servers have a file of keys
    from trio_mcp.stores.key_ring import KeyRing

__all__ = [
    "MAX_STATE",
    "Answer",
    "Question",
    "RequestState",
    "StateRefused",
    "StateSealer",
    "digest_of",
]


# The limit is arbitrary: it leaves room for the answers of a few rounds, but not for bulk data, because the token is
# sent twice in each round.
MAX_STATE = 1_000_000
"""The maximum length of a token, in characters."""

# The version of the token's format is signed as part of the domain.
_VERSION = "1"
# These parameters may differ between the first request and its retries; all others must stay the same.
_ADDED = frozenset({"_meta", "inputResponses", "requestState"})


class StateRefused(TrioMcpError):
    """A token is invalid for this request; the message may be sent to the client."""


class Question(NamedTuple):
    """The question that was asked under a key.

    Attributes:
        method: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.
        digest: A digest of the whole question, as an answer belongs to exactly the question that was asked.
    """

    method: str
    digest: str


class Answer(NamedTuple):
    """A question, and its answer as plain data."""

    question: Question
    data: Any


@attrs.frozen
class RequestState:
    """Everything a server needs to know when the client repeats its request with the answers.

    Attributes:
        round: How many responses to the request have asked questions so far.
        questions: The questions of the last round, by key.
        answers: The answers of the earlier rounds, by key.
        memory: The values of `Context.once`, by key.
        state: The handler's own state (`InputRequired`), as JSON data.
        parked: The id of the parked handler; None if the handler is to run again.
    """

    round: int = 0
    questions: dict[str, Question] = attrs.Factory(dict)
    answers: dict[str, Answer] = attrs.Factory(dict)
    memory: dict[str, Any] = attrs.Factory(dict)
    state: Any = None
    parked: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain data."""
        # The keys are short because the token is sent twice in each round.
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
        """Make a state from the data of `to_json`."""
        return cls(
            round=data["r"],
            questions={key: Question(*each) for key, each in data["q"].items()},
            answers={key: Answer(Question(method, digest), it) for key, (method, digest, it) in data["a"].items()},
            memory=data["o"],
            state=data["s"],
            parked=data["k"],
        )


def digest_of(value: Any) -> str:
    """Return a digest of JSON data, independent of the order of keys."""
    import json  # deferred: only requests that ask for input need it

    # The json module is used because pydantic_core can't sort keys, which clients may send in another order in a retry.
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    # 128 bits are enough: digests are signed with the token, so only a second preimage could help a client.
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class StateSealer:
    """Turns states into signed tokens, and tokens into states.

    Args:
        audience: The server's name; tokens of servers with other names are refused, even if they share a key.
        keys: As `InputOptions.key`.
        clock: Returns the seconds since the epoch.
        lifetime: The most seconds for which a token is valid.
        alone: Whether no other process may get the tokens, so that none needs the key.

    Raises:
        TypeError, ValueError: If a key is invalid.
    """

    def __init__(
        self,
        audience: str,
        keys: bytes | Sequence[bytes] | KeyRing | None = None,
        clock: Callable[[], float] = time.time,
        *,
        lifetime: float = 600.0,
        alone: bool = True,
    ) -> None:
        given = checked_keys(keys)
        self._needs_key = not alone and given is None
        # The first key signs. A random key is safe without any setting, but no other process accepts the tokens.
        fixed = (secrets.token_bytes(MIN_KEY),) if given is None else given
        self._keys: Callable[[], tuple[bytes, ...]] = (
            (lambda: fixed) if isinstance(fixed, tuple) else lambda: fixed.keys(clock(), lifetime)
        )
        # The domain is signed with each token, which therefore can't be replayed to another server, or be used where
        # the same key serves another purpose.
        self._domain = f"trio_mcp requestState {_VERSION}\0{audience}\0".encode("utf-8", "backslashreplace")
        # This is the wall clock and not Trio's, because another process may read the expiry time.
        self._clock = clock

    def seal(
        self, state: RequestState, method: str, params: dict[str, Any], principal: Principal | None, seconds: float
    ) -> str:
        """Make a token from a state.

        Args:
            state: The state to store.
            method: The request's method.
            params: The request's parameters, as the client sent them.
            principal: On whose behalf the request is made, if known.
            seconds: How long the token is valid.

        Raises:
            RuntimeError: If other processes may get the token, and there is no key that they share.
            ValueError: If the token would be longer than `MAX_STATE`.
        """
        import json

        if self._needs_key:
            raise RuntimeError(
                "the answer to this question may reach another process, which needs the key of this one: give all of "
                "them the same, Server(input=InputOptions(key=…)), such as KeyRing.file(…) of trio_mcp.stores"
            )

        payload = {
            **state.to_json(),
            "m": method,
            "d": _digest_of_params(params),
            "p": _identity(principal),
            "e": self._clock() + seconds,
        }
        body = _encode(json.dumps(payload, separators=(",", ":")).encode())
        # Only the first key signs, so that keys can be rotated: add the new one at the end everywhere, then move it to
        # the front, then drop the old one. A `KeyRing` does that by its clock.
        token = f"{_VERSION}.{body}.{self._mac(self._keys()[0], body)}"
        if len(token) > MAX_STATE:
            raise ValueError(
                f"the requestState, with the answers and the state so far, takes {len(token)} characters; "
                f"{MAX_STATE} is the limit"
            )
        return token

    def open(self, token: object, method: str, params: dict[str, Any], principal: Principal | None) -> RequestState:
        """Restore the state from a token; the arguments are those of `seal`.

        Raises:
            StateRefused: If the token was not made with our keys, was modified, belongs to another request or
                principal, or has expired.
        """
        # All reasons for a refusal, except expiry, get the same message: a client that guesses must not learn which
        # part was right.
        payload = self._verified(token)
        if payload is None or (payload["m"], payload["d"], payload["p"]) != (
            method,
            _digest_of_params(params),
            _identity(principal),
        ):
            raise StateRefused("the requestState is not valid for this request; make the request again without it")
        if payload["e"] < self._clock():
            raise StateRefused("the requestState has expired; make the request again without it")
        return RequestState.from_json(payload)

    def _verified(self, token: object) -> Any:
        """Return the payload of a token with a valid signature; None for any other."""
        # `compare_digest` raises for a str that is not ASCII, so such a token is refused first.
        if type(token) is not str or len(token) > MAX_STATE or not token.isascii():
            return None
        version, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        # All keys are always tried, so that the time taken does not reveal which one matches.
        fits = [hmac.compare_digest(self._mac(key, body), mac) for key in self._keys()]
        if version != _VERSION or not any(fits):
            return None
        try:
            return from_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, binascii.Error):
            # This can't happen with a body that we have signed, but no message from a client may ever cause a crash.
            return None

    def _mac(self, key: bytes, body: str) -> str:
        return _encode(hmac.digest(key, self._domain + body.encode(), "sha256"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# The result is a list, as JSON would return one for a tuple. Scopes are left out, because a client that was granted
# more scopes is still the same client.
def _identity(principal: Principal | None) -> list[str | None] | None:
    return None if principal is None else list(principal.identity)


def _digest_of_params(params: dict[str, Any]) -> str:
    return digest_of({name: value for name, value in params.items() if name not in _ADDED})
