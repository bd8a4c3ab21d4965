"""The requests of `check_issuers`: those that a client makes to sign in, and some that must be refused."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import attrs
import trio

from trio_mcp._secrets import MASK
from trio_mcp.auth.client.asking import Person
from trio_mcp.auth.fetching import TIMEOUT, Fetcher, drive
from trio_mcp.auth.rules.authorization import challenge_of, prompt_of, with_query
from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata, ProtectedResource
from trio_mcp.auth.rules.scopes import OFFLINE
from trio_mcp.auth.rules.steps import Fetch, Fetched, SignIn
from trio_mcp.auth.rules.texts import json_object
from trio_mcp.auth.rules.token_requests import TokenEndpoint, post, with_target
from trio_mcp.conformance.credentials import claims_of
from trio_mcp.conformance.members import items_of
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import JSON, shown
from trio_mcp.types.versions import LATEST_MODERN

__all__ = ["SignInExchanges", "Trials"]

ELSEWHERE: Final = "/elsewhere"
"""The suffix that makes a registered redirect URI another one, which no authorization server may accept."""

SECRET: Final = frozenset({
    "access_token", "refresh_token", "id_token", "client_secret", "code", "code_verifier", "registration_access_token",
})  # fmt: skip
"""The members and parameters of which only the names are recorded."""


class SignInExchanges:
    """Makes exchanges with authorization servers, and records each as a mark, ``login``, without secrets.

    Args:
        fetcher: Makes the exchanges.

    Attributes:
        count: How many exchanges were made.
    """

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._tape = Tape()
        self.count = 0

    @property
    def events(self) -> list[Event]:
        """The marks so far."""
        return self._tape.events

    async def make(self, fetch: Fetch, to: str, issuer: str, **facts: Any) -> Fetched:
        """Make an exchange, without following a redirection.

        Args:
            fetch: The request.
            to: What it is to, as in the mark.
            issuer: The issuer that it concerns.
            facts: Further facts for the mark.

        Raises:
            AuthorizationError: If the exchange is refused, or fails.
        """
        self.count += 1
        try:
            with trio.move_on_after(TIMEOUT) as scope:
                fetched = await self._fetcher.exchange(fetch, fetch.url)
            if scope.cancelled_caught:
                problem = f"no complete response arrived within {TIMEOUT:g} seconds"
                raise AuthorizationError(fetch.step, problem, issuer=issuer)
        except AuthorizationError as exc:
            self.note(fetch, to, issuer, problem=exc.problem, **facts)
            raise
        led = led_to(fetched, _form(fetch).get("redirect_uri"))
        self.note(fetch, to, issuer, fetched.status, json_object(fetched), led, **facts)
        return fetched

    def maker(self, to: str, issuer: str, **facts: Any) -> Callable[[Any], Awaitable[Fetched]]:
        """Return a function that makes the exchanges of a flow; the arguments are those of `make`."""

        async def act(step: Any) -> Fetched:
            return await self.make(step, to, issuer, **facts)

        return act

    def note(
        self,
        fetch: Fetch,
        to: str,
        issuer: str,
        status: int = 0,
        answer: Mapping[str, Any] | None = None,
        led: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        """Record an exchange.

        Args:
            fetch: The request.
            to: What it was to.
            issuer: The issuer that it concerns.
            status: The status of the response; 0 if there was none.
            answer: The JSON object in the response, if it was one.
            led: The parameters of the redirection to the client, if the response is one.
            facts: Further facts.
        """
        form, answer = _form(fetch), answer or {}
        if isinstance(token := answer.get("access_token"), str) and (claims := claims_of(token)) is not None:
            audience = claims.get("aud", [])
            facts["audience"] = [str(each) for each in (items_of(audience) or [audience])]
        if "refresh_token" in form:
            came = answer.get("refresh_token")
            facts["refresh_token"] = "none" if came is None else "same" if came == form["refresh_token"] else "new"
        shown_parts = {"sent_form": form, "answer": answer, "redirected_with": led or {}}
        facts |= {name: _masked(part) for name, part in shown_parts.items()}
        url = fetch.url.partition("?")[0]
        facts |= {"to": to, "issuer": issuer, "method": fetch.method, "url": url, "status": status}
        facts["revision"] = LATEST_MODERN
        self._tape.note("mark", "kit", what="login", **facts)


def led_to(fetched: Fetched, redirect: str | None) -> dict[str, str] | None:
    """Return the parameters with which a response leads a browser to a redirect URI; None if it does not."""
    base, _, query = (fetched.headers.get("Location") or "").partition("?")
    is_led = 300 <= fetched.status < 400 and redirect is not None and base == redirect
    return dict(parse_qsl(query.partition("#")[0], keep_blank_values=True)) if is_led else None


def _form(fetch: Fetch) -> dict[str, str]:
    if fetch.fields.get("Content-Type") == JSON:
        return {}
    text = fetch.url.partition("?")[2] or fetch.body.decode("latin-1")
    return dict(parse_qsl(text, keep_blank_values=True))


def _masked(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: MASK if name in SECRET else value for name, value in members.items()}


@attrs.frozen
class Trials:
    """The trials at an authorization server with which a client can sign in.

    Attributes:
        exchanges: Makes the exchanges, and records them.
        at: The authorization server's metadata.
        client: The client.
        resource: The metadata of the server that the tokens are for.
        person: Signs in, if the authorization server wants a person to.
        issuer: The issuer, as the resource names it.
    """

    exchanges: SignInExchanges
    at: AuthorizationServerMetadata
    client: ClientRecord
    resource: ProtectedResource
    person: Person
    issuer: str

    async def run(self) -> None:
        """Sign in, and try what must be refused.

        Raises:
            AuthorizationError: If any of it can't be done; what was done by then is recorded.
        """
        redirect = str(self.person.redirect)
        verifier, code = await self._code("sign in", redirect)
        form = {"code_verifier": verifier, "code": code, "redirect_uri": redirect}
        tokens = json_object(await self._token("sign in", form)) or {}
        if not isinstance(tokens.get("access_token"), str):
            raise AuthorizationError("token", "no access token came for the code, so nothing else can be tried")
        if isinstance(refresh := tokens.get("refresh_token"), str):
            await self._token("refresh", {"refresh_token": refresh}, grant="refresh_token")
        await self._token("code again", form)
        for trial, change in (
            ("wrong verifier", {"code_verifier": secrets.token_urlsafe(32)}),
            ("other redirect", {"redirect_uri": redirect + ELSEWHERE}),
        ):
            verifier, code = await self._code(trial, redirect)
            await self._token(trial, {"code_verifier": verifier, "code": code, "redirect_uri": redirect, **change})
        # An authorization server that does not look at the resource may know only this one, and so seem to look at it.
        verifier, other = secrets.token_urlsafe(32), self.at.issuer
        led = await self._authorize("other resource", redirect, verifier, resource=other, ask=True)
        if code := led.get("code", ""):
            form = {"code_verifier": verifier, "code": code, "redirect_uri": redirect, "resource": other}
            await self._token("other resource", form)
        await self._authorize("without challenge", redirect, None)
        await self._authorize("unregistered redirect", redirect + ELSEWHERE, secrets.token_urlsafe(32))

    async def _token(self, trial: str, form: Mapping[str, str], *, grant: str = "authorization_code") -> Fetched:
        """Ask for tokens, and return the response, whatever its status."""
        url = self.at.need("token", "token")
        whole = {"grant_type": grant, "resource": self.resource.resource, **form}
        endpoint = TokenEndpoint(self.at.issuer, url, self.client)
        act = self.exchanges.maker("token", self.issuer, trial=trial, client_method=self.client.method)
        return await drive(post(endpoint, "token", url, whole), act)

    async def _code(self, trial: str, redirect: str) -> tuple[str, str]:
        """Return a verifier, and the code that goes with it.

        Raises:
            AuthorizationError: If there is no code.
        """
        verifier = secrets.token_urlsafe(32)
        led = await self._authorize(trial, redirect, verifier, ask=True)
        if not led.get("code"):
            said = ": ".join(shown(led[name]) for name in ("error", "error_description") if led.get(name))
            raise AuthorizationError("authorization", f"there is no code to try more with ({said or 'and no error'})")
        return verifier, led["code"]

    async def _authorize(
        self, trial: str, redirect: str, verifier: str | None, *, resource: str = "", ask: bool = False
    ) -> Mapping[str, str]:
        """Ask for a code, and return the parameters of the redirection; empty without one.

        Args:
            trial: The name of the trial.
            redirect: The redirect URI.
            verifier: The PKCE verifier; None to leave the challenge out.
            resource: The resource that the token is to be for; by default, the server.
            ask: Whether a person signs in if a page comes instead of a redirection. Where an error is due, the page
                may be about it, and no redirection would follow.
        """
        state = secrets.token_urlsafe(32)
        pkce = {} if verifier is None else {"code_challenge": challenge_of(verifier), "code_challenge_method": "S256"}
        # Where this scope is offered, there is no refresh token without it.
        scopes = (self.resource.scopes or frozenset()) | ({OFFLINE} & (self.at.scopes or frozenset()))
        prompt = prompt_of(self.client, scopes)
        parameters = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": redirect,
            "state": state,
            **pkce,
            **({} if prompt is None else {"prompt": prompt}),
        }
        url = with_query(self.at, with_target(parameters, scopes, resource or self.resource.resource))
        fetch = Fetch("authorization", "GET", url)
        fetched = await self.exchanges.make(fetch, "authorize", self.issuer, trial=trial)
        led = led_to(fetched, redirect)
        if led is not None or not ask or not 200 <= fetched.status < 400:
            return led or {}
        # A page, or a redirection to one: a person has to sign in there.
        came = await self.person.ask(SignIn(url, state, redirect, self.at.issuer))
        self.exchanges.note(fetch, "authorize", self.issuer, 302, None, came, trial=trial)
        return came
