"""Authorization: clients that sign in and stay signed in, and servers that are protected.

Public names are imported on first use, so a client loads nothing of a server, and what needs the extra ``auth`` (JWT,
DPoP, private keys) is loaded only when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Type checkers can't follow `__getattr__`.
if TYPE_CHECKING:
    from trio_mcp.auth.client.bearer import BearerToken
    from trio_mcp.auth.client.browser import open_browser
    from trio_mcp.auth.client.enterprise import IdentityAssertion
    from trio_mcp.auth.client.machines import ClientCredentials, WorkloadIdentity
    from trio_mcp.auth.client.oauth import OAuth
    from trio_mcp.auth.client.stores.files import FileTokens
    from trio_mcp.auth.client.stores.keychain import KeyringTokens
    from trio_mcp.auth.client.stores.memory import MemoryTokens, TokenStore
    from trio_mcp.auth.client.terminal import paste_redirect
    from trio_mcp.auth.rules.jose import PrivateKeyJwt
    from trio_mcp.auth.rules.registration import RegisteredClient
    from trio_mcp.auth.rules.urls import UrlPolicy
    from trio_mcp.auth.server.claims import Claims, InvalidToken
    from trio_mcp.auth.server.introspection import IntrospectionVerifier
    from trio_mcp.auth.server.jwt import JwtVerifier
    from trio_mcp.auth.server.resource import ResourceServer

__all__ = [
    "BearerToken",
    "Claims",
    "ClientCredentials",
    "FileTokens",
    "IdentityAssertion",
    "IntrospectionVerifier",
    "InvalidToken",
    "JwtVerifier",
    "KeyringTokens",
    "MemoryTokens",
    "OAuth",
    "PrivateKeyJwt",
    "RegisteredClient",
    "ResourceServer",
    "TokenStore",
    "UrlPolicy",
    "WorkloadIdentity",
    "open_browser",
    "paste_redirect",
]

_LATE: dict[str, tuple[str, ...]] = {
    "client.bearer": ("BearerToken",),
    "client.browser": ("open_browser",),
    "client.enterprise": ("IdentityAssertion",),
    "client.machines": ("ClientCredentials", "WorkloadIdentity"),
    "client.oauth": ("OAuth",),
    "client.stores.files": ("FileTokens",),
    "client.stores.keychain": ("KeyringTokens",),
    "client.stores.memory": ("MemoryTokens", "TokenStore"),
    "client.terminal": ("paste_redirect",),
    "rules.jose": ("PrivateKeyJwt",),
    "rules.registration": ("RegisteredClient",),
    "rules.urls": ("UrlPolicy",),
    "server.claims": ("Claims", "InvalidToken"),
    "server.introspection": ("IntrospectionVerifier",),
    "server.jwt": ("JwtVerifier",),
    "server.resource": ("ResourceServer",),
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _LATE.items() for name in names}


# PEP 562: called for names that the module does not have yet.
def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value
