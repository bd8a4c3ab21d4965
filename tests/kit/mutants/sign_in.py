"""Our own client, which signs in by `OAuth`, and the same with one fault: what it sends or hears is changed on the way.

A mutant overrides a habit of `Program`. So what is found is what a real client would do, on real connections.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import httpx

from tests.kit.mutants.model import ClientMutant, registering
from trio_mcp import Client, TrioMcpError
from trio_mcp.auth import OAuth
from trio_mcp.auth.fetching import Fetcher
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Pause, Signer
from trio_mcp.http.headers import Headers

DOCUMENT = "https://client.example/metadata.json"
FORM = "application/x-www-form-urlencoded"


async def browse(url: str) -> str:
    """Be the person's browser, which is redirected at once; return where to."""
    async with httpx.AsyncClient() as browser:
        return (await browser.get(url)).headers["Location"]


def edited(text: str, changes: Mapping[str, str | None]) -> str:
    """Return a query or a form with parameters replaced or added; None removes one."""
    given = {**dict(parse_qsl(text, keep_blank_values=True)), **changes}
    return urlencode({name: value for name, value in given.items() if value is not None})


class Program:
    """A healthy program, which calls each tool a few times."""

    calls: ClassVar[int] = 3

    def __init__(self, url: str) -> None:
        self.url = url
        self.tokens: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.oauth = OAuth(show=self.show, metadata_url=DOCUMENT, fetch=self.fetch)

    async def run(self) -> None:
        """Sign in, and use what the server offers; what is refused is left."""
        with contextlib.suppress(TrioMcpError):
            async with Client(self.url, auth=self, timeout=5) as client:
                for tool in await client.list_tools():
                    for _ in range(self.calls):
                        with contextlib.suppress(TrioMcpError):
                            await client.call_tool(tool.name, {})
                await self.more()

    async def more(self) -> None:
        """Do something else with the tokens."""

    # --- what it sends to sign in -------------------------------------------------------------------------------------

    async def fetch(self, step: Fetch) -> Fetched:
        given = await self.send(self.asks(step))
        found = self.hears(step, given)
        if step.step in ("token", "refresh") and found.status == 200:
            self.tokens.append(json.loads(found.body))
        if step.step == "authorization server metadata" and found.status == 200:
            self.metadata = json.loads(found.body)
        return found

    async def send(self, step: Fetch) -> Fetched:
        return await Fetcher(self.url).flow()(step)

    def asks(self, step: Fetch) -> Fetch:
        """Return what is sent in place of a request."""
        return self.asks_in_form(step) if step.fields.get("Content-Type") == FORM else step

    def asks_in_form(self, step: Fetch) -> Fetch:
        form = step.body.decode()
        return attrs.evolve(step, body=edited(form, self.form(dict(parse_qsl(form)))).encode())

    def form(self, form: dict[str, str]) -> dict[str, str | None]:
        """Return what is changed in a form."""
        return {}

    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        """Return what the client takes for the response to a request."""
        return given

    async def show(self, url: str) -> str:
        head, _, query = url.partition("?")
        sent = dict(parse_qsl(query))
        location = await browse(f"{head}?{edited(query, self.opens(sent))}")
        head, _, query = location.partition("?")
        return f"{head}?{edited(query, self.comes_back(sent, dict(parse_qsl(query))))}"

    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        """Return what is changed in an authorization request."""
        return {}

    def comes_back(self, sent: dict[str, str], given: dict[str, str]) -> dict[str, str | None]:
        """Return what is changed in the response to it."""
        return {}

    # --- what it sends to the server ----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def opened(self, server: str, pause: Pause) -> AsyncIterator[Signer]:
        async with self.oauth.opened(server, pause) as signer:
            yield _Signed(self, signer)

    def signed(self, fields: Sequence[tuple[str, str]], method: str) -> Sequence[tuple[str, str]]:
        """Return the header fields of a request to the server."""
        return fields

    async def again(self, attempt: Any, signer: Any, status: int, headers: Headers) -> bool:
        return bool(await attempt.again(status, headers))


@attrs.frozen
class _Signed:
    program: Program
    signer: Any

    def attempt(self) -> _Attempted:
        return _Attempted(self.program, self.signer, self.signer.attempt())


@attrs.frozen
class _Attempted:
    program: Program
    signer: Any
    attempt: Any

    async def fields(self, method: str, url: str) -> Sequence[tuple[str, str]]:
        return self.program.signed(await self.attempt.fields(method, url), method)

    async def again(self, status: int, headers: Headers) -> bool:
        return await self.program.again(self.attempt, self.signer, status, headers)


def in_json(given: Fetched, **changes: Any) -> Fetched:
    """Return a response with members of its JSON replaced."""
    return attrs.evolve(given, status=200, body=json.dumps({**json.loads(given.body or b"{}"), **changes}).encode())


def refuse(why: str) -> AuthorizationError:
    return AuthorizationError("token", why)


# --- mutants ----------------------------------------------------------------------------------------------------------


SIGN_INS: dict[str, ClientMutant[type[Program]]] = {}
"""By name."""

breaks = registering(SIGN_INS)


# --- discovery --------------------------------------------------------------------------------------------------------


@breaks("challenge-understood")
class IgnoresChallenges(Program):
    async def again(self, attempt: Any, signer: Any, status: int, headers: Headers) -> bool:
        return False


@breaks("resource-metadata-order")
class LooksAtTheRootFirst(Program):
    async def fetch(self, step: Fetch) -> Fetched:
        if step.step == "resource metadata":
            parts = urlsplit(step.url)
            await self.send(
                attrs.evolve(step, url=f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource")
            )
        return await super().fetch(step)


@breaks("login-from-resource-metadata")
class AsksTheServerItself(Program):
    """As in 2025-03-26."""

    async def fetch(self, step: Fetch) -> Fetched:
        if step.step == "resource metadata":
            parts = urlsplit(step.url)
            await self.send(
                attrs.evolve(step, url=f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server")
            )
        return await super().fetch(step)


@breaks("resource-metadata-of-server")
class TakesMetadataOfAnyServer(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        fits = step.step == "resource metadata" and given.status == 200
        return in_json(given, resource=self.url) if fits else given


@breaks("resource-upper-case-accepted")
class ComparesResourcesAsText(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "resource metadata" and b"HTTP:" in given.body:
            raise refuse("it is another resource")
        return given


@breaks("authority-metadata-order")
class LooksForOpenIdFirst(Program):
    async def fetch(self, step: Fetch) -> Fetched:
        if "oauth-authorization-server" in step.url:
            await self.send(
                attrs.evolve(step, url=step.url.replace("oauth-authorization-server", "openid-configuration"))
            )
        return await super().fetch(step)


@breaks("authority-metadata-places")
class KnowsNoOpenId(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "authorization server metadata" and given.status == 404:
            raise refuse("there is no metadata")
        return given


@breaks("authority-issuer-checked")
class TakesAnyIssuer(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "authorization server metadata" and given.status == 200:
            endpoint = json.loads(given.body)["token_endpoint"]
            return in_json(given, issuer=endpoint.removesuffix("/token"))
        return given


@breaks("pkce-support-checked")
class SupposesPkce(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "authorization server metadata" and given.status == 200:
            return in_json(given, code_challenge_methods_supported=["S256"])
        return given


@breaks("client-id-of-authority")
class RegistersOnce(Program):
    registered: Fetched | None = None

    async def fetch(self, step: Fetch) -> Fetched:
        if step.step != "registration":
            return await super().fetch(step)
        if self.registered is None:
            self.registered = await super().fetch(step)
        return self.registered


@breaks("document-id-form")
class DocumentsWithoutTls(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        given = sent["client_id"]
        return {"client_id": given.replace("https:", "http:")} if given == DOCUMENT else {}


@breaks("document-id-announced")
class DocumentsEverywhere(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "authorization server metadata" and given.status == 200:
            return in_json(given, client_id_metadata_document_supported=True)
        return given


class Registers(Program):
    """A client that changes its registration."""

    def asks(self, step: Fetch) -> Fetch:
        if step.step != "registration":
            return super().asks(step)
        given = self.registration(json.loads(step.body))
        return attrs.evolve(
            step, body=json.dumps({name: each for name, each in given.items() if each is not None}).encode()
        )

    def registration(self, given: dict[str, Any]) -> dict[str, Any]:
        return given


@breaks("application-type-named")
class RegistersWithoutType(Registers):
    def registration(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"application_type": None}


@breaks("application-type-fits")
class RegistersAsWeb(Registers):
    def registration(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"application_type": "web"}


@breaks("registration-refusal-survived", "client-id-of-authority")
class GoesOnUnregistered(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "registration" and given.status == 400:
            return attrs.evolve(given, status=201, body=json.dumps({"client_id": "made-up"}).encode())
        return given


@breaks("refresh-grant-registered")
class RegistersForNoRefresh(Registers):
    def registration(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"grant_types": ["authorization_code"]}


@breaks("redirect-uri-safe", "application-type-fits")
class RedirectsInTheOpen(Registers):
    def registration(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"redirect_uris": ["http://client.example/callback"]}


# --- authorization requests -------------------------------------------------------------------------------------------


@breaks("pkce-used")
class SendsNoChallenge(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"code_challenge": None, "code_challenge_method": None}


@breaks("pkce-s256")
class SendsPlainChallenges(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"code_challenge_method": "plain"}


@breaks("state-used")
class SendsNoState(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"state": None}

    def comes_back(self, sent: dict[str, str], given: dict[str, str]) -> dict[str, str | None]:
        return {"state": sent["state"]}


@breaks("state-compared")
class IgnoresStates(Program):
    def comes_back(self, sent: dict[str, str], given: dict[str, str]) -> dict[str, str | None]:
        return {"state": sent["state"]}


class HearsIssuers(Program):
    """A client that takes some issuers for the right one."""

    def takes(self, named: str | None, issuer: str, announced: bool) -> bool:
        return False

    def comes_back(self, sent: dict[str, str], given: dict[str, str]) -> dict[str, str | None]:
        issuer = self.metadata["issuer"]
        announced = self.metadata.get("authorization_response_iss_parameter_supported") is True
        return {"iss": issuer} if self.takes(given.get("iss"), issuer, announced) else {}


@breaks("iss-compared")
class IgnoresIssuers(HearsIssuers):
    def takes(self, named: str | None, issuer: str, announced: bool) -> bool:
        return announced and named is not None and named != issuer + "/"


@breaks("iss-compared-exactly")
class NormalizesIssuers(HearsIssuers):
    def takes(self, named: str | None, issuer: str, announced: bool) -> bool:
        return named == issuer + "/"


@breaks("iss-missing-refused")
class NeedsNoIssuer(HearsIssuers):
    def takes(self, named: str | None, issuer: str, announced: bool) -> bool:
        return named is None and announced


@breaks("iss-unannounced-compared")
class IgnoresUnannouncedIssuers(HearsIssuers):
    def takes(self, named: str | None, issuer: str, announced: bool) -> bool:
        return named is not None and not announced


@breaks("iss-absent-accepted")
class NeedsIssuers(Program):
    def comes_back(self, sent: dict[str, str], given: dict[str, str]) -> dict[str, str | None]:
        return {} if "iss" in given else {"iss": "made up"}


@breaks("redirect-uri-registered")
class RedirectsElsewhere(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"redirect_uri": sent["redirect_uri"] + "/another"}


@breaks("resource-in-authorization")
class AuthorizesForAnything(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"resource": None}


@breaks("resource-in-token-requests")
class RedeemsForAnything(Program):
    def form(self, form: dict[str, str]) -> dict[str, str | None]:
        return {"resource": None}


class NamesResources(Program):
    """A client that calls the server by another name."""

    def named(self) -> str:
        return self.url

    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"resource": self.named()}

    def form(self, form: dict[str, str]) -> dict[str, str | None]:
        return {"resource": self.named()}


@breaks("resource-names-server")
class NamesAnotherServer(NamesResources):
    def named(self) -> str:
        return "https://another.example/mcp"


@breaks("resource-canonical")
class NamesFragments(NamesResources):
    def named(self) -> str:
        return self.url + "#tools"


@breaks("resource-specific")
class NamesOriginsOnly(NamesResources):
    def named(self) -> str:
        return self.url.removesuffix("/mcp")


@breaks("resource-without-slash")
class NamesFolders(NamesResources):
    def named(self) -> str:
        return self.url + "/"


# --- scopes -----------------------------------------------------------------------------------------------------------


@breaks("challenge-scopes-requested", "listed-scopes-requested")
class AsksForNoScopes(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"scope": None}


@breaks("challenge-scopes-only", "listed-scopes-requested")
class AsksForEveryScope(Program):
    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"scope": "read write list"}


@breaks("listed-scopes-requested")
class IgnoresListedScopes(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        fits = step.step == "resource metadata" and given.status == 200
        return in_json(given, scopes_supported=[]) if fits else given


@breaks("step-up-tried")
class NeverStepsUp(Program):
    async def again(self, attempt: Any, signer: Any, status: int, headers: Headers) -> bool:
        return status != 403 and await super().again(attempt, signer, status, headers)


@breaks("step-up-limited")
class StepsUpForever(Program):
    calls = 1
    left = 8

    async def again(self, attempt: Any, signer: Any, status: int, headers: Headers) -> bool:
        if status != 403 or not self.left:
            return await super().again(attempt, signer, status, headers)
        self.left -= 1
        await self.oauth.sign_out(self.url)
        # Another operation, for which a person may be asked again.
        another = signer.attempt()
        await another.fields("POST", self.url)
        return bool(await another.again(401, headers))

    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        return {"scope": "read write"} if self.left < 8 else {}


@breaks("step-up-keeps-scopes")
class ForgetsScopes(Program):
    asked: set[str] = set()  # noqa: RUF012 - each run assigns its own

    def opens(self, sent: dict[str, str]) -> dict[str, str | None]:
        last, self.asked = self.asked, set(sent.get("scope", "").split())
        return {"scope": " ".join(self.asked - last)} if last < self.asked else {}


# --- tokens -----------------------------------------------------------------------------------------------------------


@breaks("token-in-header")
class CallsItToken(Program):
    def signed(self, fields: Sequence[tuple[str, str]], method: str) -> Sequence[tuple[str, str]]:
        return [(name, value.replace("Bearer", "Token")) for name, value in fields]


@breaks("token-in-every-request")
class SignsEveryOtherRequest(Program):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.count = itertools.count()

    def signed(self, fields: Sequence[tuple[str, str]], method: str) -> Sequence[tuple[str, str]]:
        return fields if next(self.count) % 2 else ()


@breaks("token-not-in-url", "token-in-every-request")
class PutsTokensIntoUrls(Program):
    async def more(self) -> None:
        async with httpx.AsyncClient() as browser:
            await browser.get(self.url, params={"access_token": self.tokens[-1]["access_token"]})


@breaks("token-of-authority")
class MakesUpTokens(Program):
    def signed(self, fields: Sequence[tuple[str, str]], method: str) -> Sequence[tuple[str, str]]:
        return [(name, value[:-3] + "***"[: len(value)]) for name, value in fields]


@breaks("token-stays-with-server")
class ShowsTokensToAll(Program):
    def asks(self, step: Fetch) -> Fetch:
        step = super().asks(step)
        field = {"Authorization": f"Bearer {self.tokens[-1]['access_token']}"} if self.tokens else {}
        return attrs.evolve(step, fields={**step.fields, **field})


@breaks("code-stays-with-authority", "login-from-resource-metadata")
class FollowsWithCodes(Program):
    async def send(self, step: Fetch) -> Fetched:
        found = await super().send(step)
        if found.status == 307:
            return await super().send(attrs.evolve(step, url=found.headers.get("Location") or ""))
        return found


@breaks("refresh-token-kept-secret")
class RegistersWithTokens(Registers):
    def registration(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"refresh_token": self.tokens[-1].get("refresh_token") if self.tokens else None}


@breaks("refresh-token-replaced")
class KeepsTheFirstRefreshToken(Program):
    def form(self, form: dict[str, str]) -> dict[str, str | None]:
        return {"refresh_token": self.tokens[0]["refresh_token"]} if "refresh_token" in form else {}


@breaks("refresh-token-not-expected")
class CountsOnRefreshTokens(Program):
    def hears(self, step: Fetch, given: Fetched) -> Fetched:
        if step.step == "token" and given.status == 200 and b"refresh_token" not in given.body:
            return in_json(given, refresh_token="surely")
        return given


async def run(habit: type[Program], url: str) -> None:
    """Run a client."""
    await habit(url).run()
