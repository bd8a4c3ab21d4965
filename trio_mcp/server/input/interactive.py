"""Running a function that may ask: until it returns, or has asked what only another request can answer."""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

from trio_mcp.errors import McpError
from trio_mcp.server.functions.function import Call, single
from trio_mcp.server.input.parked import ParkedRounds
from trio_mcp.server.input.questions import InputRequired, UrlElicitationRequired
from trio_mcp.server.input.request_state import RequestState
from trio_mcp.server.input.rounds import AskingContext, HandshakeRounds, ReplayedRounds, Rounds, earlier_rounds
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["run_interactive", "without_questions"]


async def run_interactive(context: AskingContext, bind: Callable[[], Call], *, park: bool) -> Any:
    """Call the user's function, and see to what it asks.

    Args:
        context: The function's.
        bind: Gives the function with its arguments, anew for each time that it runs.
        park: Whether it waits where it asks, in the modern era, instead of running again.

    Returns:
        What it returned, or `Asked`.
    """
    call = bind()  # refuses bad arguments before anything else
    if not context.rules.input_in_results:
        return await HandshakeRounds(context, bind).serve(call)
    params = context.request.params or {}
    earlier: RequestState | None = None
    responses: dict[str, Any] = {}
    if "requestState" in params or "inputResponses" in params:
        earlier, responses = earlier_rounds(context)
    rounds: Rounds
    if earlier is not None and earlier.parked is not None:
        rounds = parked = _parked(context, earlier.parked)
        serving = parked.resume(context, responses)
    else:
        rounds = (ParkedRounds if park else ReplayedRounds)(context, earlier, responses)
        serving = rounds.serve(call)
    try:
        value = await serving
    except Exception as exc:
        pages = single(exc)
        if not isinstance(pages, UrlElicitationRequired):
            raise
        value = pages
    if isinstance(value, (InputRequired, UrlElicitationRequired)):
        return rounds.asked(rounds.explicit(value))
    return value


def _parked(context: AskingContext, identity: str) -> ParkedRounds:
    """The rounds of the parked function that a request belongs to.

    Raises:
        McpError: It is not there (-32602).
    """
    rounds = context.connection.input.parked.get(identity)
    if not isinstance(rounds, ParkedRounds) or not rounds.waits:
        raise McpError(
            INVALID_PARAMS,
            "nothing waits for this requestState any more: it was used before, its time was up, or it is another "
            "process's; make the request again without it",
        )
    return rounds


def without_questions(returns: Any) -> Any:
    """A return annotation without `InputRequired`, which is not what the client gets in the end."""
    if returns is InputRequired:
        return inspect.Signature.empty
    if get_origin(returns) not in (Union, types.UnionType) or InputRequired not in get_args(returns):
        return returns
    return functools.reduce(operator.or_, [each for each in get_args(returns) if each is not InputRequired])
