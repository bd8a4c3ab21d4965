"""The arguments of one call: checked against the schema and the signature, with errors that a model can mend.

A message names the argument and the problem, never the value: it may be a secret, and messages end up in logs.
"""

from __future__ import annotations

import functools
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.server.functions.signature import Bound, Signature

__all__ = ["ArgumentsValidator", "InvalidArguments"]

MAX_PROBLEMS = 3
MAX_NAME = 100
MAX_PROBLEM = 500


class InvalidArguments(Exception):
    """The arguments don't fit; the text says which, and why."""


class ArgumentsValidator:
    """Checks arguments and binds them to a function.

    Args:
        signature: The function's.
        explicit_schema: A JSON Schema that the tool brings along; arguments are checked against both.

    Raises:
        SchemaError: The schema can't be used.
    """

    def __init__(self, signature: Signature, explicit_schema: dict[str, Any] | None) -> None:
        self._bind = signature.bind
        self._explicit = None if explicit_schema is None else SchemaValidator(explicit_schema)
        self._masked = functools.cache(lambda: _masked_validator(explicit_schema))

    def bind(self, arguments: dict[str, Any], context: object) -> Bound:
        """Validate arguments, and bind them and the context to the function.

        Raises:
            InvalidArguments: They don't fit.
        """
        if self._explicit is not None:
            try:
                problem = self._explicit.problem(arguments)
            except SchemaError as exc:
                raise InvalidArguments(str(exc)) from None
            if problem is not None:
                raise InvalidArguments(self._masked_problem(arguments))
        try:
            return self._bind(arguments, context)
        except ValidationError as exc:
            raise InvalidArguments(_brief(exc)) from None

    def _masked_problem(self, arguments: dict[str, Any]) -> str:
        """The first problem, told without the value, of arguments that are known not to conform."""
        import jsonschema_rs

        try:
            self._masked().validate(arguments)
        except jsonschema_rs.ValidationError as exc:
            return _line(tuple(exc.instance_path), exc.message)
        except ValueError:
            pass  # a pattern that takes too long
        return "they do not conform to the input schema"


def _masked_validator(schema: Any) -> Any:
    import jsonschema_rs  # on first use: most calls are fine

    linear, fancy = jsonschema_rs.RegexOptions(), jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
    for options in (linear, fancy):  # look-around is known to the second only
        try:
            return jsonschema_rs.validator_for(
                schema, mask="the value", validate_formats=False, pattern_options=options, retriever=_refuse
            )
        except ValueError as exc:
            problem = exc
    raise problem


def _refuse(uri: str) -> Any:
    raise LookupError(f"references outside the schema are not followed: {uri}")


def _brief(exc: ValidationError) -> str:
    errors = exc.errors(include_url=False, include_context=False, include_input=False)
    lines = [_line(error["loc"], _message(error)) for error in errors[:MAX_PROBLEMS]]
    if len(errors) > MAX_PROBLEMS:
        lines.append(f"and {len(errors) - MAX_PROBLEMS} more")
    return "; ".join(lines)


def _message(error: ErrorDetails) -> str:
    if error["type"] == "missing":
        return "missing"
    if error["type"] == "extra_forbidden":
        return "there is no such argument" if len(error["loc"]) == 1 else "there is no such field"
    return error["msg"]


def _line(place: tuple[str | int, ...], message: str) -> str:
    where = ".".join(map(str, place))[:MAX_NAME]
    return f"{where}: {message[:MAX_PROBLEM]}" if where else message[:MAX_PROBLEM]
