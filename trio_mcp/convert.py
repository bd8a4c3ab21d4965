"""Turns models into plain data, results into models and errors into one line, and calls sync and async callbacks."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.types._base import WireModel

__all__ = ["another", "as_json", "as_object", "as_result", "brief", "call_back"]

ModelT = TypeVar("ModelT", bound=BaseModel)
ErrorT = TypeVar("ErrorT", bound=BaseException)


def as_object(value: object, what: str) -> dict[str, Any]:
    """Turn a model or a mapping into a plain JSON object.

    Args:
        value: The model or mapping.
        what: A name for the value, for the error message.

    Raises:
        TypeError: If the value is neither a model nor a mapping.
    """
    # A dict is returned as it is, because this function is part of every call and a copy would cost time. Code that
    # adds something to parameters copies them first.
    if type(value) is dict:
        return value
    if isinstance(value, WireModel):
        return value.to_wire()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{what} must be a model or a mapping, got {type(value).__name__}")


def as_json(value: object, what: str) -> Any:
    """Convert anything that pydantic can serialize into plain JSON data.

    Args:
        value: The value.
        what: A name for the value, for the error message.

    Raises:
        TypeError: If the value can't be written as JSON.
    """
    try:
        return to_jsonable_python(value, by_alias=True)
    except PydanticSerializationError as exc:
        raise TypeError(f"{what} can't be turned into JSON: {exc}") from None


def as_result(result: dict[str, Any], model: type[ModelT], method: str) -> ModelT:
    """Validate a result from the peer, and return it as a model.

    Raises:
        RemoteProtocolError: If the result is not valid.
    """
    try:
        # Only the field names of the protocol are accepted, not the names of the attributes in Python.
        return model.model_validate(result, by_alias=True, by_name=False)
    except ValidationError as exc:
        raise RemoteProtocolError(f"the result of {method!r} is not a valid {model.__name__}: {brief(exc)}") from None


def another(error: ErrorT) -> ErrorT:
    """Copy an exception for one more caller: a single object, raised in several tasks, would collect all tracebacks."""
    # `copy` keeps the attributes but not the cause.
    twin = copy.copy(error)
    twin.__cause__ = error.__cause__
    return twin


def brief(exc: ValidationError, most: int = 3) -> str:
    """Summarize a validation error in one line: its first few errors, each with its location."""
    # The input is left out: it may be a secret or very long, and these texts end up in logs and error responses.
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in errors[:most]]
    if len(errors) > most:
        shown.append(f"and {len(errors) - most} more")
    return "; ".join(shown)


async def call_back(callback: Callable[..., Any], *arguments: object) -> Any:
    """Call a sync or async callback and return its result."""
    outcome = callback(*arguments)
    # The returned value is examined, not the function: a lambda or a partial around an async function does not look
    # like an async function.
    return await outcome if isinstance(outcome, Awaitable) else outcome
