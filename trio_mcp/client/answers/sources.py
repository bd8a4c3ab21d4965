"""A client's answers to a server: the callback behind each method, the same in both eras.

In the legacy era the server asks by a request of its own, in the modern era in a result that asks for input. Either way
it names a method and parameters, and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from trio_mcp.convert import brief
from trio_mcp.errors import LocalProtocolError, McpError, RemoteProtocolError
from trio_mcp.session.client import ClientSession
from trio_mcp.session.handlers import RequestContext
from trio_mcp.types.error_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from trio_mcp.types.methods import method_spec

if TYPE_CHECKING:  # imported at run time only by a client that answers such questions
    from trio_mcp.client.answers.elicitation import ElicitationCallback, ElicitationMode
    from trio_mcp.client.answers.roots import Roots, RootsSource
    from trio_mcp.client.answers.sampling import SamplingCallback, SamplingFeature

__all__ = ["InputSources"]


class _Source(Protocol):
    def capability(self, revision: str) -> dict[str, Any] | None: ...

    def prepare(self, params: Any, plain: dict[str, Any], revision: str) -> Callable[[], Awaitable[Any]]: ...


class InputSources:
    """The callbacks of a client. A kind without one (None) is not declared, so no server may ask for it."""

    def __init__(
        self,
        *,
        elicitation: ElicitationCallback | None,
        elicitation_modes: Collection[ElicitationMode],
        sampling: SamplingCallback | None,
        sampling_features: Collection[SamplingFeature],
        roots: Roots | None,
    ) -> None:
        self._sources: dict[str, _Source] = {}
        self.roots: RootsSource | None = None
        # Imported here: most clients answer none of these, and each import takes a moment.
        if elicitation is not None:
            from trio_mcp.client.answers.elicitation import ElicitationSource

            self._sources["elicitation/create"] = ElicitationSource(elicitation, elicitation_modes)
        if sampling is not None:
            from trio_mcp.client.answers.sampling import SamplingSource

            self._sources["sampling/createMessage"] = SamplingSource(sampling, sampling_features)
        if roots is not None:
            from trio_mcp.client.answers.roots import RootsSource

            self._sources["roots/list"] = self.roots = RootsSource(roots)

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared in a revision, as plain data."""
        declared = {}
        for method, source in self._sources.items():
            spec, capability = method_spec(revision, method), source.capability(revision)
            if spec is not None and spec.client_capability is not None and capability is not None:
                declared[spec.client_capability] = capability
        return declared

    def prepare(self, revision: str, method: str, params: Any) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Check a server's question; return the function that gets the answer, as plain data.

        Raises:
            RemoteProtocolError: If the server may not ask this, or it is malformed; ``code`` is for the error response.
        """
        spec, source = method_spec(revision, method), self._sources.get(method)
        if source is None or spec is None or source.capability(revision) is None:
            raise RemoteProtocolError(
                f"the server asks for {method[:100]!r}, which this client has not declared", METHOD_NOT_FOUND
            )
        # Where `params` may be missing, the model still expects an object.
        plain = {} if params is None and not spec.params_required else params
        try:
            message: Any = spec.message.from_wire({"method": method, "params": plain})
        except ValidationError as exc:
            text = f"the server asks for {method!r} with malformed parameters: {brief(exc)}"
            raise RemoteProtocolError(text, INVALID_PARAMS) from None
        return source.prepare(message.params, plain, revision)

    def attach(self, session: ClientSession) -> None:
        """Answer the requests of a server of the legacy era."""

        async def answer(params: dict[str, Any], context: RequestContext) -> dict[str, Any]:
            try:
                get_answer = self.prepare(session.server.revision, context.method, params)
            except LocalProtocolError:  # the session has no revision yet
                raise McpError(INVALID_REQUEST, "the handshake is not complete") from None
            except RemoteProtocolError as exc:
                raise McpError(exc.code, exc.message) from None
            return await get_answer()

        for method in self._sources:
            session.add_request_handler(method, answer)
