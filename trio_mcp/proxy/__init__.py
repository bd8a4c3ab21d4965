"""The proxy: a client on one side, a server on the other."""

from trio_mcp.proxy.proxy_server import ProxyServer

__all__ = ["ProxyServer"]
