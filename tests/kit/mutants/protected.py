"""A healthy server that wants access tokens, and servers that break a rule of authorization."""

from __future__ import annotations

import base64
import contextvars
import json
import time
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import attrs
import trio
from joserfc import jwk, jwt
from joserfc.errors import JoseError

from tests.kit.mutants.extension_tasks import Job, TaskingSession
from tests.kit.mutants.model import MODERN, Session, Web, breaks
from tests.kit.mutants.server import Message, Refused, Request, Twin
from tests.kit.mutants.tasks import Task, TaskSession
from tests.kit.mutants.web import JSON, Answer, Head, Life, Stream
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.conformance.credentials import Credentials

URL = "http://127.0.0.1/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
METADATA = f"http://127.0.0.1{WELL_KNOWN}/mcp"
USER: contextvars.ContextVar[str] = contextvars.ContextVar("USER", default="")
"""Whose request is served."""

WRITES = "touch"
"""The tool that needs another scope."""


class Invalid(Exception):
    """A token that is refused."""


class OwnJobs(TaskingSession):
    """Sessions whose tasks, of the extension, and whose questions belong to a user."""

    def created(self, job: Job) -> Message:
        self.twin.tasks[f"user of {job.id}"] = USER.get()
        return super().created(job)

    def known(self, request: Request) -> Job:
        job = super().known(request)
        if not self.may_see(job):
            raise Refused(-32602, "Task not found")
        return job

    def may_see(self, job: Job) -> bool:
        return bool(self.twin.tasks[f"user of {job.id}"] == USER.get())

    def state(self, request: Request) -> str:
        return f"{super().state(request)} {self.bound()}"

    def bound(self) -> str:
        """Return what binds a state to its user."""
        return USER.get()


class OwnTasks(TaskSession):
    """Sessions whose tasks, of 2025-11-25, are shared by all sessions of a user."""

    announces = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tasks = self.twin.tasks

    def made(self, task: Task) -> Message:
        task.user = USER.get()  # type: ignore[attr-defined]
        return super().made(task)

    def known(self, request: Request) -> Task:
        task = super().known(request)
        if not self.may_see(task):
            raise Refused(-32602, "Task not found")
        return task

    def may_see(self, task: Task) -> bool:
        return bool(task.user == USER.get())  # type: ignore[attr-defined]

    async def list(self, request: Request) -> Message:
        shown = [self.told(task) for task in self.tasks.values() if self.lists(task)]
        return self.page(request, "tasks", shown)

    def lists(self, task: Task) -> bool:
        return self.may_see(task)


class Protected(Web):
    """The endpoint of a server that checks tokens."""

    session: ClassVar[type[Session] | None] = OwnJobs
    url: ClassVar[str] = URL
    scopes: ClassVar[tuple[str, ...]] = ("mcp",)
    gives_tokens: ClassVar[bool] = True
    credentials: Credentials | None = None
    """The tokens of a check; by default the authorization server makes them."""

    def __init__(self, twin: Twin, nursery: trio.Nursery) -> None:
        super().__init__(twin, nursery)
        self.authority = AuthorizationServer("https://id.example.com", scopes=("mcp", "mcp:write"))
        if self.credentials is None and self.gives_tokens:
            self.credentials = Credentials({}, self.authority)
        self.owners: dict[str, str] = {}

    async def handle(self, head: Head, body: bytes, nursery: trio.Nursery) -> Answer:
        document = self.document(head.path) if head.method == "GET" else None
        if document is not None:
            return Answer(200, JSON, json.dumps(document).encode())
        if not head.path.startswith("/mcp"):
            return Answer(404)
        claims = self.identified(head)
        if isinstance(claims, Answer):
            return claims
        if missing := self.missing(claims, body):
            return self.short(missing)
        USER.set(str(claims.get("sub")))
        return await super().handle(head, body, nursery)

    # Who it is

    def identified(self, head: Head) -> dict[str, Any] | Answer:
        """Return the claims of a request's token, or its refusal."""
        if (token := self.token(head)) is None:
            return self.without_token(head)
        try:
            scheme, _, text = token.partition(" ")
            if scheme.lower() != "bearer" or not text or " " in text or "," in text:
                return self.malformed()
            return self.checked(text)
        except Invalid:
            return self.invalid()

    def token(self, head: Head) -> str | None:
        """Return the credentials of a request."""
        return head.headers.get("authorization")

    def without_token(self, head: Head) -> dict[str, Any] | Answer:
        return self.unauthorized()

    def malformed(self) -> Answer:
        return Answer(400, self.challenge(error="invalid_request"))

    def invalid(self) -> dict[str, Any] | Answer:
        return self.unauthorized(error="invalid_token")

    def checked(self, token: str) -> dict[str, Any]:
        """Return the claims of a token, or raise `Invalid`."""
        claims = self.signed(token)
        now = time.time()
        if self.is_late(claims, now) or self.is_early(claims, now):
            raise Invalid
        if not self.is_here(claims.get("aud")) or not self.is_trusted(claims.get("iss")):
            raise Invalid
        return claims

    def signed(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature is right."""
        keys: Any = self.authority.keys.published()
        try:
            return dict(jwt.decode(token, jwk.KeySet.import_key_set(keys), ["ES256"]).claims)
        except (JoseError, ValueError) as exc:
            raise Invalid from exc

    def is_late(self, claims: dict[str, Any], now: float) -> bool:
        return bool(claims["exp"] < now)

    def is_early(self, claims: dict[str, Any], now: float) -> bool:
        return bool(claims.get("nbf", 0) > now)

    def is_here(self, audience: Any) -> bool:
        scheme, _, rest = str(audience).partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme.lower()}://{host.lower()}{slash}{path}" == self.url

    def is_trusted(self, issuer: Any) -> bool:
        return bool(issuer == self.authority.issuer)

    # What is permitted

    def missing(self, claims: dict[str, Any], body: bytes) -> list[str]:
        """Return the scopes that a request needs, if some of them are not granted."""
        needed = self.needed(body)
        granted = str(claims.get("scope", "")).split()
        return [] if set(needed) <= set(granted) else self.asked_for(needed, granted)

    def needed(self, body: bytes) -> list[str]:
        writes = b'"tools/call"' in body and f'"{WRITES}"'.encode() in body
        return [*self.scopes, *(["mcp:write"] if writes else [])]

    def asked_for(self, needed: list[str], granted: list[str]) -> list[str]:
        """Return the scopes that a challenge names."""
        return needed

    # Refusals

    def unauthorized(self, **parameters: str) -> Answer:
        if self.scopes:
            parameters["scope"] = " ".join(self.scopes)
        return Answer(401, self.challenge(**parameters))

    def short(self, scopes: list[str]) -> Answer:
        return Answer(403, self.challenge(error="insufficient_scope", scope=" ".join(scopes)))

    def challenge(self, **parameters: str) -> dict[str, str]:
        given = {"resource_metadata": self.metadata(), **parameters}
        return {"WWW-Authenticate": "Bearer " + ", ".join(f'{name}="{value}"' for name, value in given.items())}

    def metadata(self) -> str:
        """Return the URL of the metadata."""
        return METADATA

    # Metadata

    def document(self, path: str) -> dict[str, Any] | None:
        """Return what is published at a path."""
        return self.described() if path == f"{WELL_KNOWN}/mcp" else None

    def described(self) -> dict[str, Any]:
        return {
            "resource": self.url,
            "authorization_servers": [self.authority.issuer],
            "scopes_supported": [*self.scopes],
            "bearer_methods_supported": ["header"],
        }

    # Sessions

    def open(self) -> Life:
        life = super().open()
        self.owners[life.id] = USER.get()
        return life

    def find(self, head: Head) -> Life | Answer:
        if head.session in self.owners and not self.may_use(head):
            return self.refuse(404, -32600, "Unknown session")
        return super().find(head)

    def may_use(self, head: Head) -> bool:
        return self.owners[str(head.session)] == USER.get()


class ProtectedTasks(Protected):
    """The same with the tasks of 2025-11-25."""

    session = OwnTasks


# --- tokens -----------------------------------------------------------------------------------------------------------


@breaks("missing-token-refused", "session-is-no-token")
class ServesWithoutTokens(Protected):
    def without_token(self, head: Head) -> dict[str, Any] | Answer:
        return {"sub": "kit-a", "scope": "mcp mcp:write"}


@breaks("missing-token-refused", revision=MODERN)
class DiscoversWithoutTokens(Protected):
    def without_token(self, head: Head) -> dict[str, Any] | Answer:
        if head.headers.get("mcp-method") == "server/discover":
            return {"sub": "guest", "scope": "mcp"}
        return self.unauthorized()


@breaks("session-is-no-token")
class TrustsSessions(Protected):
    def without_token(self, head: Head) -> dict[str, Any] | Answer:
        if head.session in self.lives:
            return {"sub": self.owners[str(head.session)], "scope": "mcp mcp:write"}
        return self.unauthorized()


@breaks("random-token-refused")
class TakesAnyToken(Protected):
    def checked(self, token: str) -> dict[str, Any]:
        try:
            return super().checked(token)
        except Invalid:
            if token.startswith("eyJ"):
                raise
            return {"sub": "kit-a", "scope": "mcp mcp:write"}


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


@breaks("unsigned-token-refused", revision=MODERN)
class TakesUnsignedTokens(Protected):
    def signed(self, token: str) -> dict[str, Any]:
        return claims_of(token) if token.endswith(".") and token.startswith("eyJ") else super().signed(token)


@breaks("forged-token-refused", "unsigned-token-refused")
class DoesNotVerifySignatures(Protected):
    def signed(self, token: str) -> dict[str, Any]:
        try:
            return claims_of(token)
        except (ValueError, IndexError) as exc:
            raise Invalid from exc


@breaks("expired-token-refused")
class TakesExpiredTokens(Protected):
    def is_late(self, claims: dict[str, Any], now: float) -> bool:
        return False


@breaks("early-token-refused", revision=MODERN)
class TakesEarlyTokens(Protected):
    def is_early(self, claims: dict[str, Any], now: float) -> bool:
        return False


@breaks("foreign-audience-refused")
class IgnoresAudiences(Protected):
    def is_here(self, audience: Any) -> bool:
        return True


@breaks("foreign-issuer-refused", revision=MODERN)
class IgnoresIssuers(Protected):
    def is_trusted(self, issuer: Any) -> bool:
        return True


@breaks("query-token-ignored")
class TakesTokensInUrls(Protected):
    def token(self, head: Head) -> str | None:
        asked = parse_qs(urlsplit(head.path).query).get("access_token")
        return f"Bearer {asked[0]}" if asked else super().token(head)


@breaks("malformed-credentials-refused")
class FailsAtMalformedCredentials(Protected):
    def malformed(self) -> Answer:
        return Answer(403)


# --- statuses and challenges ------------------------------------------------------------------------------------------


@breaks("unauthorized-401")
class RefusesTokensWith403(Protected):
    def invalid(self) -> dict[str, Any] | Answer:
        return attrs.evolve(self.unauthorized(error="invalid_token"), status=403)


@breaks("challenge-sent", "challenge-names-scopes")
class SendsNoChallenge(Protected):
    def unauthorized(self, **parameters: str) -> Answer:
        return Answer(401)


@breaks("challenge-sent", revision=MODERN)
class ChallengesForPasswords(Protected):
    def unauthorized(self, **parameters: str) -> Answer:
        return Answer(401, {"WWW-Authenticate": 'Basic realm="twin"'})


@breaks("invalid-token-named")
class SaysNothingOfInvalidTokens(Protected):
    def invalid(self) -> dict[str, Any] | Answer:
        return self.unauthorized()


@breaks("missing-token-without-error", revision=MODERN)
class TakesMissingTokensForInvalid(Protected):
    def without_token(self, head: Head) -> dict[str, Any] | Answer:
        return self.unauthorized(error="invalid_token")


@breaks("challenge-names-scopes")
class ChallengesWithoutScopes(Protected):
    def unauthorized(self, **parameters: str) -> Answer:
        return Answer(401, self.challenge(**parameters))


# --- metadata ---------------------------------------------------------------------------------------------------------


@breaks("resource-metadata-served", "challenge-leads-to-metadata")
class PublishesNothing(Protected):
    def document(self, path: str) -> dict[str, Any] | None:
        return None


@breaks("challenge-leads-to-metadata", revision=MODERN)
class LeadsNowhere(Protected):
    def metadata(self) -> str:
        return "http://127.0.0.1/.well-known/gone"


@breaks("metadata-names-issuers")
class NamesNoIssuers(Protected):
    def described(self) -> dict[str, Any]:
        return super().described() | {"authorization_servers": []}


@breaks("metadata-names-resource")
class DescribesAnotherServer(Protected):
    def described(self) -> dict[str, Any]:
        return super().described() | {"resource": "https://somewhere.example/mcp"}

    def is_here(self, audience: Any) -> bool:
        return str(audience).lower() == "https://somewhere.example/mcp"


@breaks("metadata-without-slash", revision=MODERN)
class NamesItselfWithSlash(Protected):
    def described(self) -> dict[str, Any]:
        return super().described() | {"resource": f"{self.url}/"}

    def is_here(self, audience: Any) -> bool:
        return super().is_here(str(audience).removesuffix("/"))


@breaks("metadata-agrees")
class DescribesItselfTwice(Protected):
    def document(self, path: str) -> dict[str, Any] | None:
        if path == WELL_KNOWN:
            return self.described() | {"authorization_servers": ["https://other.example"]}
        return super().document(path)


@breaks("query-method-not-offered")
class OffersTokensInUrls(Protected):
    def described(self) -> dict[str, Any]:
        return super().described() | {"bearer_methods_supported": ["header", "query"]}


@breaks("scopes-without-wildcards", revision=MODERN)
class ListsAllScopesAtOnce(Protected):
    def described(self) -> dict[str, Any]:
        return super().described() | {"scopes_supported": ["mcp", "mcp:*"]}


@breaks("offline-access-not-asked", revision=MODERN)
class AsksForOfflineAccess(Protected):
    def unauthorized(self, **parameters: str) -> Answer:
        return Answer(401, self.challenge(**{**parameters, "scope": "mcp offline_access"}))


@breaks("tokens-over-tls")
class HasNoTls(Protected):
    url = "http://mcp.example.com/mcp"


# --- scopes -----------------------------------------------------------------------------------------------------------


@breaks("missing-scope-403")
class RefusesMissingScopesWith401(Protected):
    def short(self, scopes: list[str]) -> Answer:
        return attrs.evolve(super().short(scopes), status=401)


@breaks("scope-challenge-sent")
class SendsNoChallengeForScopes(Protected):
    def short(self, scopes: list[str]) -> Answer:
        return Answer(403)


@breaks("scope-error-named", revision=MODERN)
class CallsMissingScopesInvalid(Protected):
    def short(self, scopes: list[str]) -> Answer:
        return Answer(403, self.challenge(error="invalid_token", scope=" ".join(scopes)))


@breaks("scope-challenge-names-scopes")
class ChallengesWithoutTheScopes(Protected):
    def short(self, scopes: list[str]) -> Answer:
        return Answer(403, self.challenge(error="insufficient_scope"))


@breaks("scope-challenge-names-metadata", revision=MODERN)
class ChallengesWithoutTheMetadata(Protected):
    def short(self, scopes: list[str]) -> Answer:
        return Answer(403, {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{" ".join(scopes)}"'})


@breaks("scope-challenge-is-enough")
class AsksForOneScopeAtATime(Protected):
    def needed(self, body: bytes) -> list[str]:
        return [*super().needed(body), "mcp:more"]

    def missing(self, claims: dict[str, Any], body: bytes) -> list[str]:
        granted = str(claims.get("scope", "")).split()
        # The users have it; those who step up have not.
        return [] if "mcp" in granted and "mcp:write" not in granted else super().missing(claims, body)

    def asked_for(self, needed: list[str], granted: list[str]) -> list[str]:
        return [next(scope for scope in ("mcp:write", "mcp:more") if scope not in granted)]


@breaks("audience-in-capitals", revision=MODERN)
class ComparesAudiencesByLetter(Protected):
    def is_here(self, audience: Any) -> bool:
        return bool(audience == self.url)


# --- two users --------------------------------------------------------------------------------------------------------


@breaks("session-of-its-user", "events-of-their-user")
class SharesSessions(Protected):
    def may_use(self, head: Head) -> bool:
        return True


@breaks("events-of-their-user", "session-of-its-user")
class ReplaysToAnyUser(Protected):
    def may_use(self, head: Head) -> bool:
        return super().may_use(head) or "last-event-id" in head.headers


class SharedTasks(OwnTasks):
    def may_see(self, task: Task) -> bool:
        return True

    def lists(self, task: Task) -> bool:
        return super().may_see(task)


@breaks("task-of-its-user", "session-of-its-user", "events-of-their-user")
class SharesTasks(SharesSessions):
    session = SharedTasks


class ListedTasks(OwnTasks):
    def lists(self, task: Task) -> bool:
        return True


@breaks("task-list-of-its-user", "session-of-its-user", "events-of-their-user")
class ListsTasksOfAll(SharesSessions):
    session = ListedTasks


class SharedJobs(OwnJobs):
    def may_see(self, job: Job) -> bool:
        return True


@breaks("ext-task-of-its-user", revision=MODERN)
class SharesJobs(Protected):
    session = SharedJobs


class SharedStates(OwnJobs):
    def bound(self) -> str:
        return ""


@breaks("state-of-its-user", revision=MODERN)
class SharesStates(Protected):
    session = SharedStates


class ReplaysAcrossSessions(Protected):
    """Event ids are the server's, and a client that names one gets what came after it.

    It takes two sessions to see that, which are too many messages for the mutants.
    """

    def event_id(self, stream: Stream, index: int) -> str | None:
        # Numbers, not addresses: an address may be used again, and would differ from run to run.
        streams = self.twin.tasks.setdefault("streams", [])
        if stream not in streams:
            streams.append(stream)
        return f"{streams.index(stream)}-{index}" if stream.number else None

    def get(self, head: Head) -> Answer:
        number, _, index = head.headers.get("last-event-id", "").partition("-")
        streams = self.twin.tasks.get("streams", [])
        stream = streams[int(number)] if number.isdecimal() and int(number) < len(streams) else None
        if stream is None or not index.isdecimal() or isinstance(life := self.check_legacy(head), Answer):
            return super().get(head)
        return self.replay(life, stream, int(index) + 1)


__all__ = ["Protected", "ProtectedTasks", "ReplaysAcrossSessions"]
