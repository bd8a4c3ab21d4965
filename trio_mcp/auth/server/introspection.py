"""`IntrospectionVerifier`: asks the issuer about each token (RFC 7662), since opaque tokens contain no claims."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urlencode

import attrs
import trio
from pydantic_core import from_json

from trio_mcp._checks import check_text
from trio_mcp._nursery import background_nursery
from trio_mcp.auth.fetching import FetchFunction
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.rules.token_requests import basic_pair
from trio_mcp.auth.server.claims import Claims, Demands, InvalidToken, Verify, claims_of
from trio_mcp.auth.server.document import checked_url
from trio_mcp.auth.server.keys import RETRY, Unavailable, metadata_of

__all__ = ["IntrospectionVerifier"]

MAX_INTROSPECTIONS: Final = 64
"""How many tokens the issuer is asked about at once (arbitrary): the garbage of clients must not flood the issuer."""
MAX_REFUSED: Final = 1_000
"""How many tokens are remembered because the issuer refused them or is being asked about them (arbitrary)."""
REFUSED_FOR: Final = 10.0
"""How long a refused token is remembered, in seconds (arbitrary)."""


class IntrospectionVerifier:
    """A verifier that asks the issuer about each access token, so that revoked tokens are refused, too.

    Args:
        client_id: The id with which this server is registered at the issuer.
        secret: The secret that belongs to the id.
        endpoint: The introspection endpoint, if the issuer's metadata does not name it.

    Raises:
        TypeError: If an argument is not a string.
        ValueError: If the id or the secret is empty, or the endpoint is not a URL.
    """

    def __init__(self, client_id: str, secret: str, *, endpoint: str | None = None) -> None:
        check_text("client_id", client_id)
        if not isinstance(secret, str) or not secret:  # the message must not show the value
            raise (ValueError if isinstance(secret, str) else TypeError)("secret must be a non-empty string")
        if endpoint is not None:
            checked_url("endpoint", endpoint, query=True)
        self._credentials = f"Basic {basic_pair(client_id, secret)}"
        self._endpoint = endpoint

    @contextlib.asynccontextmanager
    async def opened(self, setting: Demands) -> AsyncIterator[Verify]:
        """Open the verifier for the duration of a block, and yield the function that checks tokens.

        Args:
            setting: The settings of the resource server.

        Raises:
            ValueError: If there is more than one issuer: a token does not say which one to ask.
        """
        if len(setting.issuers) > 1:
            raise ValueError("IntrospectionVerifier is for one issuer: a token does not say which issuer to ask")
        async with background_nursery() as nursery:
            yield _Questions(setting, self._endpoint, self._question, nursery).verify

    def _question(self, endpoint: str, token: str) -> Fetch:
        fields = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "Authorization": self._credentials,
        }
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        return Fetch("introspection", "POST", endpoint, fields, body)


@attrs.define
class _Question:
    """A question to the issuer, which is asked once for all requests with the same token."""

    done: trio.Event = attrs.field(factory=trio.Event)
    answer: Claims | InvalidToken | Unavailable | None = None
    until: float = math.inf


class _Questions:
    """The questions that are put to the issuer during one run of the server."""

    def __init__(
        self, setting: Demands, endpoint: str | None, question: Callable[[str, str], Fetch], nursery: trio.Nursery
    ) -> None:
        self._setting = setting
        self._issuer, self._endpoint, self._given = setting.issuers[0], endpoint, endpoint
        self._finding = trio.Lock()
        self._looked_at, self._problem = -math.inf, ""
        self._question = question
        self._nursery = nursery
        self._limiter = trio.CapacityLimiter(MAX_INTROSPECTIONS)
        # The keys of this dict are hashes of the tokens.
        self._asked: OrderedDict[bytes, _Question] = OrderedDict()

    async def verify(self, token: str) -> Claims:
        digest = hashlib.sha256(token.encode()).digest()
        question = self._asked.get(digest)
        if question is None or question.until <= self._setting.clock():
            question = self._asked[digest] = self._begun(token, digest)
        await question.done.wait()
        answer = question.answer
        if isinstance(answer, Claims):
            return answer
        # Each task raises its own copy, because an exception's traceback grows each time that it is raised.
        if isinstance(answer, InvalidToken):
            raise InvalidToken(answer.reason)
        raise Unavailable(str(answer))

    def _begun(self, token: str, digest: bytes) -> _Question:
        self._asked.pop(digest, None)
        if len(self._asked) >= MAX_REFUSED:
            # Only a question that has been answered may be dropped, because tasks are waiting for the others.
            oldest = next((each for each, asked in self._asked.items() if asked.done.is_set()), None)
            if oldest is None:
                raise Unavailable(f"{self._issuer} is already being asked about {MAX_REFUSED} tokens")
            del self._asked[oldest]
        question = _Question()
        # A separate task asks the issuer, because the first task that waits for the answer may be cancelled while
        # others are still waiting.
        self._nursery.start_soon(self._ask, token, digest, question, name="introspection")
        return question

    async def _ask(self, token: str, digest: bytes, question: _Question) -> None:
        try:
            async with self._limiter:
                question.answer = await self._answer(token)
        except InvalidToken as exc:
            question.answer = exc
            # Only refusals are kept: after a failure, the next request with the token may ask again.
            question.until = self._setting.clock() + REFUSED_FOR
        except Exception as exc:  # `fetch` may be the program's own function
            question.answer = Unavailable(f"asking {self._issuer} about a token failed: {exc}")
        finally:
            # Only a refusal is kept: accepted tokens are remembered by `ResourceServer`, and failures by no one.
            if question.until == math.inf:
                del self._asked[digest]
            question.done.set()

    async def _answer(self, token: str) -> Claims:
        fetch = self._setting.fetch(self._setting.issuers[0])
        endpoint = await self._found(fetch)
        try:
            response = await fetch(self._question(endpoint, token))
            # A 401 refuses this server's own credentials (RFC 7662, section 2.3), and says nothing about the token.
            if response.status != 200:
                raise Unavailable(f"{endpoint} responded with HTTP {response.status}")
        except Exception:
            # The endpoint may have moved, so the next question looks it up again. This happens at most once in `RETRY`
            # seconds, because anyone can make up tokens on which the issuer fails.
            if self._may_look:
                self._endpoint = self._given
            raise
        return _claims(response.body, self._issuer)

    async def _found(self, fetch: FetchFunction) -> str:
        async with self._finding:  # concurrent questions share one search
            if self._endpoint is None:
                if not self._may_look:
                    raise Unavailable(self._problem)
                try:
                    self._issuer, self._endpoint = await self._looked_up(fetch)
                except Exception as exc:
                    self._problem = str(exc)
                    raise
                finally:
                    self._looked_at = self._setting.clock()
            return self._endpoint

    @property
    def _may_look(self) -> bool:
        # Without `abs`, a clock that was set back would delay the next search until it had caught up.
        return abs(self._setting.clock() - self._looked_at) > RETRY

    async def _looked_up(self, fetch: FetchFunction) -> tuple[str, str]:
        """Return the issuer and its introspection endpoint, as the issuer's metadata names them."""
        server = await metadata_of(self._setting.issuers[0], fetch)
        if server.introspection is None:
            raise Unavailable(
                f"the metadata of {server.issuer} has no introspection_endpoint; pass endpoint= to "
                "IntrospectionVerifier, or use another verifier"
            )
        return server.issuer, server.introspection


def _claims(body: bytes, issuer: str) -> Claims:
    try:
        values = from_json(body)
    except ValueError:
        values = None
    # `active` must be a boolean, because the string "false" would count as true.
    if not isinstance(values, dict) or not isinstance(values.get("active"), bool):
        raise Unavailable(f"the response from {issuer} is not an introspection response")
    if not values["active"]:
        raise InvalidToken("its issuer says that it is not active")
    claims = claims_of(values, issuer)
    # The issuer does not name the key that this DPoP token is bound to, so a proof can't be checked. If the token were
    # accepted as a bearer token, a thief could use it as well.
    if claims.key is None and str(values.get("token_type")).lower() == "dpop":
        raise InvalidToken("it is bound to a key that its issuer does not name")
    if claims.issuer != issuer:
        raise InvalidToken("it is from a different issuer than the one that was asked")
    return claims
