"""An authorization server in memory, for tests and demos; never for production.

It has no storage and no consent page, and signs everyone in. The module ``faults`` makes it hostile.
"""

from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import faults, providers
from trio_mcp.auth.testing.answers import ServerResponse
from trio_mcp.auth.testing.faults import Fault
from trio_mcp.auth.testing.protecting import protected
from trio_mcp.auth.testing.records import AuthoritySettings
from trio_mcp.auth.testing.server import AuthorizationServer, Seen

__all__ = [
    "AuthoritySettings",
    "AuthorizationServer",
    "Fault",
    "Fetch",
    "Seen",
    "ServerResponse",
    "faults",
    "protected",
    "providers",
]
