"""How a generated server is protected: where a client finds what it needs to sign in, and what goes wrong then."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import attrs
from hypothesis import strategies as st

from trio_mcp.testing.strategies.drawing import draws

__all__ = ["CHOICES", "TRAPS", "ProtectionScript", "protections"]

CHOICES: Final[dict[str, dict[str, str]]] = {
    "metadata": {
        "named": "a 401 names the URL of the resource metadata, which is the well-known one",
        "elsewhere": "a 401 names another URL, and the metadata is only there",
        "path": "a 401 names no URL; the metadata is at the well-known one, below the path of the endpoint",
        "root": "a 401 names no URL; the metadata is at the well-known one of the root",
    },
    "challenge": {
        "one": "the challenge is alone in its header",
        "several": "a challenge of another scheme comes first, with a comma in a quoted text",
    },
    "scopes": {
        "challenge": "a 401 names the scope that is needed, one of those in the resource metadata",
        "unrelated": "a 401 names a scope that the resource metadata does not list",
        "listed": "only the resource metadata lists a scope",
        "none": "no scope is named",
    },
    "resource": {
        "exact": "the resource metadata names the endpoint",
        "upper": "the resource metadata names the endpoint, with its scheme in upper case",
    },
    "issuer": {
        "root": "the issuer has no path",
        "tenant": "the issuer has a path",
    },
    "discovery": {
        "oauth": "the authorization server's metadata is where RFC 8414 puts it",
        "inserted": "it is at the well-known place of OpenID, with the issuer's path behind it",
        "appended": "it is where OpenID Connect Discovery puts it: behind the issuer's path",
    },
    "client": {
        "registers": "clients may register",
        "documents": "clients may register, and the URL of a metadata document is accepted as a client id, too",
    },
    "iss": {
        "announced": "the authorization server announces that its responses name the issuer, and names it",
        "unannounced": "it names the issuer without having said so",
        "absent": "it neither announces nor names it",
    },
    "tokens": {
        "lasting": "the access token lasts",
        "expiring": "it expires after a few requests, and can be refreshed",
        "unrefreshed": "it expires, and there is no refresh token",
        "rotating": "it expires twice, and each refresh brings a new refresh token",
        "offline": "it expires, and only who asks for the scope `offline_access` gets a refresh token",
    },
    "steps": {
        "none": "the first scopes are enough",
        "up": "a call of a tool needs one more scope: status 403, and then it succeeds",
        "never": "a call of a tool is refused with 403 whatever scopes the client has",
    },
}
"""The values of each attribute of a protection, the plain one first, each with what it means."""

TRAPS: Final[dict[str, str]] = {
    "wrong iss": "the redirection names another issuer",
    "similar iss": "the redirection names the issuer with a slash at its end",
    "no iss": "the redirection names no issuer, although that was announced",
    "unannounced wrong iss": "the redirection names another issuer, and nothing was announced",
    "wrong state": "the redirection has another state",
    "no state": "the redirection has no state",
    "no pkce": "the authorization server's metadata lists no PKCE methods",
    "other resource": "the resource metadata is that of a server with another origin",
    "other issuer": "the authorization server's metadata names another issuer",
    "moved token endpoint": "the token endpoint redirects to another origin",
    "moved server": "the server redirects a request with a token to another origin",
    "refused registration": "a registration is refused because of its redirect URIs",
    "new authority": "the token is refused, and the resource metadata names another authorization server",
}
"""The traps, one of which is in many examples, each with what it means."""


BULK: Final = 20
"""How many protections are drawn at once (an arbitrary choice: they are cheap)."""


@attrs.frozen
class ProtectionScript:
    """How a generated server is protected; `CHOICES` says what each value means.

    Attributes:
        metadata: Where the resource metadata is.
        challenge: What the ``WWW-Authenticate`` of a 401 looks like.
        scopes: Where the scopes are named.
        resource: How the resource metadata names the endpoint.
        issuer: Whether the issuer has a path.
        discovery: Where the authorization server's metadata is.
        client: How a client gets its id.
        iss: Whether authorization responses name the issuer.
        tokens: How long tokens last.
        steps: Whether a call of a tool needs more scopes.
        trap: What goes wrong: a key of `TRAPS`, or empty.
    """

    metadata: str = "named"
    challenge: str = "one"
    scopes: str = "challenge"
    resource: str = "exact"
    issuer: str = "root"
    discovery: str = "oauth"
    client: str = "registers"
    iss: str = "announced"
    tokens: str = "lasting"
    steps: str = "none"
    trap: str = ""

    @property
    def is_trap(self) -> bool:
        """Whether a client should not get all that it wants."""
        return bool(self.trap) or self.steps == "never"

    def simpler(self) -> Iterator[ProtectionScript]:
        """Yield protections with one attribute made plain; before them, one with all made plain but the trap."""
        plain = ProtectionScript(trap=self.trap)
        changed = [name for name in CHOICES if getattr(self, name) != getattr(plain, name)]
        if len(changed) > 1:
            yield plain
            # Most faults depend on a single attribute.
            for name in changed:
                yield attrs.evolve(plain, **{name: getattr(self, name)})
        for name in [*changed, "trap"] if self.trap else changed:
            yield attrs.evolve(self, **{name: getattr(ProtectionScript(), name)})


def protections(seed: int, revision: str) -> Iterator[ProtectionScript]:
    """Yield an endless series of protections.

    The first is plain. Then each trap comes once with all else plain, and each value of the choices at least once. What
    follows is drawn, with a trap in every other one.
    """
    yield ProtectionScript()
    for trap, packed in itertools.zip_longest(TRAPS, _packed()):
        if packed is not None:
            yield packed
        yield ProtectionScript(trap=trap)
    # A text as seed would depend on the process, as its hash does.
    own = seed * 1_000_003 + int(revision.replace("-", ""))
    fields = {name: st.sampled_from([*values]) for name, values in CHOICES.items()}
    traps = itertools.cycle(TRAPS)
    while True:
        own += 1
        for drawn in draws(st.builds(ProtectionScript, **fields), BULK, seed=own):
            yield drawn
            yield attrs.evolve(drawn, trap=next(traps))


def _packed() -> Iterator[ProtectionScript]:
    """Yield protections that have all values of the choices but the plain ones, as many at once as possible."""
    for number in range(1, max(map(len, CHOICES.values()))):
        values = {name: [*each][number] for name, each in CHOICES.items() if number < len(each)}
        yield ProtectionScript(**values)
