"""Where logins are kept."""

from trio_mcp.auth.client.stores.files import FileTokens
from trio_mcp.auth.client.stores.keychain import KeyringTokens
from trio_mcp.auth.client.stores.memory import MemoryTokens
from trio_mcp.auth.client.stores.store import TokenStore

__all__ = ["FileTokens", "KeyringTokens", "MemoryTokens", "TokenStore"]
