"""Rules for authorization requests, their responses, and the requests for tokens that follow them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

from trio_mcp._secrets import MASK
from trio_mcp.conformance.members import items_of
from trio_mcp.conformance.rules.clients.sign_ins import (
    SignInStep,
    SignInSteps,
    is_loopback,
    origin_of,
    scopes_of,
    split,
    steps_of,
)
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event


def _at(*names: str) -> Occasions[SignInSteps, SignInStep]:
    """Return, as occasions for a rule, the steps of these kinds at endpoints that some metadata names."""

    def occasions(history: History) -> Iterator[tuple[Event, SignInSteps, SignInStep]]:
        for event, sign_in, step in steps_of(history, *names):
            if sign_in.metadata_of(step) is not None:
                yield event, sign_in, step

    return occasions


# --- PKCE -------------------------------------------------------------------------------------------------------------


@stated_rule(sentence="Use PKCE, with another secret for each authorization request.")
@each(_at("authorize"))
def pkce_used(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check the challenge of each authorization request, and the verifier with which its code is redeemed."""
    challenge = step.form.get("code_challenge")
    if not challenge:
        return "the authorization request has no code_challenge"
    if any(each.form.get("code_challenge") == challenge for each in sign_in.to("authorize") if each.place < step.place):
        return "the code_challenge was used before"
    redeemed = sign_in.redeemed(step)
    verifier = None if redeemed is None else redeemed.form.get("code_verifier")
    if redeemed is None or verifier == MASK:
        return None
    if step.form.get("code_challenge_method") == "S256":
        digest = base64.urlsafe_b64encode(hashlib.sha256(str(verifier).encode()).digest()).rstrip(b"=").decode()
        if verifier is None or digest != challenge:
            return broken(redeemed.event, "the code_verifier does not fit the code_challenge")
    return None


@stated_rule()
@each(_at("authorize"))
def pkce_s256(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the challenge is made with S256, which all of the kit's authorization servers support."""
    if not step.form.get("code_challenge"):
        return UNDECIDED
    method = step.form.get("code_challenge_method")
    return None if method == "S256" else f"code_challenge_method is {method!r}"


# --- state and issuer -------------------------------------------------------------------------------------------------


@stated_rule(sentence="Send a `state` with each authorization request, another one each time.")
@each(_at("authorize"))
def state_used(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that each authorization request has a state of its own."""
    state = step.form.get("state")
    if not state:
        return "the authorization request has no state"
    earlier = [each.form.get("state") for each in sign_in.to("authorize") if each.place < step.place]
    return "the state was used before" if state in earlier else None


@stated_rule(sentence="Drop an authorization response whose `state` differs.")
@each(_at("authorize"))
def state_compared(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the code of a response with another state is not redeemed."""
    sent, came = step.form.get("state"), step.redirection.get("state")
    if "code" not in step.redirection or not sent or sent == came:
        return UNDECIDED
    used = sign_in.redeemed(step)
    return broken(used.event, f"it redeems the code of a response with the state {came!r}") if used else None


def _responses(announced: bool, named: bool) -> Occasions[SignInSteps, SignInStep, str, str]:
    """Return, as occasions for a rule, the responses that name an issuer or not, as was announced or not.

    Each has the sign-in, the step, the issuer in the metadata, and the one in the response.
    """

    def occasions(history: History) -> Iterator[tuple[Event, SignInSteps, SignInStep, str, str]]:
        for event, sign_in, step in _at("authorize")(history):
            metadata = sign_in.metadata_of(step)
            if metadata is None or "code" not in step.redirection:
                continue
            says = metadata.answer.get("authorization_response_iss_parameter_supported") is True
            if says == announced and ("iss" in step.redirection) == named:
                yield event, sign_in, step, str(metadata.answer.get("issuer")), str(step.redirection.get("iss"))

    return occasions


def _refuses(sign_in: SignInSteps, step: SignInStep, problem: str) -> Opinion:
    used = sign_in.redeemed(step)
    return None if used is None else broken(used.event, problem)


@stated_rule()
@each(_responses(announced=True, named=True))
def iss_compared(_: Event, sign_in: SignInSteps, step: SignInStep, issuer: str, named: str) -> Opinion:
    """Check that the code of a response from another issuer is not redeemed."""
    if named.rstrip("/") == issuer.rstrip("/"):
        return UNDECIDED
    return _refuses(sign_in, step, f"it redeems a code of the issuer {named}, and had asked {issuer}")


@stated_rule()
@each(_responses(announced=True, named=True))
def iss_compared_exactly(_: Event, sign_in: SignInSteps, step: SignInStep, issuer: str, named: str) -> Opinion:
    """Check that an issuer with a slash more is another one."""
    if named == issuer or named.rstrip("/") != issuer.rstrip("/"):
        return UNDECIDED
    return _refuses(sign_in, step, f"it takes the issuer {named} for {issuer}")


@stated_rule()
@each(_responses(announced=True, named=False))
def iss_missing_refused(_: Event, sign_in: SignInSteps, step: SignInStep, issuer: str, _named: str) -> Opinion:
    """Check that a response without the announced issuer is refused."""
    return _refuses(sign_in, step, f"it redeems a code, though {issuer} has not named itself as announced")


@stated_rule()
@each(_responses(announced=False, named=True))
def iss_unannounced_compared(_: Event, sign_in: SignInSteps, step: SignInStep, issuer: str, named: str) -> Opinion:
    """Check that an issuer that was not announced is compared, too."""
    if named == issuer:
        return UNDECIDED
    return _refuses(sign_in, step, f"it redeems a code of the issuer {named}, and had asked {issuer}")


@stated_rule()
def iss_absent_accepted(history: History) -> Iterator[Verdict]:
    """Check that a client redeems a code without an issuer where none was announced, the first one or a later one."""
    found = [
        (step, sign_in.redeemed(step))
        for _, sign_in, step, _, _ in _responses(announced=False, named=False)(history)
        if step.form.get("state") == step.redirection.get("state")
    ]
    # A client may end before it redeems the last one, for any reason.
    if found:
        used = any(redeemed is not None for _, redeemed in found)
        yield judged(used, found[0][0].event, "it does not go on, although no issuer was announced")


# --- redirect URIs ----------------------------------------------------------------------------------------------------


@stated_rule()
@each(lambda history: steps_of(history, "register", "authorize"))
def redirect_uri_safe(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that http redirect URIs lead to this computer."""
    given: Any = step.form.get("redirect_uris" if step.to == "register" else "redirect_uri")
    found = [url for url in (given if isinstance(given, list) else [given]) if isinstance(url, str)]
    # Other schemes are private to an application, which the text leaves out and OAuth allows.
    wrong = [url for url in found if url.startswith("http:") and not is_loopback(url)]
    if not found:
        return UNDECIDED
    return f"a redirect URI is {wrong[0]}" if wrong else None


@stated_rule()
@each(_at("authorize"))
def redirect_uri_registered(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that a client that has registered uses a redirect URI that it has registered."""
    registered = [
        each
        for each in sign_in.to("register", ok=True)
        if each.answer.get("client_id") == step.form.get("client_id") and each.place < step.place
    ]
    given = step.form.get("redirect_uri")
    if not registered or given is None:
        return UNDECIDED
    known = {_portless(str(url)) for each in registered for url in items_of(each.form, "redirect_uris")}
    return None if _portless(str(given)) in known else f"the redirect URI {given} was not registered"


def _portless(url: str) -> str:
    # On loopback, any port will do (RFC 8252, section 7.3).
    parts = split(url)
    return parts._replace(netloc=parts.hostname or "").geturl() if is_loopback(url) else url


# --- the resource -----------------------------------------------------------------------------------------------------


def _resources(step: SignInStep) -> list[str]:
    found: Any = step.form.get("resource")
    return [] if found is None else [str(each) for each in (found if isinstance(found, list) else [found])]


@stated_rule(sentence="Send `resource` with each authorization request.")
@each(_at("authorize"))
def resource_in_authorization(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that authorization requests name a resource."""
    return None if _resources(step) else "the authorization request has no resource"


@stated_rule(sentence="Send `resource` with each request for tokens.")
@each(_at("token"))
def resource_in_token_requests(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that requests for tokens name a resource, those with a refresh token, too."""
    grant = step.form.get("grant_type")
    if grant not in ("authorization_code", "refresh_token"):
        return UNDECIDED
    return None if _resources(step) else f"the request for tokens ({grant}) has no resource"


def _named(history: History) -> Iterator[tuple[Event, SignInSteps, str]]:
    for event, sign_in, step in _at("authorize", "token")(history):
        for resource in _resources(step):
            yield event, sign_in, resource


@stated_rule()
@each(_named)
def resource_names_server(_: Event, sign_in: SignInSteps, resource: str) -> Opinion:
    """Check that the resource has the origin of the server, and a path that leads to it."""
    # `resource_canonical` judges fragments.
    path = split(resource).path.rstrip("/")
    inside = f"{split(sign_in.server).path}/".startswith(f"{path}/")
    kept = origin_of(resource) == origin_of(sign_in.server) and inside
    return None if kept else f"the resource is {resource}, and the server {sign_in.server}"


@stated_rule()
@each(_named)
def resource_canonical(_: Event, _sign_in: SignInSteps, resource: str) -> Opinion:
    """Check that the resource is an absolute URI without a fragment (RFC 8707, section 2)."""
    parts = split(resource)
    kept = parts.scheme.lower() in ("http", "https") and parts.netloc and "#" not in resource
    return None if kept else f"the resource is {resource}"


@stated_rule()
@each(_named)
def resource_specific(_: Event, sign_in: SignInSteps, resource: str) -> Opinion:
    """Check that the resource is the endpoint, which the resource metadata names, and not only its origin."""
    if origin_of(resource) != origin_of(sign_in.server):
        return UNDECIDED
    path = split(resource).path.rstrip("/")
    return None if path == split(sign_in.server).path else f"the resource is {resource}, not {sign_in.server}"


@stated_rule(who="client")
@each(_named)
def resource_without_slash(_: Event, sign_in: SignInSteps, resource: str) -> Opinion:
    """Check that the resource has no slash at its end, which the server's URL has not."""
    if origin_of(resource) != origin_of(sign_in.server):
        return UNDECIDED
    return f"the resource is {resource}" if resource.partition("#")[0].endswith("/") else None


# --- scopes -----------------------------------------------------------------------------------------------------------

OFFLINE = frozenset({"offline_access", "openid"})
"""The scopes that a client may add for itself: they ask for a refresh token, and for the person's identity."""


def _first(history: History) -> Iterator[tuple[Event, SignInSteps, SignInStep, SignInStep]]:
    """Yield authorization requests before the client has any token, each with the refused request."""
    for event, sign_in, step in _at("authorize")(history):
        challenge = sign_in.challenge_before(step)
        if challenge is not None and sign_in.before(step, "token", ok=True) is None:
            yield event, sign_in, step, challenge


@stated_rule()
@each(_at("authorize"))
def challenge_scopes_requested(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that all scopes of the last challenge are asked for."""
    challenge = sign_in.challenge_before(step)
    wanted = frozenset[str]() if challenge is None else scopes_of(challenge.answer.get("scope"))
    if not wanted:
        return UNDECIDED
    missing = sorted(wanted - step.scopes)
    # Without the parameter, the authorization server decides, and the client has not asked for what it needs.
    return f"it does not ask for {' '.join(missing)}, which the challenge names" if missing else None


@stated_rule()
@each(_first)
def challenge_scopes_only(_: Event, _sign_in: SignInSteps, step: SignInStep, challenge: SignInStep) -> Opinion:
    """Check that the first authorization request asks for no more scopes than the challenge names."""
    wanted = scopes_of(challenge.answer.get("scope"))
    if not wanted:
        return UNDECIDED
    more = sorted(step.scopes - wanted - OFFLINE)
    return f"it asks for {' '.join(more)}, which the challenge does not name" if more else None


@stated_rule()
@each(_first)
def listed_scopes_requested(_: Event, sign_in: SignInSteps, step: SignInStep, challenge: SignInStep) -> Opinion:
    """Check that the scopes are those of the resource metadata if the challenge names none."""
    metadata = sign_in.before(step, "resource metadata", ok=True)
    if metadata is None or scopes_of(challenge.answer.get("scope")):
        return UNDECIDED
    listed = frozenset(map(str, items_of(metadata.answer, "scopes_supported")))
    asked = step.scopes - OFFLINE
    return None if asked == listed else f"it asks for {sorted(asked)}, and the metadata lists {sorted(listed)}"


# --- more scopes ------------------------------------------------------------------------------------------------------

A_FEW = 3
"""How many authorization requests for one operation are a few (arbitrary: the text sets no number)."""


@stated_rule(sentence="Try to get more scopes after a 403 that names them.")
@each(lambda history: steps_of(history, "server"))
def step_up_tried(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that an authorization request follows a 403 for scopes that were not asked for or granted before."""
    had = [each.scopes for each in sign_in.to("authorize") if each.place < step.place]
    had += [scopes_of(each.answer.get("scope")) for each, _ in sign_in.issued() if each.place < step.place]
    wanted = scopes_of(step.answer.get("scope"))
    # Without a token that shows what was granted, nothing can be said.
    if step.status != 403 or not had or wanted <= frozenset().union(*had):
        return UNDECIDED
    return None if sign_in.after(step, "authorize") else f"it does not ask for {' '.join(sorted(wanted))} after a 403"


@stated_rule(sentence="Limit the attempts to get more scopes for an operation.")
def step_up_limited(history: History) -> Iterator[Verdict]:
    """Check that the client soon gives up a message for which more scopes don't help."""
    sign_in = SignInSteps(history)
    refused: dict[str, list[SignInStep]] = {}
    for step in sign_in.to("server"):
        if step.status == 403:
            refused.setdefault(repr(step.event.facts.get("request_id")), []).append(step)
    for steps in refused.values():
        between = [each for each in sign_in.after(steps[0], "authorize") if each.place < steps[-1].place]
        kept = len(between) <= A_FEW
        if len(steps) > 1:
            yield judged(kept, steps[-1].event, f"it asks for more scopes {len(between)} times, for one message")


@stated_rule()
@each(_at("authorize"))
def step_up_keeps_scopes(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the authorization request after a 403 asks for what was asked for before, too."""
    challenge = sign_in.challenge_before(step)
    earlier = [each for each in sign_in.to("authorize") if each.place < step.place and each.origin == step.origin]
    if challenge is None or challenge.status != 403 or not earlier:
        return UNDECIDED
    lost = sorted(earlier[-1].scopes - step.scopes - OFFLINE)
    return f"it no longer asks for {' '.join(lost)}" if lost else None
