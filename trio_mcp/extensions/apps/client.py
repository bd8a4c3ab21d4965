"""The client's side of apps: the declaration that the client shows pages (SEP-1865, Capability Negotiation)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trio_mcp.client.extension import ClientExtension
from trio_mcp.extensions.apps.names import IDENTIFIER, MIME_TYPE

__all__ = ["AppsClientSide"]


class AppsClientSide(ClientExtension):
    """The client's side of the extension."""

    identifier = IDENTIFIER

    def settings(self, revision: str) -> Mapping[str, Any]:
        return {"mimeTypes": [MIME_TYPE]}
