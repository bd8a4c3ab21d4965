"""The settings of a server for functions that ask for input, and the values that these functions return.

The rest of this package is only imported when a function that may ask is registered: most servers have none.
"""

from __future__ import annotations

import functools
import inspect
import operator
import os
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, check_seconds, validator

if TYPE_CHECKING:  # few servers ask, and fewer have a file of keys
    from trio_mcp.server.input.questions import InputRequest
    from trio_mcp.stores.key_ring import KeyRing

__all__ = ["MIN_KEY", "Asked", "InputOptions", "InputRequired", "InputRun", "checked_keys", "without_questions"]

# This is the length of a SHA-256 digest: shorter keys weaken the MAC (RFC 2104, section 3).
MIN_KEY = 32
"""The minimum length of a key, in bytes."""


def checked_keys(keys: bytes | Sequence[bytes] | KeyRing | None) -> tuple[bytes, ...] | KeyRing | None:
    """Return the keys as a tuple; None and a `KeyRing` stay what they are.

    Raises:
        TypeError, ValueError: If a key is invalid.
    """
    if keys is None:
        return None
    if isinstance(keys, (bytes, bytearray, memoryview)):
        # This is a single key; without this test, its bytes would pass as a sequence of keys.
        keys = [bytes(keys)]
    elif isinstance(keys, str) or not isinstance(keys, Sequence):
        from trio_mcp.stores.key_ring import KeyRing

        if isinstance(keys, KeyRing):
            return keys
        raise TypeError(f"key must be bytes, a sequence of bytes or a KeyRing, got {type(keys).__name__}")
    if not keys:
        raise ValueError("key must not be empty; pass None for a random key")
    for key in keys:
        if not isinstance(key, (bytes, bytearray)):
            raise TypeError(f"each key must be bytes, got {type(key).__name__}")
        if len(key) < MIN_KEY:
            raise ValueError(
                f"a key must be at least {MIN_KEY} bytes long, got {len(key)} bytes; use secrets.token_bytes({MIN_KEY})"
            )
    return tuple(bytes(key) for key in keys)


@attrs.frozen(kw_only=True)
class InputOptions:
    """How a server's functions ask for input: the key that signs their state between two requests, and the limits.

    Attributes:
        key: The key that signs the state of a request waiting for input (modern era): 32 or more secret bytes, the same
            in all processes that serve one address. If there are several keys, the first signs, and any of them is
            accepted. A `trio_mcp.stores.KeyRing` reads them from a file. By default each process makes a random key; a
            server whose stores other processes share needs a key to ask for input.
        ttl: How many seconds a client has to come back with the answers.
        max_rounds: How many times one request may ask for input and continue with the answers. A task may ask until its
            journal is full: see `TaskOptions`.
        max_parked: How many functions with ``park_input`` may wait for input at once, across all clients.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    # The repr leaves the key out: someone who reads a server's settings in a log must not be able to forge states.
    key: bytes | Sequence[bytes] | KeyRing | None = attrs.field(default=None, converter=checked_keys, repr=False)
    # These defaults are arbitrary: time for a person to fill in a form, and few enough rounds and tasks for a hostile
    # client to be harmless.
    ttl: float = attrs.field(default=600.0, validator=validator(check_seconds, finite=True))
    max_rounds: int = attrs.field(default=32, validator=validator(check_count))
    max_parked: int = attrs.field(default=100, validator=validator(check_count))

    def check(self) -> None:
        """Read the file of keys, if there is one; a server that starts calls this.

        Raises:
            ValueError: If the file can't be used.
        """
        if self.key is not None and not isinstance(self.key, Sequence):
            self.key.check(time.time())


@attrs.frozen(eq=False)
class InputRun:
    """The state needed to ask clients for input, shared by all requests of one run of a server.

    Attributes:
        options: The options of the server that runs; they also apply to the functions of mounted servers.
        sealer: Returns that server's `StateSealer`, which is made when a function first asks.
        nursery: The nursery of parked functions.
        parked: The rounds of functions that wait for input between requests, by the id in the ``requestState``.
        place: The beginning of these ids, which those of no other run have.
    """

    options: InputOptions
    sealer: Callable[[], Any]  # not typed, because the module of `StateSealer` imports this one
    nursery: trio.Nursery
    parked: dict[str, object] = attrs.Factory(dict)
    # Not `secrets`, which loads half a dozen modules.
    place: str = attrs.field(factory=lambda: os.urandom(8).hex(), init=False)


@attrs.frozen
class Asked:
    """The outcome of a function that has asked the client instead of returning: a result with the questions."""

    result: dict[str, Any]


@attrs.frozen(init=False)
class InputRequired:
    """The return value of a function that needs input and wants to be called again with it: the explicit way to ask.

    In the next call, `Context.input_responses` has the answers by key, and `Context.input_state` the state.

    Args:
        requests: The questions by key, as made by ``ctx.elicit(…)`` and so on, not awaited.
        state: JSON data to get back in the next call. The client can read it, but not change it.

    Raises:
        TypeError, ValueError: If an argument is invalid.
    """

    requests: dict[str, InputRequest[Any]]
    state: Any

    def __init__(self, requests: Mapping[str, InputRequest[Any]], state: Any = None) -> None:
        from trio_mcp.server.input.questions import InputRequest

        if not isinstance(requests, Mapping) or not all(isinstance(key, str) for key in requests):
            raise TypeError(f"requests must be a mapping of keys to questions, got {requests!r}")
        if not requests:
            raise ValueError("requests must contain at least one question")
        for key, request in requests.items():
            if not isinstance(request, InputRequest):
                raise TypeError(f"requests[{key!r}] must be a question such as ctx.elicit(…), got {request!r}")
            # The result asks the question, so the question must not warn that it was never awaited.
            request.take()
        self.__attrs_init__(dict(requests), state)


def without_questions(returns: Any) -> Any:
    """Return a return annotation without `InputRequired`, which is never the final result that clients get."""
    if returns is InputRequired:
        return inspect.Signature.empty
    if get_origin(returns) not in (Union, types.UnionType) or InputRequired not in get_args(returns):
        return returns
    # `|` makes a union of the same kind as the original: a `typing.Union` or a `types.UnionType`.
    return functools.reduce(operator.or_, [each for each in get_args(returns) if each is not InputRequired])
