"""Authorization servers with one fault each: the one for tests, which is told before a request what to forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

import attrs

from trio_mcp.auth.rules.authorization import challenge_of
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.answers import ServerResponse
from trio_mcp.auth.testing.faults import Fault, Handle, edited, redirected
from trio_mcp.auth.testing.records import IssuedCode

ISS = "authorization_response_iss_parameter_supported"

Breaking = Callable[[AuthorizationServer], None]


@attrs.frozen
class IssuerMutant:
    """An authorization server with a fault.

    Attributes:
        name: What it does wrong.
        rule: The rule that it breaks.
        spoil: Gives a healthy server the fault.
        also: Rules that this breaks, too.
        registered: Whether the client is known beforehand.
        stops: Whether a client can't sign in because of the fault.
    """

    name: str
    rule: str
    spoil: Breaking
    also: frozenset[str] = frozenset()
    registered: bool = False
    stops: bool = False


ISSUERS: dict[str, IssuerMutant] = {}
"""By name."""


def breaks(rule: str, *also: str, **settings: Any) -> Callable[[Breaking], Breaking]:
    """Register a mutant, which is called as its function."""

    def register(spoil: Breaking) -> Breaking:
        name = spoil.__name__.replace("_", " ")
        ISSUERS[name] = IssuerMutant(name, rule, spoil, frozenset(also), **settings)
        return spoil

    return register


def parameters_of(request: Fetch) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode() or request.url.partition("?")[2]))


def before(act: Callable[[dict[str, str]], None]) -> Fault:
    """Let something happen before a request is acted on."""

    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        act(parameters_of(request))
        return handle(request)

    return fault


def issued(server: AuthorizationServer, given: dict[str, str]) -> IssuedCode | None:
    """Return what the server remembers of the code that is to be redeemed."""
    return server._grants.codes.get(given.get("code", ""))  # noqa: SLF001 - a fault is in what it remembers


# --- what is published ------------------------------------------------------------------------------------------------


@breaks("issuer-metadata-served", stops=True)
def publishes_nothing(server: AuthorizationServer) -> None:
    server.settings["discovery"] = "none"


@breaks("issuer-metadata-served")
def leaves_out_response_types(server: AuthorizationServer) -> None:
    server.faults["metadata"] = edited(response_types_supported=None)


@breaks("issuer-named-exactly")
def names_itself_with_a_slash(server: AuthorizationServer) -> None:
    server.faults["metadata"] = lambda request, handle: edited(issuer=server.issuer + "/")(request, handle)


@breaks("issuer-over-tls", stops=True)
def takes_tokens_in_the_clear(server: AuthorizationServer) -> None:
    server.faults["metadata"] = edited(token_endpoint="http://id.example.com/token")


@breaks("pkce-announced", stops=True)
def announces_no_pkce(server: AuthorizationServer) -> None:
    server.faults["metadata"] = edited(code_challenge_methods_supported=None)


@breaks("pkce-announced")
def announces_plain_pkce(server: AuthorizationServer) -> None:
    server.faults["metadata"] = edited(code_challenge_methods_supported=["plain"])


@breaks("clients-can-register", registered=True)
def lets_nobody_register(server: AuthorizationServer) -> None:
    server.settings["registration"] = False


@breaks("iss-in-responses")
def names_itself_nowhere(server: AuthorizationServer) -> None:
    server.faults["metadata"] = edited(**{ISS: None})
    server.faults["authorize"] = redirected(iss=None)


@breaks("iss-as-announced", "iss-in-responses")
def names_itself_unannounced(server: AuthorizationServer) -> None:
    server.faults["metadata"] = edited(**{ISS: False})


@breaks("iss-as-announced")
def announces_a_name_that_never_comes(server: AuthorizationServer) -> None:
    server.faults["authorize"] = redirected(iss=None)


@breaks("iss-as-announced")
def calls_itself_another(server: AuthorizationServer) -> None:
    server.faults["authorize"] = redirected(iss="https://other.example")


# --- what is refused --------------------------------------------------------------------------------------------------


@breaks("code-challenge-required")
def takes_pkce_for_a_choice(server: AuthorizationServer) -> None:
    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        given = parameters_of(request)
        if "code_challenge" not in given:
            given |= {"code_challenge": challenge_of("x" * 43), "code_challenge_method": "S256"}
        base = request.url.partition("?")[0]
        return handle(attrs.evolve(request, url=f"{base}?{urlencode(given)}"))

    server.faults["authorize"] = fault


@breaks("code-verifier-compared")
def compares_no_verifier(server: AuthorizationServer) -> None:
    def forget(given: dict[str, str]) -> None:
        if (code := issued(server, given)) is not None:
            code.challenge = challenge_of(given["code_verifier"])

    server.faults["token"] = before(forget)


@breaks("code-redirect-compared")
def compares_no_redirect(server: AuthorizationServer) -> None:
    def forget(given: dict[str, str]) -> None:
        if (code := issued(server, given)) is not None:
            code.redirect = given.get("redirect_uri")

    server.faults["token"] = before(forget)


@breaks("codes-used-once")
def takes_codes_again(server: AuthorizationServer) -> None:
    def forget(given: dict[str, str]) -> None:
        if (code := issued(server, given)) is not None:
            code.used = False

    server.faults["token"] = before(forget)


@breaks("redirect-uris-exact")
def redirects_anywhere(server: AuthorizationServer) -> None:
    def learn(given: dict[str, str]) -> None:
        known = server.clients.find(given["client_id"])
        server.clients.add(attrs.evolve(known, redirects=(*known.redirects, given["redirect_uri"])))

    server.faults["authorize"] = before(learn)


@breaks("refresh-tokens-replaced")
def returns_the_same_refresh_token(server: AuthorizationServer) -> None:
    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        given = parameters_of(request)
        if given["grant_type"] != "refresh_token":
            return handle(request)
        return edited(refresh_token=given["refresh_token"])(request, handle)

    server.faults["token"] = fault


@breaks("refresh-tokens-replaced")
def keeps_the_old_refresh_token(server: AuthorizationServer) -> None:
    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        if parameters_of(request)["grant_type"] != "refresh_token":
            return handle(request)
        return edited(refresh_token=None)(request, handle)

    server.faults["token"] = fault


@breaks("tokens-for-the-resource")
def issues_tokens_for_anyone(server: AuthorizationServer) -> None:
    server.settings["resource"] = "ignored"


@breaks("tokens-for-the-resource")
def issues_tokens_for_one_resource(server: AuthorizationServer) -> None:
    first: list[str] = []

    def fault(request: Fetch, handle: Handle) -> ServerResponse:
        given = parameters_of(request)
        first.extend([given["resource"]] if "resource" in given else [])
        if "resource" not in given:
            return handle(request)
        changed = urlencode({**given, "resource": first[0]})
        if request.method == "POST":
            return handle(attrs.evolve(request, body=changed.encode()))
        return handle(attrs.evolve(request, url=f"{request.url.partition('?')[0]}?{changed}"))

    server.faults["authorize"] = server.faults["token"] = fault
