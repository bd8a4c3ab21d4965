"""Rules for signing in: small transcripts on which they say nothing, or judge what no mutant does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kit.transcripts import NEW
from trio_mcp._secrets import MASK
from trio_mcp.conformance.rules.catalogue import RULES, judge
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.events import Event

SERVER, ISSUER, OTHER = "http://mcp.test/mcp", "http://id.test", "http://other.test"
WELL_KNOWN = "http://mcp.test/.well-known/oauth-protected-resource"


def login(to: str, url: str, status: int = 200, **facts: Any) -> Event:
    """Return the mark of a step."""
    return Event("mark", "kit", facts={"what": "login", "to": to, "url": url, "status": status, **facts})


def refused(status: int = 401, token: str | None = None, *, message: Any = 1, **answer: str) -> Event:
    """Return a request that the server refused."""
    headers = [] if token is None else [("authorization", f"Bearer {token}")]
    facts = {"revision": NEW, "request_id": message, "answer": answer, "headers": headers}
    return login("server", SERVER, status, **facts)


def asked(token: str | None = None, url: str = "/mcp") -> Event:
    """Return a request that the server accepted."""
    headers = [] if token is None else [("authorization", f"Bearer {token}")]
    return Event("request", "client", exchange=0, facts={"method": "POST", "path": url, "headers": headers})


def resource(url: str = f"{WELL_KNOWN}/mcp", status: int = 200, **more: Any) -> Event:
    found = {"resource": SERVER, "authorization_servers": [ISSUER], **more} if status == 200 else {}
    return login("resource metadata", url, status, answer=found)


def metadata(
    issuer: str = ISSUER, *, kind: str = "oauth-authorization-server", status: int = 200, **more: Any
) -> Event:
    endpoints = {f"{name}_endpoint": f"{issuer}/{path}" for name, path in ENDPOINTS.items()}
    found = {"issuer": issuer, "code_challenge_methods_supported": ["S256"], **endpoints, **more}
    return login("authority metadata", f"{issuer}/.well-known/{kind}", status, answer=found if status == 200 else {})


ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}


def registered(*redirects: str, **more: Any) -> Event:
    form = {"redirect_uris": [*redirects], "grant_types": ["authorization_code"], **more}
    return login("register", f"{ISSUER}/register", 201, sent_form=form, answer={"client_id": "c"})


def authorized(number: int = 1, **form: Any) -> Event:
    sent = {"client_id": "c", "state": f"s{number}", "code_challenge": f"h{number}", "code_challenge_method": "S256"}
    came = {"code": f"code{number}", "state": sent["state"], "iss": ISSUER}
    return login("authorize", f"{ISSUER}/authorize", 302, sent_form={**sent, **form}, redirected_with=came)


def unnamed(number: int = 1) -> Event:
    """Return an authorization request to whose response no issuer is added."""
    found = authorized(number).facts
    came = {name: value for name, value in found["redirected_with"].items() if name != "iss"}
    return Event("mark", "kit", facts={**found, "redirected_with": came})


def got(number: int, status: int = 200, scope: str = "read", *, origin: str = ISSUER, **form: Any) -> Event:
    """Return an exchange that brings the tokens of this number."""
    answer = {"access_token": f"a{number}", "refresh_token": f"r{number}", "scope": scope}
    return login("token", f"{origin}/token", status, sent_form=form, answer=answer if status == 200 else {})


CODE, REFRESH = {"grant_type": "authorization_code"}, {"grant_type": "refresh_token"}

# The rule; transcripts that keep it, some that break it, and some on which it says nothing.
CASES: dict[str, tuple[list[list[Event]], list[list[Event]], list[list[Event]]]] = {
    "token-in-every-request": (
        [[got(1), asked("a1"), asked("a1")]],
        [[got(1), asked("a1"), asked()], [got(1), refused(token="a1"), got(2), asked("a2"), asked()]],
        [
            [asked(), got(1)],
            # It may have been sent before the token came.
            [got(1), asked()],
            [got(1), refused(token="a1"), got(2), asked()],
            # A client whose token was refused asks how to sign in.
            [got(1), refused(token="a1"), refused()],
        ],
    ),
    "refresh-token-replaced": (
        [[got(1), got(2, refresh_token="r1"), asked("a2"), got(3, refresh_token="r2")]],
        [[got(1), got(2, refresh_token="r1"), asked("a2"), got(3, 400, refresh_token="r1")]],
        [[got(1), got(2, refresh_token=MASK)], [got(2, refresh_token="r1")]],
    ),
    "refresh-token-kept-secret": (
        [[got(1), got(2, refresh_token="r1")]],
        [
            [got(1), got(2, origin=OTHER, refresh_token="r1")],
            [got(1), login("register", OTHER, sent_form={"refresh_token": "r1"})],
        ],
        [[got(2, refresh_token="r1")]],
    ),
    "step-up-tried": (
        [[authorized(scope="read"), got(1), refused(403, "a1", scope="write"), authorized(2)]],
        [[authorized(scope="read"), got(1), refused(403, "a1", scope="write")]],
        [
            # It was asked for, or granted, and is not enough: to ask again would change nothing.
            [authorized(scope="read write"), got(1), refused(403, "a1", scope="write")],
            [authorized(), got(1, scope="read write"), refused(403, "a1", scope="write")],
            [refused(403, scope="write")],
        ],
    ),
    "step-up-limited": (
        [[refused(403, message=number) for number in range(9)] + [authorized(), refused(403, message=8)]],
        [[each for number in range(6) for each in (refused(403), authorized(number))] + [refused(403)]],
        [[refused(403)], [each for number in range(6) for each in (refused(403, message=number), authorized(number))]],
    ),
    "step-up-keeps-scopes": (
        [
            [metadata(), authorized(1, scope="read"), refused(403, scope="write"), authorized(2, scope="read write")],
            [metadata(), authorized(1, scope="read openid"), refused(403, scope="x"), authorized(2, scope="read x")],
        ],
        [[metadata(), authorized(1, scope="read"), refused(403, scope="write"), authorized(2, scope="write")]],
        [[metadata(), authorized(1, scope="read"), refused(401, scope="x"), authorized(2, scope="x")]],
    ),
    "resource-metadata-order": (
        [
            [refused(resource_metadata="http://mcp.test/m"), resource("http://mcp.test/m")],
            [refused(), resource(status=404), resource(WELL_KNOWN)],
        ],
        [
            [refused(resource_metadata="http://mcp.test/m"), resource()],
            [refused(), resource(WELL_KNOWN)],
            [refused(), resource(status=404)],
        ],
        [[refused()], [resource()]],
    ),
    "authority-metadata-places": (
        [[resource(), metadata(status=404), metadata(kind="openid-configuration")]],
        [[resource(), metadata(status=404)]],
        [[resource()], [metadata(status=404)]],
    ),
    "client-id-of-authority": (
        [
            [metadata(), registered("http://localhost/"), authorized()],
            [metadata(), authorized(client_id="https://client.test/c.json")],
        ],
        [[metadata(), authorized()], [metadata(), authorized(client_id="d")]],
        [[authorized()], [metadata(), got(1, **CODE)]],
    ),
    "iss-absent-accepted": (
        [
            [metadata(), unnamed(), got(1, code="code1")],
            # It accepts such responses, and has ended for another reason.
            [metadata(), unnamed(), got(1, code="code1"), refused(403, "a1", scope="write"), unnamed(2)],
        ],
        [[metadata(), unnamed()], [metadata(), unnamed(1), unnamed(2)]],
        [[metadata(), authorized()], [unnamed()]],
    ),
    "redirect-uri-registered": (
        [
            [metadata(), registered("http://127.0.0.1/back"), authorized(redirect_uri="http://127.0.0.1:5/back")],
            [metadata(), registered("https://c.test/back"), authorized(redirect_uri="https://c.test/back")],
        ],
        [
            [metadata(), registered("https://c.test/back"), authorized(redirect_uri="https://c.test:5/back")],
            [metadata(), registered("http://127.0.0.1/back"), authorized(redirect_uri="http://127.0.0.1/other")],
        ],
        [[metadata(), authorized(redirect_uri="https://c.test/back")], [metadata(), registered("x:/"), authorized()]],
    ),
    "redirect-uri-safe": (
        [[registered("https://c.test/", "http://localhost:1/", "http://[::1]/", "app.c:/")]],
        [[registered("https://c.test/", "http://c.test/")], [authorized(redirect_uri="http://10.0.0.1/")]],
        [[authorized()], [login("register", f"{ISSUER}/register", sent_form={"redirect_uris": 5})]],
    ),
    "application-type-fits": (
        [
            [registered("http://127.0.0.1/", application_type="native")],
            [registered("https://c.test/", application_type="web")],
        ],
        [[registered("http://localhost/", application_type="web")]],
        [
            [registered("http://localhost/", "https://c.test/", application_type="web")],
            [registered("app.c:/", application_type="web")],
            [registered("http://localhost/")],
        ],
    ),
    "document-id-form": (
        [[authorized(client_id="https://c.test/d.json")]],
        [
            [authorized(client_id=each)]
            for each in ("http://c.test/d", "https://c.test", "https://c.test/", "https://c.test/d#e", "https://u@c.test/d")
        ],
        [[authorized()]],
    ),
    "pkce-used": (
        [
            [metadata(), authorized(1), authorized(2)],
            [metadata(), authorized(), got(1, code="code1", code_verifier=MASK)],
        ],
        [
            [metadata(), authorized(code_challenge="")],
            [metadata(), authorized(1), authorized(2, code_challenge="h1")],
            [metadata(), authorized(), got(1, code="code1")],
            [metadata(), authorized(), got(1, code="code1", code_verifier="another")],
        ],
        [[authorized()]],
    ),
    "state-used": (
        [[metadata(), authorized(1), authorized(2)]],
        [[metadata(), authorized(state="")], [metadata(), authorized(1), authorized(2, state="s1")]],
        [[authorized()]],
    ),
    "resource-names-server": (
        [
            [metadata(), refused(), authorized(resource=each)]
            for each in (SERVER, "HTTP://MCP.test/mcp", "http://mcp.test")
        ],
        [
            [metadata(), refused(), authorized(resource=each)]
            for each in ("http://mcp.test/mc", "http://mcp.test:81/mcp", "https://mcp.test/mcp", [SERVER, OTHER])
        ],
        [[metadata(), refused(), authorized()]],
    ),
    "code-stays-with-authority": (
        [[authorized(), got(1, code="code1")]],
        [[authorized(), got(1, origin=OTHER, code="code1")]],
        [[got(1, code="code1")], [authorized(), got(1, code=MASK)]],
    ),
    "token-stays-with-server": (
        [
            [got(1), login("revoke", f"{ISSUER}/revoke", sent_form={"token": "a1"})],
            [got(1), login("authority metadata", OTHER, headers=[("authorization", "Basic eA==")])],
        ],
        [
            [got(1), login("elsewhere", OTHER, headers=[("authorization", "Bearer a1")])],
            [got(1), login("elsewhere", OTHER, sent_form={"token": "a1"})],
        ],
        [[login("elsewhere", OTHER, headers=[("authorization", "Bearer a1")])]],
    ),
    "token-not-in-url": (
        [[got(1), asked("a1", "/mcp?x=1")]],
        [[got(1), asked("a1", "/mcp?access_token=b")], [got(1), asked("a1", "/mcp?t=a1")]],
        [[asked("a1", "/mcp?access_token=b")]],
    ),
    "registration-refusal-survived": (
        [
            [login("register", f"{ISSUER}/register", 400)],
            [login("register", f"{ISSUER}/register", 400), registered(), authorized()],
        ],
        [[login("register", f"{ISSUER}/register", 400), authorized(client_id="x")]],
        [[registered(), authorized()]],
    ),
    "refresh-grant-registered": (
        [[registered(grant_types=["refresh_token"])]],
        [[registered(), got(1, **REFRESH)], [registered(), authorized(scope="offline_access")]],
        [[registered(), got(1, **CODE)]],
    ),
}  # fmt: skip


def named(events: Sequence[Event]) -> list[Event]:
    """Return events of a client that speaks the newest revision, which it has named."""
    mark = Event(
        "mark", "kit", facts={"what": "login", "to": "elsewhere", "url": "http://x/", "status": 404, "revision": NEW}
    )
    return [*events, mark]


@pytest.mark.parametrize("rule", CASES)
def test_judges(rule: str) -> None:
    kept, wrong, nothing = CASES[rule]
    verdicts = [
        [verdict for _, verdict in judge(History(named(events)), [RULES[rule]])] for events in (*kept, *wrong, *nothing)
    ]
    assert [bool(each) for each in verdicts] == [True] * len(kept + wrong) + [False] * len(nothing)
    broke = [any(verdict.problem is not None for verdict in each) for each in verdicts]
    assert broke == [False] * len(kept) + [True] * len(wrong) + [False] * len(nothing)


ODD: list[Any] = [None, 5, "x", [], {}, [None], {"a": 1}, "http://[", True]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_nothing_that_a_client_sends_confuses_a_rule(odd: Any) -> None:
    """Neither types that no client should send, nor URLs that can't be taken apart."""
    names = ("client_id", "redirect_uri", "redirect_uris", "scope", "resource", "state", "code", "code_challenge")
    names += ("code_verifier", "refresh_token", "grant_type", "grant_types", "application_type", "iss")
    form = dict.fromkeys(names, odd)
    steps = [
        login(to, f"{ISSUER}/{to}", sent_form=form, redirected_with=form) for to in ("register", "authorize", "token")
    ]
    events = [refused(), resource(), metadata(), *steps, refused(403, "x"), asked("y"), *steps]
    rules = [rule for rule in RULES.values() if rule.section.startswith("basic/authorization")]
    for _ in judge(History(events), rules):
        pass
