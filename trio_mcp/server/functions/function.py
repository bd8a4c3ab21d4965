"""Reads the contract of a user's function from type hints and docstring, and validates arguments for its calls.

Error messages name the argument and the problem, never the value: it may be a secret, and messages end up in logs.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp.server.functions.introspection import (
    bare,
    bound_by_partials,
    is_async,
    is_context,
    is_generator,
    read_docstring,
    resolved_hints,
)
from trio_mcp.server.functions.parameters import Parameter, contract_of, parameter_of
from trio_mcp.server.functions.schemas import ArgumentsSchema, problem_line, read_texts, text_types
from trio_mcp.server.functions.surroundings import Depends, Surroundings, marker_in
from trio_mcp.server.functions.sync_threads import DialectName

if TYPE_CHECKING:  # loaded at run time with the first function that has dependencies, or a dialect
    from trio_mcp.schema.model_schema import ModelSchema
    from trio_mcp.server.functions.dependencies import Dependencies

__all__ = ["Call", "Function", "InvalidArguments", "read_function", "read_handler", "single"]

_EMPTY = inspect.Parameter.empty
_CONTEXTS = ("ctx", "context")
"""The usual names of a parameter for the context."""
_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

# The number is arbitrary: a few problems are enough for a model to correct its call, and fit into its context.
MAX_PROBLEMS = 3
"""The maximum number of problems with arguments that one message lists."""
MAX_LOSSES = 20
"""The maximum number of losses of a schema that one warning lists. An arbitrary choice."""

Call: TypeAlias = Callable[[], Awaitable[Any]]
"""A function with its arguments bound. Calling it runs the function, in the event loop or in a thread."""


class InvalidArguments(Exception):
    """The arguments of a call don't fit the function; the text says which ones, and why.

    Attributes:
        names: The names of the refused arguments; those of all arguments if a hand-written schema refused them.
    """

    def __init__(self, text: str, names: frozenset[str] = frozenset()) -> None:
        super().__init__(text)
        self.names = names


@attrs.frozen(eq=False)
class Function:
    """A user's function behind an entry such as a tool, with a contract for its named arguments.

    Attributes:
        description: The text of the docstring.
        input_schema: The JSON Schema of the arguments.
        returns: The return annotation; `inspect.Signature.empty` without one.
        may_ask: Whether the function can ask for input: it has a context, or a dependency that may have one.
        park_input: Whether the function keeps waiting where it asks for input, instead of running again (modern era).
    """

    description: str | None
    input_schema: dict[str, Any]
    returns: Any
    may_ask: bool
    park_input: bool
    _call: Callable[..., Awaitable[Any]]
    _schema: ArgumentsSchema | None
    _context_parameter: str | None
    _dependencies: Dependencies | None
    _validate: Callable[[Any], dict[str, Any]]
    _validate_json: Callable[[bytes], dict[str, Any]]
    _as_json: bool
    _text_types: Mapping[str, frozenset[str]]
    _model_schema: ModelSchema | None

    def bind(self, arguments: dict[str, Any], context: object) -> Call:
        """Validate arguments, fill in defaults, and bind them and the context, without calling the function.

        Raises:
            InvalidArguments: If the arguments don't fit the contract.
        """
        if self._model_schema is not None:
            arguments = self._model_schema.from_model(arguments)
        try:
            if self._schema is not None:
                self._check(self._schema, arguments)
            values = self._validate_json(to_json(arguments)) if self._as_json else self._validate(arguments)
        except (ValidationError, InvalidArguments):
            values = self._validated_again(arguments)
        if self._context_parameter is not None:
            values[self._context_parameter] = context
        if self._dependencies is not None:
            return functools.partial(self._dependencies.call, context, self._call, **values)
        return functools.partial(self._call, **values)

    def _check(self, schema: ArgumentsSchema, arguments: dict[str, Any]) -> None:
        # The hand-written schema is checked before the signature: clients have seen the schema, so a problem is best
        # described in its terms.
        if (problem := schema.problem(arguments)) is not None:
            raise InvalidArguments(problem, frozenset(arguments))

    def _validated_again(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Validate refused arguments again, in every way that may still make them fit."""
        try:
            return self._validated(arguments)
        except InvalidArguments as exc:
            # Some models and hosts send a list as the string "[1, 2]", so refused strings are also read as JSON.
            read = read_texts(arguments, exc.names, self._text_types)
            if not read:
                raise
        return self._validated({**arguments, **read})

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._schema is not None:
            self._check(self._schema, arguments)
        # In pydantic's strict mode, a type's JSON form, such as a date in a string, is accepted from JSON text only.
        # JSON text is tried second, as almost all arguments fit as Python data and need not be encoded again.
        try:
            if not self._as_json:
                return self._validate(arguments)
        except ValidationError as exc:
            refused = exc
        try:
            return self._validate_json(to_json(arguments))
        except ValidationError as exc:
            refused = exc
        except ValueError:  # an argument has no JSON form, as with a lone surrogate
            if self._as_json:
                raise
        errors = refused.errors(include_url=False, include_context=False, include_input=False)
        lines = [problem_line(error["loc"], _message(error)) for error in errors[:MAX_PROBLEMS]]
        if len(errors) > MAX_PROBLEMS:
            lines.append(f"and {len(errors) - MAX_PROBLEMS} more")
        names = frozenset(str(error["loc"][0]) for error in errors if error["loc"])
        raise InvalidArguments("; ".join(lines), names) from None


def _message(error: ErrorDetails) -> str:
    # pydantic's messages for these two errors mention fields and inputs, which mean nothing to a model that calls a
    # tool.
    if error["type"] == "missing":
        return "missing"
    if error["type"] == "extra_forbidden":
        return "there is no such argument" if len(error["loc"]) == 1 else "there is no such field"
    return error["msg"]


def single(exc: Exception) -> Exception:
    """Unwrap an exception that is alone in its group, at any depth: functions that use a nursery raise such groups."""
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _awaitable(
    function: Callable[..., Any], awaited: bool, surroundings: Surroundings
) -> Callable[..., Awaitable[Any]]:
    """Return an async function that runs a function: an async one in the caller's task, any other in a thread."""
    return function if awaited else functools.partial(surroundings.threads.call, function)


def _by_name(function: Callable[..., Any], positional: list[str]) -> Callable[..., Any]:
    """Wrap a function with positional-only parameters, so that all parameters can be passed by name."""

    def call(**values: Any) -> Any:
        leading = [values.pop(name) for name in positional]
        return function(*leading, **values)

    return call


def read_handler(
    function: Callable[..., Any], surroundings: Surroundings, what: str
) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return an async function that calls a handler with ``(params, ctx)``, and fills in its dependencies, if any.

    Raises:
        TypeError: If the handler does not accept these arguments.
    """
    known = {surroundings.context_type.__name__: surroundings.context_type, "Depends": Depends}
    hints = resolved_hints(function, what, known)
    signature = inspect.signature(function)
    markers: dict[str, Depends] = {}
    # Only the dependencies are read from the hints. The first two parameters may have any names.
    for name, parameter in signature.parameters.items():
        marker = marker_in(hints.get(name, parameter.annotation), parameter.default, f"{what}: the parameter {name!r}")
        if marker is not None:
            markers[name] = marker
    try:
        # The arguments are bound on trial instead of being checked with rules of our own: Python knows best about
        # defaults, `*args` and keyword-only parameters.
        signature.bind(None, None, **dict.fromkeys(markers))
    except TypeError as exc:
        raise TypeError(f"{what}: its function must accept (params, ctx), and dependencies by name: {exc}") from None
    dependencies = _dependencies(markers, is_async(function), surroundings, what)
    if dependencies is None:
        return _awaitable(function, is_async(function), surroundings)
    return lambda params, context: dependencies.call(context, function, params, context)


def read_function(
    function: Callable[..., Any],
    surroundings: Surroundings,
    what: str,
    *,
    input_schema: dict[str, Any] | None = None,
    park_input: bool = False,
    read_texts: bool = False,
    dialect: DialectName | None = None,
) -> Function:
    """Turn a function's type hints and docstring into a contract.

    Args:
        function: Any callable: a function, a method, a partial, an object with ``__call__``.
        surroundings: The context type, threads and overrides to call it with.
        what: The function's role, for error messages: ``"tool 'add'"``.
        input_schema: A schema to validate arguments against as well; with one, the function may take ``**arguments``.
        park_input: See `Function`.
        read_texts: Whether a refused string is read as JSON if the parameter's type allows no strings.
        dialect: The dialect to say the schema in; None leaves it as it is.

    Raises:
        TypeError: If the signature can't be described; the message names the parameter, and says what to do.
        SchemaError: If the schema is invalid.
    """
    # Without these checks, two mistakes would cause errors that are hard to understand: a class has a signature, and
    # calling a generator function returns without running anything.
    if isinstance(function, type):
        raise TypeError(f"{what} is a class; pass a function that makes an instance, or a callable instance")
    if is_generator(function):
        raise TypeError(f"{what} is a generator; return a value, and report progress through the Context instead")
    context_type = surroundings.context_type
    hints = resolved_hints(function, what, {context_type.__name__: context_type, "Depends": Depends})
    description, described = read_docstring(_docstring(function))
    parameters: dict[str, Parameter] = {}
    positional: list[str] = []
    markers: dict[str, Depends] = {}
    contexts: list[str] = []
    extra: Literal["allow", "forbid"] = "forbid"
    for parameter in _parameters(function, what, input_schema is not None):
        name = parameter.name
        # The hints are those of the undecorated function. A parameter that only a decorator's __signature__ has is not
        # among them, and if its annotation is a string, it can't be resolved.
        annotation = hints.get(name, Any if isinstance(parameter.annotation, str) else parameter.annotation)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # allowed only with an input_schema
            extra = "allow"
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(name)
        marker = marker_in(annotation, parameter.default, f"{what}: the parameter {name!r}")
        if marker is not None:
            markers[name] = marker
        elif is_context(annotation, context_type):
            contexts.append(name)
        else:
            hint = Any if annotation is _EMPTY else annotation
            parameters[name] = parameter_of(hint, parameter.default, described.get(name))
    if len(contexts) > 1:
        raise TypeError(
            f"{what}: {contexts[0]!r} and {contexts[1]!r} are both annotated with {context_type.__name__}; "
            "keep only one of them"
        )
    for name in _CONTEXTS if not contexts else ():
        # Without this error, a parameter for the context would become an argument that clients are asked for.
        if name in parameters and hints.get(name, _EMPTY) is _EMPTY:
            raise TypeError(
                f"{what}: the parameter {name!r} has no type hint: write `{name}: {context_type.__name__}` for the"
                " context of the request, or the type of the argument"
            )
    contract = contract_of(parameters, extra, surroundings.options, what)
    schema = contract.schema if input_schema is None else input_schema
    model_schema = None if dialect is None else _said_in(dialect, schema, what)
    awaited, may_ask = is_async(function), bool(contexts or markers)
    if park_input and not may_ask:
        raise TypeError(f"{what} has park_input=True, but can't ask for input: add a parameter annotated with Context")
    if positional:
        function = _by_name(function, positional)
    return Function(
        description=description,
        input_schema=schema if model_schema is None else model_schema.schema,
        returns=_awaited(hints.get("return", inspect.Signature.empty)),
        may_ask=may_ask,
        park_input=park_input,
        # A function with dependencies is not wrapped: `Dependencies` decides where to run it and its sync providers.
        call=function if markers else _awaitable(function, awaited, surroundings),
        schema=None if input_schema is None else ArgumentsSchema(input_schema),
        context_parameter=contexts[0] if contexts else None,
        dependencies=_dependencies(markers, awaited, surroundings, what),
        validate=contract.validate,
        validate_json=contract.validate_json,
        as_json=contract.as_json,
        text_types=text_types(schema) if read_texts else {},
        model_schema=model_schema,
    )


def _said_in(dialect: DialectName, schema: dict[str, Any], what: str) -> ModelSchema:
    """Return a schema in a dialect, after a warning about what it loses."""
    from trio_mcp.schema.model_schema import ModelSchema  # deferred: few servers have a dialect

    made = ModelSchema(schema, dialect)
    if made.losses:
        lost = "; ".join(map(str, made.losses[:MAX_LOSSES]))
        more = f"; and {len(made.losses) - MAX_LOSSES} more" if len(made.losses) > MAX_LOSSES else ""
        logger.warning("%s: the dialect %r can't say all of its input schema: %s%s", what, dialect, lost, more)
    return made


def _dependencies(
    markers: Mapping[str, Depends], awaited: bool, surroundings: Surroundings, what: str
) -> Dependencies | None:
    """Return the dependencies of a function, if any; see `read_dependencies`."""
    if not markers:
        return None
    from trio_mcp.server.functions.dependencies import read_dependencies

    return read_dependencies(markers, awaited, surroundings, what)


def _docstring(function: Callable[..., Any]) -> str | None:
    function = bare(function)
    if inspect.isroutine(function):
        return inspect.getdoc(function)
    # This is an object with `__call__`: `getdoc` alone would find the docstring of its class, or that of
    # object.__call__.
    call = type(function).__call__
    return (call.__doc__ if inspect.isfunction(call) else None) or inspect.getdoc(function)


def _parameters(function: Callable[..., Any], what: str, open_ended: bool) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise TypeError(f"{what} has no readable signature: {exc}") from None
    bound = bound_by_partials(function)
    found: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in bound:  # a caller must not set parameters that functools.partial has bound
            continue
        if parameter.kind in _VARIADIC and not (open_ended and parameter.kind is inspect.Parameter.VAR_KEYWORD):
            raise TypeError(
                f"{what}: the parameter {_VARIADIC[parameter.kind]}{name} is variadic, which no schema of named "
                "arguments can describe; name each parameter, take a list or a dict, or pass an input_schema and take "
                "**arguments"
            )
        # Without this error, `self` would become an argument that clients are asked for.
        if name == "self" and not found and parameter.annotation is _EMPTY and _is_in_class(function):
            raise TypeError(f"{what} is an unbound method; register the bound method: instance.method")
        found.append(parameter)
    return found


def _is_in_class(function: Callable[..., Any]) -> bool:
    # The qualified name decides, because the class itself does not exist yet while its body is being executed.
    where = getattr(function, "__qualname__", "").rpartition(".")[0]
    return inspect.isfunction(function) and bool(where) and not where.endswith("<locals>")


def _awaited(returns: Any) -> Any:
    """Return the return type; for a sync function that returns an awaitable, return the type of the awaited value."""
    if get_origin(returns) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return get_args(returns)[-1]
    return returns
