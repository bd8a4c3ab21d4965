"""The check of authorization servers: each fault is found by its rule, and a healthy one breaks nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.cli.running import environment
from tests.kit.mutants.issuers import ISSUERS
from trio_mcp import Server, TransportError
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import AuthorizationServer, protected
from trio_mcp.auth.testing.answers import ServerResponse
from trio_mcp.auth.testing.faults import Fault, Handle, cut, edited, moved, raw, status
from trio_mcp.conformance import CheckReport, check_issuers
from trio_mcp.conformance.report import form_of
from trio_mcp.conformance.report.json import json_text
from trio_mcp.conformance.rules.catalogue import RULES

OURS = {rule.id for rule in RULES.values() if rule.who == "issuer"}
METADATA = {
    "issuer-metadata-served", "issuer-named-exactly", "issuer-over-tls", "pkce-announced", "clients-can-register",
    "iss-in-responses",
}  # fmt: skip
"""The rules that are judged without signing in."""


@contextlib.asynccontextmanager
async def named_by_a_server(authority: AuthorizationServer, **settings: Any) -> AsyncIterator[str]:
    """Yield the URL of a protected server, which names an authorization server."""
    async with protected(Server("files"), authority, **settings) as url:
        yield url


def broken(report: CheckReport) -> set[str]:
    return {outcome.rule.id for outcome in report.broken}


def held(report: CheckReport) -> set[str]:
    return {outcome.rule.id for outcome in report.outcomes if outcome.status == "held"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"issuer": "https://id.example.com/tenant/one"},
        {"discovery": "openid"},
        {"discovery": "oauth", "scopes": ("read", "offline_access", "openid")},
        {"grace": 30},
    ],
    ids=str,
)
async def test_a_healthy_authorization_server_breaks_nothing(settings: dict[str, Any]) -> None:
    issuer = settings.pop("issuer", "https://id.example.com")
    async with named_by_a_server(AuthorizationServer(issuer, **settings), scopes=["read"]) as url:
        report = await check_issuers(url, sign_in=True)
    assert (broken(report), report.undecided, report.status) == (set(), (), 0)
    assert held(report) == OURS


async def test_opaque_tokens_hide_for_whom_they_are() -> None:
    async with named_by_a_server(AuthorizationServer(tokens="opaque"), scopes=["read"]) as url:
        report = await check_issuers(url, sign_in=True)
    assert (broken(report), held(report)) == (set(), OURS - {"tokens-for-the-resource"})


@pytest.mark.parametrize("name", ISSUERS)
async def test_a_mutated_authorization_server_is_found_by_its_rule(name: str) -> None:
    mutant = ISSUERS[name]
    authority = AuthorizationServer()
    authority.add_client("known", redirects=["http://127.0.0.1/callback"])
    async with named_by_a_server(authority) as url:
        mutant.spoil(authority)
        report = await check_issuers(url, sign_in=True, client_id="known" if mutant.registered else None)
    assert broken(report) == {mutant.rule} | mutant.also
    assert report.status == (1 if RULES[mutant.rule].level == "MUST" else 2 if report.undecided else 0)
    assert bool(report.undecided) == (mutant.rule == "issuer-over-tls")
    outcome = next(each for each in report.broken if each.rule.id == mutant.rule)
    assert outcome.failure is not None
    assert outcome.failure.transcript[outcome.failure.at].facts["issuer"] == authority.issuer
    if not mutant.stops:
        assert held(report) == OURS - broken(report)


async def test_without_signing_in_nothing_but_metadata_is_asked_for() -> None:
    authority = AuthorizationServer()
    async with named_by_a_server(authority) as url:
        report = await check_issuers(url)
        assert {each.endpoint for each in authority.seen} == {"metadata"}
    assert (held(report), broken(report)) == (METADATA, set())
    reasons = {outcome.reason for outcome in report.outcomes if outcome.rule.id not in METADATA}
    assert reasons == {"the check did not sign in, or there is no metadata (sign_in)"}


async def test_no_secret_is_in_a_report() -> None:
    authority = AuthorizationServer()
    for mutant in ("takes pkce for a choice", "takes codes again", "returns the same refresh token"):
        ISSUERS[mutant].spoil(authority)
    heard: list[str] = []

    def listening(fault: Fault) -> Fault:
        def hear(request: Fetch, handle: Handle) -> ServerResponse:
            given = fault(request, handle)
            location = given.headers.get("Location") or ""
            heard.extend(part[5:] for part in location.partition("?")[2].split("&") if part.startswith("code="))
            answer = json.loads(given.body) if given.body else {}
            heard.extend(answer[name] for name in ("access_token", "refresh_token") if name in answer)
            return given

        return hear

    for endpoint in ("authorize", "token"):
        fault = authority.faults[endpoint]
        assert callable(fault)
        authority.faults[endpoint] = listening(fault)
    async with named_by_a_server(authority) as url:
        report = await check_issuers(url, sign_in=True)
    assert "code-challenge-required" in broken(report)
    assert len(heard) > 5
    for text in (json_text(report), *(form_of(f"r{ending}")(report) for ending in (".html", ".txt", ".xml", ".sarif"))):
        assert [secret for secret in heard if secret in text] == []


async def test_a_person_signs_in_where_a_page_comes() -> None:
    """The kit shows the person a page, but for those that may be about an error."""
    pages: list[str] = []
    authority = AuthorizationServer()

    def page(request: Fetch, handle: Handle) -> ServerResponse:
        return status(200, b"<form>Sign in</form>", Content_Type="text/html")(request, handle)

    async def show(url: str) -> str:
        pages.append(url)
        authority.faults.pop("authorize")
        try:
            return await authority.show(url)
        finally:
            authority.faults["authorize"] = page

    authority.faults["authorize"] = page
    async with named_by_a_server(authority) as url:
        report = await check_issuers(url, sign_in=True, show=show)
    assert (broken(report), report.undecided) == (set(), ())
    assert len(pages) == 4
    assert OURS - held(report) == {"redirect-uris-exact", "code-challenge-required"}


async def test_a_person_who_declines_leaves_the_rest_untried() -> None:
    authority = AuthorizationServer()
    authority.denies = True
    async with named_by_a_server(authority) as url:
        report = await check_issuers(url, sign_in=True)
    assert report.status == 2
    assert "access_denied" in report.undecided[0]
    assert held(report) == METADATA | {"iss-as-announced"}


DEEP = base64.urlsafe_b64encode(b"[" * 30_000)
HOSTILE: dict[str, tuple[str, Fault]] = {
    "metadata that is not JSON": ("metadata", raw(b"<html>")),
    "metadata that is too deep": ("metadata", raw(b"[" * 50_000)),
    "metadata that is a list": ("metadata", raw(b"[1]")),
    "metadata that breaks off": ("metadata", cut),
    "metadata without end": ("metadata", raw(b" " * 1_000_000)),
    "metadata of odd types": ("metadata", edited(token_endpoint=[1], authorization_endpoint={}, issuer=7)),
    "methods of odd types": ("metadata", edited(code_challenge_methods_supported=[{"a": []}, None])),
    "metadata that moves": ("metadata", moved("http://127.0.0.1:9/elsewhere")),
    "a registration that is not JSON": ("register", raw(b"{")),
    "a registration of odd types": ("register", raw(b'{"client_id": 7}')),
    "a redirection that can't be read": ("authorize", status(302, Location="http://[")),
    "a redirection to this machine": ("authorize", status(302, Location="http://127.0.0.1:9/callback?code=x")),
    "a redirection without parameters": ("authorize", status(302, Location="")),
    "tokens that are not JSON": ("token", raw(b"\xff")),
    "tokens of odd types": ("token", raw(b'{"access_token": [1], "refresh_token": {"a": 1}}')),
    "claims that are too deep": ("token", raw(b'{"access_token": "eyJhbGciOiJub25lIn0.' + DEEP + b'."}')),
    "an audience of odd types": ("token", raw(b'{"access_token": "eyJhbGciOiJub25lIn0.eyJhdWQiOlt7fSwxXX0."}')),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_authorization_server_only_breaks_rules(name: str) -> None:
    """It gets a report, and nothing is raised; a redirection that never comes is not waited for."""
    endpoint, fault = HOSTILE[name]
    authority = AuthorizationServer(faults={endpoint: fault})

    async def lost(url: str) -> str:
        return "http://127.0.0.1/nothing"

    async with named_by_a_server(authority) as url:
        report = await check_issuers(url, sign_in=True, show=lost, login_timeout=0.5)
    assert broken(report) or report.undecided
    assert json.loads(json_text(report))


async def test_an_issuer_in_the_clear_is_not_even_asked() -> None:
    class Elsewhere(AuthorizationServer):
        def metadata(self) -> dict[str, Any]:
            raise AssertionError("it is asked")

    resource = {"authorization_servers": ["http://id.example.com"]}
    async with _metadata_of(resource) as url:
        report = await check_issuers(url, sign_in=True)
    assert {"issuer-over-tls", "issuer-metadata-served"} == broken(report)
    assert report.requests == 0


@contextlib.asynccontextmanager
async def _metadata_of(resource: dict[str, Any]) -> AsyncIterator[str]:
    """Serve the metadata of a protected server, and nothing else."""
    from trio_mcp.auth.testing.asgi import respond, served

    origins: list[str] = []

    def handle(request: Fetch) -> ServerResponse:
        if "/.well-known/oauth-protected-resource" not in request.url:
            return status(401)(request, lambda _: None)  # type: ignore[arg-type, return-value]
        body = json.dumps({"resource": f"{origins[0]}/mcp", **resource}).encode()
        return raw(body)(request, lambda _: None)  # type: ignore[arg-type, return-value]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await respond(origins[0] if origins else "http://127.0.0.1", handle, scope, receive, send)

    async with served(app, "127.0.0.1", 0) as origin:
        origins.append(origin)
        yield f"{origin}/mcp"


async def test_a_server_that_names_nobody_can_not_be_checked() -> None:
    async with _metadata_of({"authorization_servers": []}) as url:
        with pytest.raises(TransportError, match="names no authorization server"):
            await check_issuers(url)
    with pytest.raises(TransportError, match="ConnectError"):
        await check_issuers("http://127.0.0.1:9/mcp")


async def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="client_id is used only to sign in"):
        await check_issuers("http://127.0.0.1:9/mcp", client_id="x")
    with pytest.raises(ValueError, match="no rule for an issuer is called 'nope'"):
        await check_issuers("http://127.0.0.1:9/mcp", rules=["nope"])
    with pytest.raises(TypeError, match="sign_in must be True or False"):
        await check_issuers("http://127.0.0.1:9/mcp", sign_in="yes")  # type: ignore[typeddict-item]


async def test_a_stop_ends_the_check_with_what_was_found() -> None:
    authority, stop = AuthorizationServer(), trio.Event()

    async def never(url: str) -> None:
        stop.set()
        await trio.sleep_forever()

    authority.faults["authorize"] = status(200)
    async with named_by_a_server(authority) as url:
        report = await check_issuers(url, sign_in=True, show=never, stop=stop)
    assert (report.ended, held(report)) == ("interrupted", METADATA)


CAPTURED: dict[str, Any] = {"capture_stdout": True, "capture_stderr": True, "check": False}


async def test_the_command_line_checks_and_knows_a_baseline(tmp_path: Path) -> None:
    authority = AuthorizationServer()
    ISSUERS["takes codes again"].spoil(authority)
    line = [sys.executable, "-m", "trio_mcp", "check", "--issuers", "--sign-in"]
    given = {"cwd": tmp_path, "env": environment(), **CAPTURED}
    async with named_by_a_server(authority) as url:
        first = await trio.run_process([*line, "--write-baseline", "known.yml", "--report", "r.html", url], **given)
        second = await trio.run_process([*line, "--baseline", "known.yml", "--json", url], **given)
    assert (first.returncode, second.returncode) == (1, 0)
    assert b"codes-used-once  MUST" in first.stdout
    # A file to replay would be for a server.
    assert (first.stderr, second.stderr) == (b"", b"")
    assert sorted(os.listdir(tmp_path)) == ["known.yml", "r.html"]
    told = {each["id"]: each for each in json.loads(second.stdout)["rules"]}
    assert told["codes-used-once"]["failure"]["known"] is True
