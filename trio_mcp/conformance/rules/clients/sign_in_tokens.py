"""Rules for what a client does with its codes and tokens, and to whom it shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp._secrets import MASK
from trio_mcp.conformance.rules.clients.sign_ins import SignInStep, SignInSteps, bearer_of, query_of, steps_of
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event


def _requests(history: History) -> Iterator[tuple[Event, SignInSteps, int]]:
    """Yield the requests to the server, let in or refused, that came after the client had got a token."""
    sign_in = SignInSteps(history)
    first = next((step.place for step, _ in sign_in.issued()), None)
    if first is None:
        return
    refused = [(step.place, step.event) for step in sign_in.to("server")]
    for place, event in sorted([*sign_in.requests, *refused], key=lambda pair: pair[0]):
        if place > first:
            yield event, sign_in, place


def _url(event: Event) -> str:
    return str(event.facts.get("url") or event.facts.get("path") or "")


@stated_rule(sentence="Send the token in the `Authorization` header, as Bearer.")
@each(_requests)
def token_in_header(event: Event, _sign_in: SignInSteps, _place: int) -> Opinion:
    """Check the scheme of each Authorization header."""
    field = event.headers.get("authorization")
    if field is None:
        return UNDECIDED  # `token_in_every_request` judges this
    scheme, _, token = field.partition(" ")
    return None if scheme.lower() in ("bearer", "dpop") and token else f"the scheme of Authorization is {scheme[:20]!r}"


@stated_rule()
@each(_requests)
def token_in_every_request(event: Event, sign_in: SignInSteps, place: int) -> Opinion:
    """Check that each request has a token, once the client has got one."""
    last, token = [(step.place, token) for step, token in sign_in.issued() if step.place < place][-1]
    # A request without the token may have been on its way when the token came. A client whose token was refused may ask
    # without one, to be told how to sign in.
    is_refused = any(step.place > last and step.status == 401 for step in sign_in.to("server") if step.place < place)
    if is_refused or not sign_in.has_shown(token, place):
        return UNDECIDED
    return None if "authorization" in event.headers else "the request has no Authorization header"


@stated_rule()
def token_not_in_url(history: History) -> Iterator[Verdict]:
    """Check that no URL has an access token in its query."""
    sign_in = SignInSteps(history)
    tokens = {token for _, token in sign_in.issued() if token != MASK}
    if not [*sign_in.issued()]:
        return
    for event in [*(event for _, event in sign_in.requests), *(step.event for step in sign_in.steps)]:
        found = query_of(_url(event))
        kept = "access_token" not in found and tokens.isdisjoint(found.values())
        yield judged(kept, event, "the query of the URL has an access token")


@stated_rule()
@each(_requests)
def token_of_authority(event: Event, sign_in: SignInSteps, place: int) -> Opinion:
    """Check that the client shows the server only tokens that an authorization server of it has issued."""
    token = bearer_of(event)
    issued = {given for step, given in sign_in.issued() if step.place < place}
    if token is None or MASK in issued:
        return UNDECIDED
    return None if token in issued else "no authorization server of this server has issued the token"


@stated_rule(sentence="Show an access token to no other server than the one it is for.")
def token_stays_with_server(history: History) -> Iterator[Verdict]:
    """Check that no other origin gets the access token."""
    sign_in = SignInSteps(history)
    tokens = {token for _, token in sign_in.issued() if token != MASK}
    for step in sign_in.steps:
        if not tokens or step.to == "server":
            continue
        # A client may hand the token back, to have it revoked.
        given = [] if step.to == "revoke" else [value for value in step.form.values() if isinstance(value, str)]
        leaks = tokens & {*given, bearer_of(step.event)}
        yield judged(not leaks, step.event, f"it sends its access token to {step.target}")


@stated_rule(who="client", sentence="Redeem a code only at the authorization server that gave it.")
@each(lambda history: steps_of(history, "token", "elsewhere"))
def code_stays_with_authority(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that no other origin gets an authorization code."""
    code = step.form.get("code")
    givers = {each.origin for each in sign_in.to("authorize") if each.redirection.get("code") == code}
    if code in (None, MASK) or not givers:
        return UNDECIDED
    return None if step.origin in givers else f"it sends its authorization code to {step.target}"


# --- refresh tokens ---------------------------------------------------------------------------------------------------


def _refreshes(history: History) -> Iterator[tuple[Event, SignInSteps, SignInStep, Any]]:
    """Yield the requests with a refresh token, to whomever."""
    for event, sign_in, step in steps_of(history):
        if step.to != "server" and "refresh_token" in step.form:
            yield event, sign_in, step, step.form["refresh_token"]
        elif step.form.get("grant_type") == "refresh_token":
            yield event, sign_in, step, None


def _givers(sign_in: SignInSteps, token: Any, before: int) -> list[SignInStep]:
    return [
        step
        for step in sign_in.to("token", ok=True)
        if step.answer.get("refresh_token") == token and step.place < before
    ]


@stated_rule()
@each(_refreshes)
def refresh_token_kept_secret(_: Event, sign_in: SignInSteps, step: SignInStep, token: Any) -> Opinion:
    """Check that a refresh token goes only to the authorization server that gave it."""
    givers = {each.origin for each in _givers(sign_in, token, step.place)}
    if token in (None, MASK) or not givers:
        return UNDECIDED
    return None if step.origin in givers else f"it sends its refresh token to {step.target}"


@stated_rule(who="client", sentence="Replace a refresh token by the new one that a refresh brings.")
@each(_refreshes)
def refresh_token_replaced(_: Event, sign_in: SignInSteps, step: SignInStep, token: Any) -> Opinion:
    """Check that a refresh token that has been replaced is not used again (OAuth 2.1, section 4.3.1)."""
    if token in (None, MASK) or not _givers(sign_in, token, step.place):
        return UNDECIDED
    uses = [each for each in sign_in.to("token", ok=True) if each.form.get("refresh_token") == token]
    replaced = any(
        # The client has read the response if it uses the access token that came with it.
        each.answer.get("refresh_token") not in (None, token)
        and sign_in.has_shown(str(each.answer.get("access_token")), step.place)
        for each in uses
    )
    return "it uses a refresh token again that has been replaced" if replaced else None


@stated_rule()
def refresh_token_not_expected(history: History) -> Iterator[Verdict]:
    """Check that a client without a refresh token doesn't act as if it had one, when its access token has expired."""
    sign_in = SignInSteps(history)
    without = [step for step, _ in sign_in.issued() if not step.answer.get("refresh_token")]
    for step in without:
        refused = [each for each in sign_in.after(step, "server") if each.answer.get("error") == "invalid_token"]
        if not refused:
            continue
        later = [each for each in sign_in.after(refused[0], "token") if each.form.get("grant_type") == "refresh_token"]
        made_up = [each for each in later if not _givers(sign_in, each.form.get("refresh_token"), each.place)]
        if made_up:
            yield broken(made_up[0].event, "it tries to refresh its token, and has no refresh token")
        else:
            yield held(refused[0].event)
