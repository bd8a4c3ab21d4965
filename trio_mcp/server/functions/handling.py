"""What the handlers of every feature share: running the user's function, telling of its failure, listing in pages."""

from __future__ import annotations

import copy
import inspect
import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from trio_mcp.errors import McpError
from trio_mcp.server.context import Context
from trio_mcp.server.features.pagination import Registry, page_of
from trio_mcp.server.functions.dependencies import Dependent
from trio_mcp.types.error_codes import INTERNAL_ERROR

if TYPE_CHECKING:
    from trio_mcp.server.core import ServerCore
    from trio_mcp.server.functions.signature import Bound

__all__ = ["describe_failure", "failure", "list_page", "run", "single"]

logger = logging.getLogger("trio_mcp")


class _Listed(Protocol):
    @property
    def name(self) -> str: ...

    def for_revision(self, revision: str) -> dict[str, Any]: ...


ListedT = TypeVar("ListedT", bound=_Listed)


async def run(bound: Bound, is_async: bool, server: ServerCore) -> Any:
    """Call the user's function: in this task if it is async, else in a thread of the server's own limit."""
    if isinstance(bound, Dependent):
        return await bound.run(server)
    if is_async:
        return await bound()
    # Abandoned when cancelled: a thread can't be stopped, but nobody has to wait for it. In a tuple, because trio
    # takes an awaitable for a mistake: here it comes from a sync decorator around an async function.
    (value,) = await trio.to_thread.run_sync(lambda: (bound(),), abandon_on_cancel=True, limiter=server.sync_limiter)
    return await value if inspect.isawaitable(value) else value


def single(exc: Exception) -> Exception:
    """The one exception inside a group of one: a function may well have a nursery of its own."""
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def describe_failure(server: ServerCore, text: str, exc: Exception, ours: type[Exception]) -> str:
    """What a client is told of an unexpected exception, which goes to the log.

    Args:
        server: Whether clients see more than the text is its setting.
        text: What failed.
        exc: The exception.
        ours: The kind of exception that this library raises there: its text says enough without its name.
    """
    logger.error(text, exc_info=exc)
    if not server.expose_errors:
        return text
    return f"{text}: {exc}" if isinstance(exc, ours) else f"{text}: {type(exc).__name__}: {exc}"


def failure(server: ServerCore, text: str, exc: Exception, ours: type[Exception]) -> McpError:
    """The error answer for an exception; one that is meant for the client is that answer itself."""
    exc = single(exc)
    return exc if isinstance(exc, McpError) else McpError(INTERNAL_ERROR, describe_failure(server, text, exc, ours))


def list_page(server: ServerCore, registry: Registry[ListedT], key: str, context: Context[Any]) -> dict[str, Any]:
    """Answer a request for a page of a list.

    Raises:
        McpError: The cursor is not one of ours (-32602).
    """
    page, next_cursor = page_of(registry, context.params.get("cursor"), server.page_size)
    revision = context.protocol_version
    definitions = [each.for_revision(revision) for each in page]
    # A middleware may change what it gets, but not what the next client sees.
    result: dict[str, Any] = {key: copy.deepcopy(definitions) if server.middleware else definitions}
    if next_cursor is not None:
        result["nextCursor"] = next_cursor
    return result | server.cache_hints[context.method] if context.rules.cache_hints else result
