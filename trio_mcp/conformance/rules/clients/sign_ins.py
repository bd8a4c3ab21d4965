"""The steps by which a client signs in at the kit's protected servers, as the rules for authorization look at them.

The kit's server records each request of a sign-in, and each request that it refused for want of a token, as a mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

import attrs

from trio_mcp._secrets import MASK
from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event

__all__ = [
    "SignInStep",
    "SignInSteps",
    "bearer_of",
    "is_loopback",
    "issuer_places",
    "origin_of",
    "query_of",
    "scopes_of",
    "split",
    "steps_of",
]

WELL_KNOWN: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


@attrs.frozen
class SignInStep:
    """A request that a client made to sign in, or that was refused because it had to sign in first.

    Attributes:
        event: The mark that records the request and its response.
        place: The place of the mark in the transcript.
    """

    event: Event
    place: int

    @property
    def to(self) -> str:
        """The purpose of the request, such as ``server``, ``resource metadata``, ``authorize`` or ``token``."""
        return str(self.event.facts.get("to"))

    @property
    def url(self) -> str:
        """The URL of the request."""
        return str(self.event.facts.get("url"))

    @property
    def target(self) -> str:
        """The URL without its query."""
        return self.url.partition("?")[0]

    @property
    def origin(self) -> str:
        """The origin of the URL."""
        return origin_of(self.url)

    @property
    def status(self) -> int:
        """The status of the response."""
        return int(self.event.facts.get("status", 0))

    @property
    def form(self) -> dict[str, Any]:
        """The parameters of the request; those of a registration are its JSON."""
        return object_of(self.event.facts.get("sent_form"))

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON of the response, or the parameters of its challenge."""
        return object_of(self.event.facts.get("answer"))

    @property
    def redirection(self) -> dict[str, Any]:
        """The parameters with which an authorization server redirects the browser."""
        return object_of(self.event.facts.get("redirected_with"))

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the request names."""
        return scopes_of(self.form.get("scope"))


class SignInSteps:
    """All that a client did to sign in, in order.

    Attributes:
        steps: The steps.
        requests: The requests that the server behind the protection got, with their places in the transcript.
        server: The URL of the endpoint, if it refused a request.
    """

    def __init__(self, history: History) -> None:
        self.steps = [
            SignInStep(event, place) for place, event in enumerate(history.events) if event.facts.get("what") == "login"
        ]
        self.requests = [(place, event) for place, event in enumerate(history.events) if event.kind == "request"]
        self.server = next((step.target for step in self.steps if step.to == "server"), "")

    def to(self, *names: str, ok: bool = False) -> list[SignInStep]:
        """Return the steps of these kinds; only those with a response in the 200s if ``ok``."""
        return [step for step in self.steps if step.to in names and (not ok or 200 <= step.status < 300)]

    def before(self, step: SignInStep, *names: str, ok: bool = False) -> SignInStep | None:
        """Return the last step of these kinds before another step, or None."""
        return next((each for each in reversed(self.to(*names, ok=ok)) if each.place < step.place), None)

    def after(self, step: SignInStep, *names: str) -> list[SignInStep]:
        """Return the steps of these kinds after another step."""
        return [each for each in self.to(*names) if each.place > step.place]

    def metadata_of(self, step: SignInStep) -> SignInStep | None:
        """Return the exchange that brought the metadata which names the endpoint that a step requests, or None."""
        name = {"authorize": "authorization_endpoint", "register": "registration_endpoint"}.get(
            step.to, "token_endpoint"
        )
        found = [each for each in self.to("authority metadata", ok=True) if each.place < step.place]
        return next((each for each in reversed(found) if each.answer.get(name) == step.target), None)

    def uses_of(self, metadata: SignInStep) -> list[SignInStep]:
        """Return the later steps that requested an endpoint which some authorization server's metadata names."""
        steps = self.after(metadata, "authorize", "register", "token")
        return [step for step in steps if step.target in metadata.answer.values()]

    def redeemed(self, authorize: SignInStep) -> SignInStep | None:
        """Return the request for tokens with the code that an authorization request led to, or None."""
        code = authorize.redirection.get("code")
        found = (step for step in self.after(authorize, "token") if step.form.get("code") == code)
        return None if code is None else next(found, None)

    def issued(self) -> Iterator[tuple[SignInStep, str]]:
        """Yield the access tokens that the client got, each with the exchange that brought it."""
        for step in self.to("token", ok=True):
            if isinstance(token := step.answer.get("access_token"), str):
                yield step, token

    def has_shown(self, token: str, before: int) -> bool:
        """Return whether the client has shown the server an access token before a place, and so had got it."""
        shown = [*self.requests, *((step.place, step.event) for step in self.to("server"))]
        return any(place < before and bearer_of(event) == token for place, event in shown)

    def challenge_before(self, step: SignInStep) -> SignInStep | None:
        """Return the refused request that a step follows, or None."""
        return self.before(step, "server")


def steps_of(history: History, *names: str) -> Iterator[tuple[Event, SignInSteps, SignInStep]]:
    """Yield the steps of these kinds, or all: each with its event and with all that the client did to sign in."""
    sign_in = SignInSteps(history)
    for step in sign_in.to(*names) if names else sign_in.steps:
        yield step.event, sign_in, step


def split(url: str) -> SplitResult:
    """Return the parts of a URL; all are empty if it can't be taken apart."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def origin_of(url: str) -> str:
    """Return the origin of a URL."""
    parts = split(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}"


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is this computer, by name or address."""
    return split(url).hostname in ("localhost", "127.0.0.1", "::1")


def issuer_places(issuer: str) -> list[str]:
    """Return the URLs where the metadata of an issuer may be, in the order in which clients try them."""
    origin, path = origin_of(issuer), split(issuer).path.rstrip("/")
    oauth, openid = WELL_KNOWN
    return list(dict.fromkeys([f"{origin}{oauth}{path}", f"{origin}{openid}{path}", f"{origin}{path}{openid}"]))


def scopes_of(value: Any) -> frozenset[str]:
    """Return the scopes in a parameter."""
    return frozenset(value.split()) if isinstance(value, str) else frozenset()


def bearer_of(event: Event) -> str | None:
    """Return the token in the ``Authorization`` header of a request; None if it has no token, or a masked one."""
    _, _, token = event.headers.get("authorization", "").partition(" ")
    return token.strip() if token and token != MASK else None


def query_of(url: str) -> dict[str, str]:
    """Return the parameters in the query of a URL."""
    return dict(parse_qsl(split(url).query))
