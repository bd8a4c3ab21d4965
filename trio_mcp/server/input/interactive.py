"""Running a function that may ask: until it returns, or has asked what only another request can answer."""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from trio_mcp.server.functions.handling import run, single
from trio_mcp.server.input.asking import InputRequired, UrlElicitationRequired
from trio_mcp.server.input.parking import ParkedRounds, resume
from trio_mcp.server.input.rounds import (
    LegacyRounds,
    ReplayedRounds,
    RoundEnded,
    connection_of,
    earlier_rounds,
)

if TYPE_CHECKING:
    from trio_mcp.server.context import Context
    from trio_mcp.server.core import ServerCore
    from trio_mcp.server.functions.signature import Bound, Signature
    from trio_mcp.server.input.request_state import RequestState

__all__ = ["run_interactive", "without_questions"]


async def run_interactive(
    server: ServerCore, context: Context[Any], bind: Callable[[], Bound], signature: Signature
) -> Any:
    """Call the user's function, and see to what it asks.

    Args:
        server: The server.
        context: The function's.
        bind: Gives the function with its arguments, anew for each time that it runs.
        signature: The function's.

    Returns:
        What it returned, or `Asked`.
    """
    is_async = signature.is_async
    bound = bind()  # refuses bad arguments before anything else
    if not context.rules.input_in_results:
        return await _run_legacy(server, context, bound, bind, is_async)
    params = context.request.params or {}
    earlier: RequestState | None = None
    responses: dict[str, Any] = {}
    if "requestState" in params or "inputResponses" in params:
        earlier, responses = earlier_rounds(connection_of(context).serving.server, context)
    rounds: ParkedRounds | ReplayedRounds
    if earlier is not None and earlier.parked is not None:
        rounds = resume(context, earlier.parked, responses)
    elif signature.park_input:
        rounds = ParkedRounds(server, context, earlier, bound, is_async)
    else:
        rounds = ReplayedRounds(server, context, earlier)
    if earlier is None:
        rounds.offered = responses
    elif earlier.parked is None:
        for key, data in responses.items():
            rounds._take(key, earlier.questions[key], data)
    try:
        if isinstance(rounds, ReplayedRounds):
            value = await _run_replayed(rounds, bound, is_async)
        else:
            if earlier is None or earlier.parked is None:
                rounds.start()
            value = await rounds.serve()
    except Exception as exc:
        pages = single(exc)
        if not isinstance(pages, UrlElicitationRequired):
            raise
        return rounds.asked(rounds.explicit(pages))
    return rounds.asked(rounds.explicit(value)) if isinstance(value, InputRequired) else value


async def _run_replayed(rounds: ReplayedRounds, bound: Bound, is_async: bool) -> Any:
    context = rounds.context
    context._rounds = rounds
    value = None
    try:
        with rounds.scope:
            value = await run(bound, is_async, rounds.server)
    except RoundEnded:
        pass
    except BaseExceptionGroup as group:
        rest = group.split(RoundEnded)[1]
        if rest is not None:
            raise rest from None
    finally:
        rounds.close()
    return rounds.asked(rounds.open_questions) if rounds.open_questions else value


async def _run_legacy(
    server: ServerCore, context: Context[Any], bound: Bound, bind: Callable[[], Bound], is_async: bool
) -> Any:
    rounds = LegacyRounds(server, context)
    while True:
        context._rounds = rounds
        try:
            value = await run(bound, is_async, server)
        except Exception as exc:
            pages = single(exc)
            if isinstance(pages, UrlElicitationRequired):
                for request in pages.requests:
                    request.check(context)
                    connection_of(context).note_elicitation(request.elicitation_id or "")
            raise
        finally:
            rounds.close()
        if not isinstance(value, InputRequired):
            return value
        await rounds.send(rounds.explicit(value))
        rounds.again()
        bound = bind()


def without_questions(returns: Any) -> Any:
    """A return annotation without `InputRequired`, which is not what the client gets in the end."""
    if returns is InputRequired:
        return inspect.Signature.empty
    if get_origin(returns) not in (Union, types.UnionType) or InputRequired not in get_args(returns):
        return returns
    return functools.reduce(operator.or_, [each for each in get_args(returns) if each is not InputRequired])
