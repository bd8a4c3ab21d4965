"""`check_issuers`: checks the authorization servers that a protected server names, as its clients meet them."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Final, Unpack

import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp._nursery import background_nursery
from trio_mcp._settings import completed
from trio_mcp.auth.client.asking import Asker
from trio_mcp.auth.client.browser import open_browser
from trio_mcp.auth.client.terminal import show_code
from trio_mcp.auth.fetching import Fetcher, drive
from trio_mcp.auth.rules.challenges import read_wanted
from trio_mcp.auth.rules.metadata import (
    MAX_SERVERS,
    ProtectedResource,
    find_resource,
    find_server,
    server_urls,
)
from trio_mcp.auth.rules.registration import RegisteredClient, register
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.rules.texts import json_object
from trio_mcp.auth.rules.urls import UrlPolicy
from trio_mcp.client.targets import target_name
from trio_mcp.conformance.causes import causes
from trio_mcp.conformance.clients import essential
from trio_mcp.conformance.options import IssuerCheckOptions
from trio_mcp.conformance.outcomes import CheckReport, Ended, Failure, Outcome, Progress
from trio_mcp.conformance.rules.catalogue import judge, select
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule, Verdict
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.trials import SignInExchanges, Trials
from trio_mcp.errors import AuthorizationError, TransportError
from trio_mcp.http.headers import JSON, shown
from trio_mcp.types.versions import LATEST_MODERN

__all__ = ["check_issuers"]

REDIRECT: Final = "http://127.0.0.1:0/callback"
_PING: Final = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


async def check_issuers(url: str, **options: Unpack[IssuerCheckOptions]) -> CheckReport:
    """Check the authorization servers that a protected server names, as its clients meet them.

    Their metadata is read as clients read it. With ``sign_in``, the check registers a client at each, signs in, and
    tries what must be refused. No token is sent to anyone but the authorization server that has issued it, and none
    is kept or shown. Only URLs that a client would request are requested: see `UrlPolicy`.

    Args:
        url: The URL of the protected server.
        options: See `IssuerCheckOptions`.

    Raises:
        ValueError: If a rule is unknown, or ``client_id`` or ``show`` is given without ``sign_in``.
        TypeError: If an option is unknown or of the wrong type.
        TransportError: If the server names no authorization server, or its metadata can't be read.
    """
    refuse_unknown(check_issuers, options, IssuerCheckOptions)
    given = completed(IssuerCheckOptions, options)
    if not given["sign_in"] and (alone := [name for name in ("client_id", "show") if given[name] is not None]):
        raise ValueError(f"{alone[0]} is used only to sign in: pass sign_in=True as well")
    check = _IssuerCheck(url, given)
    stop = trio.Event() if given["stop"] is None else given["stop"]
    with trio.CancelScope() as scope:
        async with background_nursery() as nursery:
            nursery.start_soon(_cancel_at, stop, scope)
            await check.run()
    return check.report("interrupted" if scope.cancelled_caught else "complete")


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


class _IssuerCheck:
    """The state and the findings of one check of authorization servers."""

    def __init__(self, url: str, given: IssuerCheckOptions) -> None:
        self._url = url
        self._given = given
        self._rules = select(given["rules"], "issuer")
        self._policy = UrlPolicy()
        self._fetcher = Fetcher(url, self._policy)
        self._exchanges = SignInExchanges(self._fetcher)
        self._began = trio.current_time()
        self._issuers = self._wanted = 0
        self._undecided: list[str] = []

    async def run(self) -> None:
        resource = await self._resource()
        issuers = resource.servers[:MAX_SERVERS]
        self._wanted = len(issuers)
        for self._issuers, issuer in enumerate(issuers, 1):
            has_metadata = await self._read_metadata(issuer)
            if self._given["sign_in"] and has_metadata:
                try:
                    await self._sign_in(issuer, resource)
                except AuthorizationError as exc:
                    self._undecided.append(f"not all was tried at {shown(issuer)}: {exc}")
            if (on_progress := self._given["on_progress"]) is not None:
                seconds = trio.current_time() - self._began
                on_progress(
                    Progress(self._issuers, self._wanted, seconds, self._exchanges.count, len(self._judged()[1]))
                )

    async def _resource(self) -> ProtectedResource:
        """Return the metadata of the server.

        Raises:
            TransportError: If it is missing, or can't be used.
        """
        fetch = self._fetcher.flow()
        fields = {"Content-Type": JSON, "Accept": f"{JSON}, text/event-stream"}
        try:
            refusal = await fetch(Fetch("challenge", "POST", self._url, fields, _PING))
            found = await drive(find_resource(self._url, read_wanted(refusal.headers), self._policy), fetch)
        except AuthorizationError as exc:
            raise TransportError(str(exc)) from None
        if found is None:
            raise TransportError(f"{shown(self._url)} has no metadata, and so names no authorization server")
        return found

    # --- an authorization server -------------------------------------------------------------------------------------

    async def _read_metadata(self, issuer: str) -> bool:
        """Look for metadata at each place until it is found; return whether it was."""
        to = "authority metadata"
        try:
            self._policy.check(issuer, self._url, "metadata")
            urls = server_urls(issuer)
        except (ValueError, AuthorizationError) as exc:
            self._exchanges.note(Fetch("metadata", "GET", issuer), to, issuer, problem=str(exc))
            return False
        has_any = False
        for url in urls:
            try:
                fetched = await self._exchanges.make(Fetch("metadata", "GET", url), to, issuer)
            except AuthorizationError:
                continue  # it is recorded
            answer = (json_object(fetched) if fetched.status == 200 else None) or {}
            has_any = has_any or bool(answer)
            if answer.get("issuer") == issuer:
                break
        return has_any

    async def _sign_in(self, issuer: str, resource: ProtectedResource) -> None:
        """Register a client, sign in, and try what must be refused.

        Raises:
            AuthorizationError: If any of it can't be done.
        """
        asker = Asker(self._given["show"] or open_browser, show_code, REDIRECT, self._given["login_timeout"])
        fetch = self._fetcher.flow()
        at = await drive(find_server(issuer, self._policy, self._url), fetch)
        named = self._given["client_id"]
        if named is None and at.registration is None:
            problem = "clients can't register there"
            advice = "pass the id of one that its operator has registered: client_id= (--client-id)"
            raise AuthorizationError("registration", problem, issuer=issuer, advice=advice)
        client = None if named is None else RegisteredClient(named)
        async with asker.opened(REDIRECT) as person:
            flow = register(at, client=client, redirect=person.redirect, name="trio-mcp check")
            record = await drive(flow, self._exchanges.maker("register", issuer))
            await Trials(self._exchanges, at, record, resource, person, issuer).run()

    # --- the report --------------------------------------------------------------------------------------------------

    def _judged(self) -> tuple[Counter[str], dict[str, Verdict]]:
        """Return on how many occasions each rule was judged, and the first verdict on each that is broken."""
        occasions: Counter[str] = Counter()
        broken: dict[str, Verdict] = {}
        for rule, verdict in judge(History(self._exchanges.events), self._rules):
            occasions[rule.id] += 1
            if verdict.problem is not None:
                broken.setdefault(rule.id, verdict)
        return occasions, broken

    def report(self, ended: Ended) -> CheckReport:
        """Return the report on what the check has found."""
        occasions, broken = self._judged()
        outcomes = tuple(self._outcome(rule, occasions[rule.id], broken.get(rule.id)) for rule in self._rules)
        return CheckReport(
            target_name(self._url),
            "issuer",
            "http",
            (LATEST_MODERN,),
            ", ".join(dict.fromkeys(str(event.facts.get("issuer")) for event in self._exchanges.events)),
            0,
            self._issuers,
            self._exchanges.count,
            trio.current_time() - self._began,
            0.0,
            outcomes,
            ended=ended,
            wanted=self._wanted,
            undecided=tuple(self._undecided),
            causes=causes([outcome for outcome in outcomes if outcome.status == "broken"]),
        )

    def _outcome(self, rule: Rule, occasions: int, verdict: Verdict | None) -> Outcome:
        if verdict is not None:
            failure = self._failure(rule, verdict)
            return Outcome(rule, "broken", occasions, failure=failure, known=rule.id in self._given["baseline"])
        if occasions:
            return Outcome(rule, "held", occasions)
        if self._given["sign_in"]:
            return Outcome(rule, "not exercised", reason="nothing that this rule judges has happened")
        return Outcome(rule, "not exercised", reason="the check did not sign in, or there is no metadata (sign_in)")

    def _failure(self, rule: Rule, verdict: Verdict) -> Failure:
        events = essential(rule, self._exchanges.events, verdict)
        at = next(place for place, event in enumerate(events) if event is verdict.event)
        assert verdict.problem is not None
        command = _command(verdict.event)
        return Failure(verdict.problem, tuple(events), at, None, LATEST_MODERN, 1, 1, self._issuers, command)


def _command(event: Event) -> str:
    """Return a line for a shell that shows what an authorization server publishes; empty for what takes a sign-in."""
    public = event.facts.get("to") == "authority metadata" and event.facts.get("status")
    return f"curl -s {shlex.quote(str(event.facts['url']))}" if public else ""
