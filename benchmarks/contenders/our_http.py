"""trio_mcp's client over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from trio_mcp import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio_mcp.http.client.auth import Auth

MODES = {"modern": "auto", "legacy": "legacy"}


ISSUER = "https://id.example.com"
TOKEN = "a" * 800  # as long as a JWT with a few claims


async def _auth(kind: str, url: str) -> Auth:
    """Return what signs the requests: a login that was stored, with a bearer token or one for DPoP."""
    # Imported here, because an older checkout to compare with may have no authorization.
    from trio_mcp.auth import MemoryTokens, OAuth
    from trio_mcp.auth.rules.dpop import Prover
    from trio_mcp.auth.rules.login import ClientRecord, Login

    login = Login(
        resource=url,
        issuer=ISSUER,
        client=ClientRecord("benchmark", "registered"),
        token_endpoint=f"{ISSUER}/token",
        access_token=TOKEN,
        token_type="DPoP" if kind == "dpop" else "Bearer",
        expires_at=4e9,
        refresh_token="refresh",
        dpop_key=Prover().key if kind == "dpop" else None,
    )
    store = MemoryTokens()
    await store.save(url, login.to_json())
    return OAuth(store=store, show=None)


@asynccontextmanager
async def connect(variant: str, url: str, auth: str = "none") -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` at a URL; `variant` is the era, `auth` what signs the requests."""
    settings: dict[str, Any] = {} if auth == "none" else {"auth": await _auth(auth, url)}
    async with Client(url, mode=MODES[variant], **settings) as client:

        async def call(a: int, b: int) -> int:
            result = await client.call_tool("add", {"a": a, "b": b})
            return result.data  # type: ignore[no-any-return]

        yield call
