"""Print what another library offers, as JSON: ``python foreign_names.py mcp|fastmcp``, run by its own interpreter.

Each variable that the page of names uses stands for a class; what it has are the class's attributes. Names and keywords
are those of everything that a user imports or calls.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

CLASSES = {
    "mcp": {
        "mcp": "mcp.server.mcpserver:MCPServer",
        "ctx": "mcp.server.mcpserver:Context",
        "ctx.session": "mcp.server.session:ServerSession",
        "ctx.request_context": "mcp.server.context:ServerRequestContext",
        "client": "mcp.client:Client",
    },
    "fastmcp": {
        "mcp": "fastmcp:FastMCP",
        "ctx": "fastmcp:Context",
        "client": "fastmcp:Client",
    },
}
MODULES = {
    "mcp": [
        "mcp",
        "mcp.client",
        "mcp.client.auth",
        "mcp.client.auth.extensions.client_credentials",
        "mcp.client.session",
        "mcp.client.session_group",
        "mcp.client.stdio",
        "mcp.client.streamable_http",
        "mcp.server",
        "mcp.server.auth.middleware.auth_context",
        "mcp.server.auth.provider",
        "mcp.server.auth.settings",
        "mcp.server.lowlevel",
        "mcp.server.mcpserver",
        "mcp.server.mcpserver.exceptions",
        "mcp.shared.exceptions",
        "mcp.types",
    ],
    "fastmcp": [
        "fastmcp",
        "fastmcp.client",
        "fastmcp.client.auth",
        "fastmcp.client.transports",
        "fastmcp.dependencies",
        "fastmcp.exceptions",
        "fastmcp.server",
        "fastmcp.server.auth",
        "fastmcp.server.auth.oauth_proxy",
        "fastmcp.server.auth.providers.introspection",
        "fastmcp.server.auth.providers.jwt",
        "fastmcp.server.context",
        "fastmcp.server.dependencies",
        *(
            f"fastmcp.server.middleware.{module}"
            for module in ("caching", "error_handling", "logging", "rate_limiting", "response_limiting", "timing")
        ),
        "fastmcp.tools",
        "fastmcp.utilities.types",
    ],
}


def loaded(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def parameters(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def main(library: str) -> None:
    attributes: dict[str, list[str]] = {}
    keywords: set[str] = set()
    for variable, place in CLASSES[library].items():
        owner = loaded(place)
        # Those of instances count, too: a dataclass or model has fields without a default.
        fields = {*getattr(owner, "__annotations__", ()), *getattr(owner, "model_fields", ())}
        own = [name for name in {*dir(owner), *fields} if not name.startswith("_")]
        attributes[variable] = own
        keywords |= parameters(owner).union(*(parameters(getattr(owner, name, None)) for name in own))
    names: set[str] = set()
    for module in MODULES[library]:
        try:
            loaded_module = importlib.import_module(module)
        except ImportError:
            continue
        # Some are loaded when they are first used.
        lazy = {name: getattr(loaded_module, name) for name in getattr(loaded_module, "__all__", ())}
        found = vars(loaded_module) | lazy
        names |= {name for name in found if not name.startswith("_")}
        keywords |= set().union(*(parameters(each) for each in found.values() if callable(each)))
    json.dump({"attributes": attributes, "names": sorted(names), "keywords": sorted(keywords)}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
