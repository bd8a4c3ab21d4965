"""Runs a server's sync functions in a limited number of worker threads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice, check_count, check_flag, validator
from trio_mcp.server.functions.held_clock import OUR_THREAD, HoldingLimiter, held_clock

__all__ = ["DialectName", "FunctionOptions", "SyncThreads"]

# The names are repeated here, because the dialects themselves are imported when one is used. A test compares them.
DialectName: TypeAlias = Literal["gemini", "openai-strict"]


def _check_dialect(options: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None:
        check_choice(attribute.name, value, get_args(DialectName))


@attrs.frozen(kw_only=True)
class FunctionOptions:
    """How a server calls and describes the functions behind its tools, resources, prompts, completions and methods.

    Attributes:
        max_sync_threads: How many synchronous functions run at once, each in a thread; further calls wait.
        structured_output: Whether the return types of tools become output schemas and tools return structured content.
            A tool's own ``structured_output`` takes precedence.
        null_in_schemas: Whether input schemas say that an optional parameter may be null. If False, they say only that
            it may be left out, for hosts that don't understand a union with null; null is still accepted.
        inline_definitions: Whether, in schemas made from type hints, definitions replace the references to them, for
            hosts that don't follow references. Recursive types keep their definitions, and so does a schema that would
            have more than 10,000 parts.
        schema_dialect: The dialect of JSON Schema that the input schemas of tools are listed in, for hosts that pass
            them to a model as they are: ``"gemini"``, or ``"openai-strict"`` for functions with ``strict: true``. What
            the model sends is mapped back before it is validated. What a dialect can't say is logged as a warning when
            the tool is registered. None, the default, leaves the schemas as they are.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    max_sync_threads: int = attrs.field(default=40, validator=validator(check_count))  # as many as Trio's own limiter
    structured_output: bool = attrs.field(default=True, validator=validator(check_flag))
    null_in_schemas: bool = attrs.field(default=True, validator=validator(check_flag))
    inline_definitions: bool = attrs.field(default=False, validator=validator(check_flag))
    schema_dialect: DialectName | None = attrs.field(default=None, validator=_check_dialect)


class SyncThreads:
    """Calls sync functions, each in a thread.

    A thread counts towards the limit until it ends, even if its call was cancelled and no task waits for it any more.
    Until then it also keeps Trio's clock from jumping, if that is a virtual clock.

    Args:
        most: The maximum number of threads that run at once in one run of Trio; further calls wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # Each run of Trio has its own limiter, because a thread that outlives its run never returns its token.
        self._limiter: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("sync threads")

    @property
    def limiter(self) -> trio.CapacityLimiter:
        """The limiter of this run of Trio, made on first use."""
        try:
            return self._limiter.get()
        except LookupError:  # the first call in this run
            limiter = trio.CapacityLimiter(self._most)
            self._limiter.set(limiter)
            return limiter

    async def call(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call a function in a thread; if it returns an awaitable, await that in the caller's task.

        If the call is cancelled, the thread is abandoned: it can't be stopped, so the call does not wait for it.
        """
        limiter: Any = self.limiter
        work: Callable[[], Any] = functools.partial(function, *arguments, **named)
        if (clock := held_clock()) is not None:
            limiter, work = HoldingLimiter(limiter, clock), functools.partial(_marked, work)
        # The result is in a tuple, because to_thread.run_sync rejects an awaitable result as a mistake. Here it is
        # legitimate: a sync decorator around an async function returns one.
        (value,) = await trio.to_thread.run_sync(lambda: (work(),), abandon_on_cancel=True, limiter=limiter)
        return await value if inspect.isawaitable(value) else value


def _marked(work: Callable[[], Any]) -> Any:
    OUR_THREAD.set(True)  # in the thread's own context
    return work()
