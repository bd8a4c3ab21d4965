"""Small conversions at the edge of a session: models to plain data, validation errors to one line."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.types._base import WireModel

__all__ = ["another", "as_object", "as_result", "brief"]

ModelT = TypeVar("ModelT", bound=BaseModel)


def as_object(value: object, what: str) -> dict[str, Any]:
    """A model or a mapping as a plain JSON object.

    Args:
        value: The model or mapping.
        what: What it is, for the error message.

    Raises:
        TypeError: It is neither.
    """
    if type(value) is dict:
        return value
    if isinstance(value, WireModel):
        return value.to_wire()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{what} must be a model or a mapping, got {type(value).__name__}")


def as_result(result: dict[str, Any], model: type[ModelT], method: str) -> ModelT:
    """A result of the peer's as a model.

    Raises:
        RemoteProtocolError: It is none.
    """
    try:
        return model.model_validate(result, by_alias=True, by_name=False)
    except ValidationError as exc:
        raise RemoteProtocolError(f"the answer to {method!r} is no valid {model.__name__}: {brief(exc)}") from None


def another(error: Exception) -> Exception:
    """A copy for one caller: an exception that several tasks raise would collect all their tracebacks."""
    twin = copy.copy(error)
    twin.__cause__ = error.__cause__
    return twin


def brief(exc: ValidationError, most: int = 3) -> str:
    """The first few errors of a validation, each with its place, in one line."""
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, e['loc'])) or 'value'}: {e['msg']}" for e in errors[:most]]
    if len(errors) > most:
        shown.append(f"and {len(errors) - most} more")
    return "; ".join(shown)
