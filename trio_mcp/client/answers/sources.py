"""Get a client's answers to a server's questions from the client's callbacks, which are the same in both eras.

In the legacy era the server asks with a request, in the modern era with a result that asks for input. In both eras the
server names a method and parameters, and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, validator
from trio_mcp.convert import brief
from trio_mcp.errors import LocalProtocolError, McpError, RemoteProtocolError
from trio_mcp.session.client import ClientSession
from trio_mcp.session.handlers import RequestContext
from trio_mcp.types.error_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from trio_mcp.types.methods import method_spec

if TYPE_CHECKING:  # at run time, imported only by clients that answer questions of each kind
    from trio_mcp.client.answers.elicitation import ElicitationCallback, ElicitationMode
    from trio_mcp.client.answers.roots import RootList, Roots, RootsSource
    from trio_mcp.client.answers.sampling import SamplingCallback, SamplingFeature
    from trio_mcp.types.roots import Root

__all__ = ["Answers", "InputSources"]


def _checked_roots(roots: Roots | None) -> Callable[[], Awaitable[RootList] | RootList] | list[Root] | None:
    if roots is None:
        return None
    from trio_mcp.client.answers.roots import RootsSource

    return RootsSource.checked(roots)


@attrs.frozen(kw_only=True)
class Answers:
    """A client's answers to a server's questions. The client declares only those kinds of question that it answers.

    Attributes:
        elicitation: Called, sync or async, when the server asks the user something, with `ElicitRequestFormParams` or
            `ElicitRequestURLParams`. Returns an `ElicitResult`; or the content of an accepted form, as a mapping or
            model; or ``"accept"``, ``"decline"`` or ``"cancel"``; or None to decline. The form's defaults are filled
            in, and content that does not match the form is not sent.
        elicitation_modes: The modes that the callback ``elicitation`` handles: ``"form"``, ``"url"`` or both.
        sampling: Called, sync or async, when the server asks the client's language model, with
            `CreateMessageRequestParams`. Returns a `CreateMessageResult`, or just a string. To refuse, raise
            ``McpError(-1, "…")``.
        sampling_features: What the callback ``sampling`` supports beyond plain messages: ``"tools"``, ``"context"``.
        roots: The directories and files that the server may work in: each a `Root`, a `pathlib.Path` or a ``file://``
            URI; or a sync or async function that returns them. See `Client.set_roots`.
        max_input_rounds: How many times a server of the modern era may ask for input during one call.

    Raises:
        TypeError, ValueError: If an argument is invalid.
    """

    elicitation: ElicitationCallback | None = None
    # The second type is for mypy, which infers tuple[str] for ("form",) if the type is only a Collection.
    elicitation_modes: Collection[ElicitationMode] | tuple[ElicitationMode, ...] = ("form", "url")
    sampling: SamplingCallback | None = None
    sampling_features: Collection[SamplingFeature] | tuple[SamplingFeature, ...] = ()
    roots: Callable[[], Awaitable[RootList] | RootList] | list[Root] | None = attrs.field(
        default=None, converter=_checked_roots
    )
    max_input_rounds: int = attrs.field(default=10, validator=validator(check_count))

    def __attrs_post_init__(self) -> None:
        # The new object is discarded: making it checks the answers, so that an invalid one is refused where the program
        # creates the answers.
        InputSources(self)


class _Source(Protocol):
    def capability(self, revision: str) -> dict[str, Any] | None: ...

    def prepare(self, params: Any, plain: dict[str, Any], revision: str) -> Callable[[], Awaitable[Any]]: ...


class InputSources:
    """The answers of one client to its server; the client may replace its roots."""

    def __init__(self, answers: Answers) -> None:
        self._sources: dict[str, _Source] = {}
        self.roots: RootsSource | None = None
        # Each source is imported only if it is needed, as most clients answer no questions, and each import takes a
        # moment.
        if answers.elicitation is not None:
            from trio_mcp.client.answers.elicitation import ElicitationSource

            self._sources["elicitation/create"] = ElicitationSource(answers.elicitation, answers.elicitation_modes)
        if answers.sampling is not None:
            from trio_mcp.client.answers.sampling import SamplingSource

            self._sources["sampling/createMessage"] = SamplingSource(answers.sampling, answers.sampling_features)
        if answers.roots is not None:
            from trio_mcp.client.answers.roots import RootsSource

            self._sources["roots/list"] = self.roots = RootsSource(answers.roots)

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities that the client declares in a revision, as plain data."""
        declared = {}
        for method, source in self._sources.items():
            spec, capability = method_spec(revision, method), source.capability(revision)
            if spec is not None and spec.client_capability is not None and capability is not None:
                declared[spec.client_capability] = capability
        return declared

    def prepare(self, revision: str, method: str, params: Any) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Check a server's question; return the function that gets the answer, as plain data.

        Raises:
            RemoteProtocolError: If the server may not ask this, or the question is malformed; the exception has the
                ``code`` for the error response.
        """
        spec, source = method_spec(revision, method), self._sources.get(method)
        if source is None or spec is None or source.capability(revision) is None:
            raise RemoteProtocolError(
                f"the server requested {method[:100]!r}, for which this client has declared no capability",
                METHOD_NOT_FOUND,
            )
        # Some methods allow `params` to be missing, but their models expect an object.
        plain = {} if params is None and not spec.params_required else params
        try:
            message: Any = spec.message.from_wire({"method": method, "params": plain})
        except ValidationError as exc:
            raise RemoteProtocolError(
                f"the server requested {method!r} with malformed parameters: {brief(exc)}", INVALID_PARAMS
            ) from None
        return source.prepare(message.params, plain, revision)

    def attach(self, session: ClientSession) -> None:
        """Make a session respond to the questions of a legacy-era server."""

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
