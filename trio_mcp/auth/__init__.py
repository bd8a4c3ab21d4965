"""Authorization: clients that sign in and stay signed in, and servers that are protected.

Public names are imported on first use: a client loads no server code, and the code that needs the extra ``auth`` (JWT,
DPoP, private keys) is loaded only when it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.auth.client.bearer import BearerToken as BearerToken
    from trio_mcp.auth.client.browser import open_browser as open_browser
    from trio_mcp.auth.client.caller_auth import CallerAuth as CallerAuth
    from trio_mcp.auth.client.enterprise import IdentityAssertion as IdentityAssertion
    from trio_mcp.auth.client.machines import (
        ClientCredentials as ClientCredentials,
        WorkloadIdentity as WorkloadIdentity,
    )
    from trio_mcp.auth.client.oauth import OAuth as OAuth
    from trio_mcp.auth.client.options import TokenOptions as TokenOptions
    from trio_mcp.auth.client.stores.files import FileTokens as FileTokens
    from trio_mcp.auth.client.stores.keychain import KeyringTokens as KeyringTokens
    from trio_mcp.auth.client.stores.memory import MemoryTokens as MemoryTokens, TokenStore as TokenStore
    from trio_mcp.auth.client.terminal import paste_redirect as paste_redirect
    from trio_mcp.auth.rules.jose import PrivateKeyJwt as PrivateKeyJwt
    from trio_mcp.auth.rules.registration import RegisteredClient as RegisteredClient
    from trio_mcp.auth.rules.urls import UrlPolicy as UrlPolicy
    from trio_mcp.auth.server.claims import Claims as Claims, InvalidToken as InvalidToken
    from trio_mcp.auth.server.exchange import TokenExchange as TokenExchange, TokenExchangeError as TokenExchangeError
    from trio_mcp.auth.server.introspection import IntrospectionVerifier as IntrospectionVerifier
    from trio_mcp.auth.server.jwt import JwtVerifier as JwtVerifier
    from trio_mcp.auth.server.options import ResourceOptions as ResourceOptions
    from trio_mcp.auth.server.resource import ResourceServer as ResourceServer
    from trio_mcp.server.caller import NoCallerToken as NoCallerToken
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
