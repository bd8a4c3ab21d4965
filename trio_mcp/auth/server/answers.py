"""The responses by which a protected server refuses requests, with their challenges."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from trio_mcp.auth.rules.challenges import format_challenge
from trio_mcp.auth.server.keys import RETRY
from trio_mcp.http.rules.statuses import Refusal, refuse

__all__ = ["Refusals"]

# The response to every refused token has the same text, because details would help those who forge tokens. The details
# are in the log.
_TOKEN_REFUSED = "the access token is not valid here, or no longer valid"


@attrs.frozen
class Refusals:
    """The refusals that one protected server sends.

    Attributes:
        metadata: The URL of the server's metadata.
        scopes: The scopes that every request needs.
        bearer: Whether tokens that are bound to no key are accepted.
        proofs: The algorithms accepted for proofs, joined by spaces; empty without DPoP.
    """

    metadata: str
    scopes: frozenset[str]
    bearer: bool
    proofs: str

    def _challenges(
        self, error: str | None, description: str | None, scopes: Iterable[str], only: str | None = None
    ) -> tuple[tuple[str, str], ...]:
        common = {"resource_metadata": self.metadata}
        if wanted := " ".join(sorted(scopes)):
            common["scope"] = wanted
        if error is not None:
            common = {"error": error, "error_description": description or "", **common}
        found = []
        if self.bearer and only != "DPoP":
            found.append(format_challenge("Bearer", common))
        if self.proofs and only != "Bearer":
            found.append(format_challenge("DPoP", {**common, "algs": self.proofs}))
        return tuple(("WWW-Authenticate", challenge) for challenge in found)

    def nothing(self) -> Refusal:
        """Return the refusal of a request without credentials; it has no error code (RFC 6750, section 3.1)."""
        headers = self._challenges(None, None, self.scopes)
        return refuse(401, "this server needs an access token; WWW-Authenticate says where to get one", headers=headers)

    def malformed(self, problem: str) -> Refusal:
        """Return the refusal of a request whose credentials are in the wrong place or form."""
        headers = self._challenges("invalid_request", problem, self.scopes)
        return refuse(400, f"the request can't be authorized: {problem}", headers=headers)

    def token(self, scheme: str | None = None) -> Refusal:
        """Return the refusal of a token.

        Args:
            scheme: The scheme to try again with; None for any that this server accepts.
        """
        return refuse(
            401, _TOKEN_REFUSED, headers=self._challenges("invalid_token", _TOKEN_REFUSED, self.scopes, scheme)
        )

    def proof(self, problem: str) -> Refusal:
        """Return the refusal of a DPoP proof; it says what is wrong, because the client itself made the proof."""
        # The challenge is for DPoP alone: the error codes of RFC 9449 mean nothing in a challenge for Bearer.
        headers = self._challenges("invalid_dpop_proof", f"the DPoP proof is refused: {problem}", self.scopes, "DPoP")
        return refuse(401, f"the DPoP proof is refused: {problem}", headers=headers)

    def nonce(self, nonce: str) -> Refusal:
        """Return the refusal of a DPoP proof without a current nonce from this server (RFC 9449, section 9)."""
        text = "the DPoP proof must contain the nonce from the header DPoP-Nonce"
        headers = self._challenges("use_dpop_nonce", text, self.scopes, "DPoP")
        # A cache that stored this response would hand out an expired nonce (RFC 9449, section 8.2).
        return refuse(401, text, headers=(*headers, ("DPoP-Nonce", nonce), ("Cache-Control", "no-store")))

    def scope(self, needed: frozenset[str]) -> Refusal:
        """Return the refusal of a request that needs more scopes; the challenge names every scope that it needs."""
        names = " ".join(sorted(needed))
        text = f"the request needs the scopes: {names}" if len(needed) > 1 else f"the request needs the scope {names}"
        return refuse(403, text, headers=self._challenges("insufficient_scope", text, needed))

    def unavailable(self) -> Refusal:
        """Return the refusal of a token that can't be checked at the moment."""
        # The status is not 401, because after a 401 the client would drop a token that may be valid, and ask a person
        # to sign in again.
        text = "the access token can't be checked now: its issuer is not responding, or was asked just now; try again"
        return refuse(503, text, headers=(("Retry-After", f"{RETRY:.0f}"),))

    def forgetful(self) -> Refusal:
        """Return the refusal of a DPoP proof when it can't be found out whether it was used before."""
        text = "the DPoP proof can't be checked now: this server can't find out whether it was used before; try again"
        return refuse(503, text, headers=(("Retry-After", f"{RETRY:.0f}"),))

    def broken(self) -> Refusal:
        """Return the refusal of a token that could not be checked because of an error in this server."""
        return refuse(500, "the access token can't be checked: this server has an error, which its log describes")
