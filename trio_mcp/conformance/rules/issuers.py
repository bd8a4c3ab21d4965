"""Rules for authorization servers: what they publish about themselves, and what they refuse when a client signs in.

`check_issuers` records each request to an authorization server as a mark, ``login``, with the trial that it belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of
from trio_mcp.conformance.rules.clients.sign_ins import SignInStep, SignInSteps, is_loopback, split, steps_of
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import broken, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types.versions import LATEST_MODERN

__all__: list[str] = []

REQUIRED: Final = {
    "issuer": str,
    "authorization_endpoint": str,
    "token_endpoint": str,
    "response_types_supported": list,
}
"""The members that the metadata must have for clients to sign in, and their types (RFC 8414, section 2)."""

MOST: Final = 200
"""How many characters of a value are quoted in a problem (arbitrary)."""

IN_RESPONSES: Final = "authorization_response_iss_parameter_supported"


def _metadata() -> Occasions[str, list[SignInStep]]:
    """Return, as occasions for a rule, each issuer with the requests for its metadata; the last one is blamed."""

    def occasions(history: History) -> Iterator[tuple[Event, str, list[SignInStep]]]:
        found: dict[str, list[SignInStep]] = {}
        for _, _, step in steps_of(history, "authority metadata"):
            found.setdefault(_issuer(step), []).append(step)
        for issuer, steps in found.items():
            yield steps[-1].event, issuer, steps

    return occasions


def _documents() -> Occasions[str, SignInStep]:
    """Return, as occasions for a rule, the metadata of each issuer, where there is any."""

    def occasions(history: History) -> Iterator[tuple[Event, str, SignInStep]]:
        for _, issuer, steps in _metadata()(history):
            if (found := _document(steps)) is not None:
                yield found.event, issuer, found

    return occasions


def _document(steps: list[SignInStep]) -> SignInStep | None:
    """Return the step that has brought an issuer's metadata: its own if there is one, or else the first."""
    served = [step for step in steps if step.status == 200 and step.answer]
    own = (step for step in served if step.answer.get("issuer") == _issuer(step))
    return next(own, next(iter(served), None))


def _issuer(step: SignInStep) -> str:
    return str(step.event.facts.get("issuer"))


def _tried(trials: str | tuple[str, ...], to: str) -> Occasions[SignInSteps, SignInStep]:
    """Return, as occasions for a rule, the requests of a trial, or of several, that got a response."""
    names = (trials,) if isinstance(trials, str) else trials

    def occasions(history: History) -> Iterator[tuple[Event, SignInSteps, SignInStep]]:
        for event, sign_in, step in steps_of(history, to):
            if event.facts.get("trial") in names and step.status:
                yield event, sign_in, step

    return occasions


def _refused(step: SignInStep, what: str) -> Opinion:
    """Return the opinion on a request for tokens that must be refused."""
    if 200 <= step.status < 300:
        return f"{what} got tokens" if step.answer.get("access_token") else UNDECIDED
    return None if 400 <= step.status < 500 else UNDECIDED


# --- metadata ---------------------------------------------------------------------------------------------------------


@stated_rule(who="issuer", sentence="Serve metadata at a well-known place, with what clients need to sign in.")
@each(_metadata())
def issuer_metadata_served(_: Event, issuer: str, steps: list[SignInStep]) -> Opinion:
    """Check that one of the places has a document with the members that RFC 8414 requires."""
    found = _document(steps)
    if found is None:
        return f"the issuer {issuer} has no metadata at {len(steps)} well-known places"
    lacking = [name for name, kind in REQUIRED.items() if not isinstance(found.answer.get(name), kind)]
    return broken(found.event, f"the metadata has no {' and no '.join(lacking)}") if lacking else None


@stated_rule(who="issuer", sentence="Name in the metadata the issuer at whose well-known place it is.")
@each(_documents())
def issuer_named_exactly(_: Event, issuer: str, step: SignInStep) -> Opinion:
    """Check that the issuer is the one that the server names, letter by letter (RFC 8414, section 3.3)."""
    named = step.answer.get("issuer")
    # A document without an issuer is another rule's.
    return (
        UNDECIDED
        if not isinstance(named, str)
        else None
        if named == issuer
        else f"{issuer} calls itself {named[:MOST]}"
    )


@stated_rule(who="issuer", sentence="Serve every endpoint over HTTPS.")
@each(_metadata())
def issuer_over_tls(_: Event, issuer: str, steps: list[SignInStep]) -> Opinion:
    """Check the issuer and the endpoints in its metadata; one on this machine may be without TLS, for tests."""
    found = _document(steps)
    named = {} if found is None else {k: v for k, v in found.answer.items() if k.endswith(("_endpoint", "jwks_uri"))}
    urls = {"issuer": issuer, **{name: url for name, url in named.items() if isinstance(url, str)}}
    plain = [name for name, url in urls.items() if split(url).scheme.lower() == "http" and not is_loopback(url)]
    return f"without TLS: {', '.join(f'{name} {urls[name][:MOST]}' for name in plain)}" if plain else None


@stated_rule(who="issuer", sentence="Say in the metadata that PKCE with S256 is supported.")
@each(_documents())
def pkce_announced(_: Event, _issuer: str, step: SignInStep) -> Opinion:
    """Check the list of methods: without it, a client has to give up."""
    methods = items_of(step.answer.get("code_challenge_methods_supported"))
    return None if "S256" in methods else f"code_challenge_methods_supported is {str(methods or 'missing')[:MOST]}"


@stated_rule(who="issuer", sentence="Let clients name themselves by a metadata document, or register.")
@each(_documents())
def clients_can_register(_: Event, _issuer: str, step: SignInStep) -> Opinion:
    """Check that a client that is not known beforehand has a way to sign in."""
    documents = step.answer.get("client_id_metadata_document_supported") is True
    registration = isinstance(step.answer.get("registration_endpoint"), str)
    return None if documents or registration else "clients can neither register nor name a metadata document"


@stated_rule(who="issuer", sentence="Name the issuer in authorization responses.")
@each(_documents())
def iss_in_responses(_: Event, _issuer: str, step: SignInStep) -> Opinion:
    """Check that the metadata announces it; without that, clients can't rely on it."""
    says = step.answer.get(IN_RESPONSES)
    return None if says is True else f"{IN_RESPONSES} is {'missing' if says is None else str(says)[:MOST]}"


@stated_rule(who="issuer", sentence="Announce in the metadata whether responses name the issuer, and keep to that.")
@each(_tried("sign in", "authorize"))
def iss_as_announced(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check a response against the metadata (RFC 9207, sections 2 and 3)."""
    document = _document([each for each in sign_in.to("authority metadata") if _issuer(each) == _issuer(step)])
    if document is None or not step.redirection:
        return UNDECIDED
    named, announced = step.redirection.get("iss"), document.answer.get(IN_RESPONSES) is True
    if named is None:
        return f"a response has no iss, and {IN_RESPONSES} is true" if announced else None
    if named != _issuer(step):
        return f"a response of {_issuer(step)} has the iss {str(named)[:MOST]}"
    return None if announced else f"a response has an iss, and {IN_RESPONSES} is not true"


# --- signing in -------------------------------------------------------------------------------------------------------


@stated_rule(who="issuer", sentence="Refuse an authorization request without a code_challenge.")
@each(_tried("without challenge", "authorize"))
def code_challenge_required(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that such a request leads to no code (OAuth 2.1, section 4.1.1)."""
    if "code" in step.redirection:
        return "an authorization request without a code_challenge got a code"
    return None if "error" in step.redirection or 400 <= step.status < 500 else UNDECIDED


@stated_rule(who="issuer", sentence="Refuse a code whose code_verifier does not fit.")
@each(_tried("wrong verifier", "token"))
def code_verifier_compared(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that another verifier gets no tokens (RFC 7636, section 4.6)."""
    return _refused(step, "a wrong code_verifier")


@stated_rule(
    who="issuer", level="SHOULD", sentence="Compare a redirect_uri in a request for tokens with the one before."
)
@each(_tried("other redirect", "token"))
def code_redirect_compared(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that another redirect URI gets no tokens (RFC 6749, section 4.1.3; OAuth 2.1: old clients only)."""
    return _refused(step, "a redirect_uri other than that of the authorization request")


@stated_rule(who="issuer", sentence="Take a code only once.")
@each(_tried("code again", "token"))
def codes_used_once(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that a code that was redeemed gets no more tokens (OAuth 2.1, section 4.1.3)."""
    return _refused(step, "a code that was used")


@stated_rule(who="issuer")
@each(_tried("unregistered redirect", "authorize"))
def redirect_uris_exact(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the browser is never led to a redirect URI that is not registered, not even with an error."""
    if step.redirection:
        return f"a browser is led to {step.form.get('redirect_uri')}, which the client has not registered"
    # A page in the 200s may be about the error, or be the one to sign in.
    return None if 400 <= step.status < 500 else UNDECIDED


@stated_rule(who="issuer", sentence="Replace the refresh token of a public client at each use.")
@each(_tried("refresh", "token"))
def refresh_tokens_replaced(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that a refresh brings another refresh token."""
    if not 200 <= step.status < 300 or step.event.facts.get("client_method") != "none":
        return UNDECIDED
    came = step.event.facts.get("refresh_token")
    return None if came == "new" else "a refresh brings the same refresh token" if came == "same" else _KEPT


_KEPT: Final = "a refresh brings no refresh token, so the old one stays valid"


@rule(
    "EXPECTED",
    "issuer",
    "basic/authorization#resource-parameter-implementation",
    "Issue tokens for the resource that was asked for.",
    older="",
    revisions=("2025-06-18", "2025-11-25", LATEST_MODERN),
    reason="Servers must refuse tokens that were not issued for them, so another audience makes the token useless, or "
    "useful elsewhere (RFC 8707, section 2).",
)
@each(_tried(("sign in", "other resource"), "token"))
def tokens_for_the_resource(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check the audience of an access token that is a JWT; that of any other can't be read."""
    audience: Any = step.event.facts.get("audience")
    asked = step.form.get("resource")
    if audience is None or not isinstance(asked, str):
        return UNDECIDED
    # A slash at the end may or may not be part of the identifier, as in the metadata of resources.
    is_named = asked.rstrip("/") in {str(each).rstrip("/") for each in audience}
    return None if is_named else f"the token for {asked} has the audience {str(audience)[:MOST]}"
