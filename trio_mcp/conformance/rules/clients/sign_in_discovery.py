"""Rules for how a client finds out where to sign in, and how it gets its id there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.members import items_of
from trio_mcp.conformance.rules.clients.sign_ins import (
    SignInStep,
    SignInSteps,
    is_loopback,
    issuer_places,
    origin_of,
    split,
    steps_of,
)
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event

RESOURCE = "/.well-known/oauth-protected-resource"


# --- the resource metadata --------------------------------------------------------------------------------------------


@stated_rule()
def challenge_understood(history: History) -> Iterator[Verdict]:
    """Check that the client does something to sign in after the first 401."""
    sign_in = SignInSteps(history)
    first = next((step for step in sign_in.to("server") if step.status == 401), None)
    if first is not None:
        later = [step for step in sign_in.steps if step.place > first.place and step.to != "server"]
        yield judged(bool(later), first.event, "the client does nothing to sign in after a 401")


@stated_rule()
def resource_metadata_order(history: History) -> Iterator[Verdict]:
    """Check the first places where the client looks for resource metadata after each 401."""
    sign_in = SignInSteps(history)
    challenge: SignInStep | None = None
    tried: list[SignInStep] = []
    for step in sign_in.steps:
        if step.to == "server":
            yield from _given_up(challenge, tried)
            challenge, tried = step, []
        elif step.to == "resource metadata" and challenge is not None:
            named = challenge.answer.get("resource_metadata")
            first = named or f"{challenge.origin}{RESOURCE}{split(challenge.url).path}"
            if not tried:
                yield judged(step.url == first, step.event, f"it looks for {step.url} before {first}")
            tried.append(step)
    yield from _given_up(challenge, tried)


def _given_up(challenge: SignInStep | None, tried: list[SignInStep]) -> Iterator[Verdict]:
    """Yield that the client has not looked at the root, if it has found no metadata."""
    if challenge is None or not tried or "resource_metadata" in challenge.answer:
        return
    root = f"{challenge.origin}{RESOURCE}"
    if all(step.status == 404 and step.url != root for step in tried):
        yield broken(tried[-1].event, f"it gives up without looking for {root}")


@stated_rule()
@each(lambda history: steps_of(history, "authority metadata", "register", "authorize", "token"))
def login_from_resource_metadata(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the client asks only authorization servers that the resource metadata names."""
    documents = [each for each in sign_in.to("resource metadata", ok=True) if each.place < step.place]
    issuers = [str(issuer) for each in documents for issuer in items_of(each.answer, "authorization_servers")]
    if step.to != "authority metadata" and sign_in.metadata_of(step) is not None:
        return UNDECIDED  # the metadata has been judged
    kept = any(origin_of(issuer) == step.origin for issuer in issuers)
    return None if kept else f"it requests {step.target}, which no resource metadata has led to"


@stated_rule(sentence="Use no resource metadata that is for another server.")
@each(lambda history: steps_of(history, "resource metadata"))
def resource_metadata_of_server(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the client stops if the resource metadata is that of a server with another origin (RFC 9728, 3.3)."""
    resource = step.answer.get("resource")
    if step.status != 200 or origin_of(str(resource)) == step.origin:
        return UNDECIDED
    used = next(iter(sign_in.after(step, "authority metadata", "register", "authorize")), None)
    # Reading the metadata of the authorization server does no harm; a person who signs in there does.
    if used is not None and used.to == "authority metadata":
        used = next(iter(sign_in.after(used, "register", "authorize")), None)
    return broken(used.event, f"it signs in although the metadata is for {resource}") if used is not None else None


@stated_rule(who="client")
@each(lambda history: steps_of(history, "resource metadata"))
def resource_upper_case_accepted(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the client goes on if the resource metadata has the scheme in upper case."""
    resource = step.answer.get("resource")
    if step.status != 200 or not str(resource).startswith("HTTP:") or origin_of(str(resource)) != step.origin:
        return UNDECIDED
    return None if sign_in.after(step, "authority metadata") else f"it does not accept the resource {resource}"


# --- the authorization server's metadata ------------------------------------------------------------------------------


def _looked_for(history: History) -> Iterator[tuple[SignInSteps, str, list[SignInStep]]]:
    """Yield each issuer in the resource metadata, with the steps that look for its metadata."""
    sign_in = SignInSteps(history)
    issuers = [
        str(issuer)
        for step in sign_in.to("resource metadata", ok=True)
        for issuer in items_of(step.answer, "authorization_servers")
    ]
    for issuer in dict.fromkeys(issuers):
        places = issuer_places(issuer)
        yield sign_in, issuer, [step for step in sign_in.to("authority metadata") if step.url in places]


@stated_rule(sentence="Try the well-known places of an authorization server's metadata in their order.")
def authority_metadata_order(history: History) -> Iterator[Verdict]:
    """Check that no place is tried before those in front of it."""
    for _, issuer, steps in _looked_for(history):
        places, tried = issuer_places(issuer), set[str]()
        for step in steps:
            missing = [place for place in places[: places.index(step.url)] if place not in tried]
            tried.add(step.url)
            yield judged(not missing, step.event, f"it looks for {step.url} before {(missing or [''])[0]}")


@stated_rule()
def authority_metadata_places(history: History) -> Iterator[Verdict]:
    """Check that the client doesn't give up before it has tried all places."""
    for _, issuer, steps in _looked_for(history):
        if any(step.status == 200 for step in steps):
            yield held(steps[-1].event)
        elif steps:
            missing = [place for place in issuer_places(issuer) if place not in {step.url for step in steps}]
            yield judged(not missing, steps[-1].event, f"it gives up without looking for {(missing or [''])[0]}")


@stated_rule()
def authority_issuer_checked(history: History) -> Iterator[Verdict]:
    """Check that the client doesn't use metadata of another issuer than the one it looked for."""
    for sign_in, issuer, steps in _looked_for(history):
        for step in steps:
            named = str(step.answer.get("issuer"))
            # A slash at the end is another issuer, too, but the kit's servers never differ by that alone.
            if step.status == 200 and named.rstrip("/") != issuer.rstrip("/"):
                used = next(iter(sign_in.uses_of(step)), None)
                problem = f"it uses metadata of {named}, and had looked for {issuer}"
                yield judged(used is None, step.event if used is None else used.event, problem)


@stated_rule(sentence="Stop if the metadata of the authorization server doesn't list PKCE methods.")
@each(lambda history: steps_of(history, "authority metadata"))
def pkce_support_checked(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that the client sends no person to an authorization server whose metadata lists no PKCE methods."""
    if step.status != 200 or step.answer.get("code_challenge_methods_supported"):
        return UNDECIDED
    used = next((each for each in sign_in.uses_of(step) if each.to == "authorize"), None)
    return broken(used.event, "it goes on although the metadata lists no PKCE methods") if used is not None else None


# --- the client's id --------------------------------------------------------------------------------------------------


def _registered(sign_in: SignInSteps, step: SignInStep) -> list[SignInStep]:
    """Return the registrations at the authorization server that a step asks."""
    return [each for each in sign_in.to("register", ok=True) if each.origin == step.origin and each.place < step.place]


@stated_rule(sentence="Use a client id only where it was given, or the URL of a metadata document.")
@each(lambda history: steps_of(history, "authorize", "token"))
def client_id_of_authority(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that each client id comes from a registration at the same authorization server, or is a URL."""
    given = step.form.get("client_id")
    if given is None or sign_in.metadata_of(step) is None:
        return UNDECIDED  # a client may name itself in the header Authorization
    # No client is registered beforehand, as each example has authorization servers of its own.
    known = [each.answer.get("client_id") for each in _registered(sign_in, step)]
    return None if given in known or "://" in str(given) else f"this server has given no client id {given!r}"


def _documents(history: History) -> Iterator[tuple[Event, SignInSteps, SignInStep, str]]:
    for event, sign_in, step in steps_of(history, "authorize"):
        if "://" in (given := str(step.form.get("client_id"))):
            yield event, sign_in, step, given


@stated_rule()
@each(_documents)
def document_id_form(_: Event, _sign_in: SignInSteps, _step: SignInStep, given: str) -> Opinion:
    """Check the URL of a metadata document."""
    parts = split(given)
    kept = parts.scheme == "https" and parts.path.strip("/") and not parts.fragment and "@" not in parts.netloc
    return None if kept else f"the client id is {given}"


@stated_rule()
@each(_documents)
def document_id_announced(_: Event, sign_in: SignInSteps, step: SignInStep, given: str) -> Opinion:
    """Check that a metadata document is used only where the authorization server takes such."""
    metadata = sign_in.metadata_of(step)
    if metadata is None:
        return UNDECIDED
    kept = metadata.answer.get("client_id_metadata_document_supported") is True
    return None if kept else f"the client id is {given}, which the metadata does not say is supported"


# --- registration -----------------------------------------------------------------------------------------------------


def _redirects(step: SignInStep) -> list[str]:
    found: Any = step.form.get("redirect_uris")
    return [str(url) for url in found] if isinstance(found, list) else []


@stated_rule()
@each(lambda history: steps_of(history, "register"))
def application_type_named(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that a registration has an application type."""
    given = step.form.get("application_type")
    return None if given in ("native", "web") else f"application_type is {given!r}"


@stated_rule(sentence="Register native applications as `native`, and others as `web`.")
@each(lambda history: steps_of(history, "register"))
def application_type_fits(_: Event, _sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check the application type of clients whose redirect URIs all lead to this computer, or all elsewhere."""
    given, redirects = step.form.get("application_type"), _redirects(step)
    near = {is_loopback(url) for url in redirects if url.startswith("http")}
    if given is None or len(near) != 1:
        return UNDECIDED
    fits = "native" if near == {True} else "web"
    return None if given == fits else f"application_type is {given!r}, and the redirect URIs are {redirects}"


@stated_rule()
@each(lambda history: steps_of(history, "register"))
def registration_refusal_survived(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that a client whose registration was refused doesn't go on as if it was registered."""
    if step.status < 400:
        return UNDECIDED
    used = next((each for each in sign_in.after(step, "authorize") if not _registered(sign_in, each)), None)
    if used is None or "://" in str(used.form.get("client_id")):
        return None
    return broken(used.event, f"its registration was refused, and it goes on as {used.form.get('client_id')!r}")


@stated_rule()
@each(lambda history: steps_of(history, "register"))
def refresh_grant_registered(_: Event, sign_in: SignInSteps, step: SignInStep) -> Opinion:
    """Check that a client that wants refresh tokens registers for them."""
    later = sign_in.after(step, "authorize", "token")
    wants = any(each.form.get("grant_type") == "refresh_token" or "offline_access" in each.scopes for each in later)
    if "refresh_token" in items_of(step.form, "grant_types"):
        return None
    return "it uses a refresh token, and has not registered for that" if wants else UNDECIDED
