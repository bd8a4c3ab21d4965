"""The two eras as strategies behind one face: what a request and a result carry besides their content.

Legacy (2025-11-25 and earlier): one handshake, then nothing. Modern (2026-07-28 and later): every request names its
revision, the client and the client's capabilities in ``_meta``; every result says its type and who the server is
(`basic/index`, sections General fields and ResultType).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs

from trio_mcp.eras.rules import Rules, rules_of
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.types import meta

__all__ = ["ClientEra", "LegacyEra", "ModernClientEra", "ModernServerEra", "ServerEra"]

RESULT_TYPES = frozenset({"complete", "input_required"})
"""The result types of the core protocol; extensions may add their own."""


@attrs.frozen
class LegacyEra:
    """Nothing is added on either side: the handshake has said it all.

    Attributes:
        revision: The revision that the handshake has settled.
        rules: What differs by revision, of that one.
    """

    revision: str

    rules: Rules = attrs.field(init=False, repr=False, eq=False)

    @rules.default
    def _rules(self) -> Rules:
        return rules_of(self.revision)

    def request_params(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        return params

    def read_result(self, result: dict[str, Any]) -> dict[str, Any]:
        return result

    def finish_result(self, result: dict[str, Any]) -> dict[str, Any]:
        return result


@attrs.frozen
class ModernClientEra:
    """Stamps every request with what a stateless server needs to know.

    Attributes:
        revision: The revision named in every request.
        client_info: The client's `Implementation`, as plain data.
        capabilities: The client's `ClientCapabilities`, as plain data.
        log_level: The lowest level of log messages wanted; None for none at all.
        result_types: The values of ``resultType`` that are understood.
    """

    revision: str
    client_info: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str | None = None
    result_types: frozenset[str] = RESULT_TYPES

    _stamp: dict[str, Any] = attrs.field(init=False, repr=False, eq=False)

    @_stamp.default
    def _make_stamp(self) -> dict[str, Any]:
        stamp: dict[str, Any] = {
            meta.PROTOCOL_VERSION: self.revision,
            meta.CLIENT_INFO: self.client_info,
            meta.CLIENT_CAPABILITIES: self.capabilities,
        }
        return stamp if self.log_level is None else {**stamp, meta.LOG_LEVEL: self.log_level}

    rules: Rules = attrs.field(init=False, repr=False, eq=False)

    @rules.default
    def _rules(self) -> Rules:
        return rules_of(self.revision)

    def request_params(self, params: dict[str, Any] | None) -> dict[str, Any]:
        """The parameters as they go out; the argument is not changed."""
        if not params:
            return {"_meta": self._stamp}
        given = params.get("_meta")
        return {**params, "_meta": {**self._stamp, **given} if given else self._stamp}

    def read_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result as it came in.

        Raises:
            RemoteProtocolError: The ``resultType`` is one that this client does not know.
        """
        # An absent type means "complete"; an unknown one makes the result invalid (`basic/index`, ResultType).
        kind = result.get("resultType", "complete")
        if not isinstance(kind, str) or kind not in self.result_types:
            shown = kind[:100] if isinstance(kind, str) else type(kind).__name__
            raise RemoteProtocolError(f"the server answered with the unknown resultType {shown!r}")
        return result


@attrs.frozen
class ModernServerEra:
    """Says of every result what type it is and who made it.

    Attributes:
        revision: The revision that the request named.
        server_info: The server's `Implementation`, as plain data.
    """

    revision: str
    server_info: dict[str, Any]

    rules: Rules = attrs.field(init=False, repr=False, eq=False)

    @rules.default
    def _rules(self) -> Rules:
        return rules_of(self.revision)

    def finish_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result as it goes out; the argument is not changed."""
        given = result.get("_meta")
        stamp = {meta.SERVER_INFO: self.server_info}
        finished = {"resultType": "complete", **result}
        finished["_meta"] = {**stamp, **given} if given else stamp
        return finished


ClientEra: TypeAlias = LegacyEra | ModernClientEra
"""How a client's requests go out, and how it reads results."""
ServerEra: TypeAlias = LegacyEra | ModernServerEra
"""How a server's results go out."""
