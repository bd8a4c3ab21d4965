"""Servers made of clients: what is a client on one side and a server on the other."""

from trio_mcp.proxy.proxy_server import ProxyServer

__all__ = ["ProxyServer"]
