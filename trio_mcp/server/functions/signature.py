"""A function's signature as a contract: JSON Schema out, validated arguments in."""

from __future__ import annotations

import collections.abc
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, TypeAlias, get_args, get_origin

import attrs
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from typing_extensions import TypedDict

from trio_mcp.server.functions.dependencies import Dependencies, Dependent, read_dependencies
from trio_mcp.server.functions.docstrings import read_docstring
from trio_mcp.server.functions.hints import bare, bound_by_partials, is_async, is_context, is_generator, resolved_hints
from trio_mcp.server.functions.providers import Depends, marker_in
from trio_mcp.server.functions.schemas import adapter_for, json_schema_of

__all__ = ["Bound", "Signature", "read_signature"]

_EMPTY = inspect.Parameter.empty
_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

Bound: TypeAlias = Callable[[], Any] | Dependent
"""A function with its arguments, for `handling.run`."""


@attrs.frozen
class Signature:
    """What a function takes and gives.

    Attributes:
        function: The function.
        is_async: It must be awaited.
        description: The text of its docstring.
        input_schema: The JSON Schema of its arguments.
        returns: Its return annotation; `inspect.Signature.empty` if it has none.
        context_parameter: The parameter that gets the `Context`.
        dependencies: What fills its parameters with a provider; None if it has none.
        park_input: Where it asks for input it stays, instead of running again (modern era).
        may_ask: There is something in its parameters that can ask for input.
    """

    function: Callable[..., Any]
    is_async: bool
    description: str | None
    input_schema: dict[str, Any]
    returns: Any
    context_parameter: str | None
    dependencies: Dependencies | None
    _validate: Callable[[Any], dict[str, Any]]
    _validate_json: Callable[[bytes], dict[str, Any]]
    _as_json: bool
    _positional: tuple[str, ...]
    park_input: bool = False
    may_ask: bool = attrs.field(init=False)

    @may_ask.default
    def _has_somebody_to_ask(self) -> bool:
        return self.context_parameter is not None or self.dependencies is not None

    def bind(self, arguments: dict[str, Any], context: object) -> Bound:
        """Validate arguments, fill in the defaults, and bind them. No provider is called yet.

        Raises:
            pydantic.ValidationError: They don't fit the signature.
        """
        values = self._validated(arguments)
        if self.context_parameter is not None:
            values[self.context_parameter] = context
        if self.dependencies is not None:
            return self.dependencies.bind(lambda provided: self._ready({**values, **provided}), context)
        return self._ready(values)

    def _ready(self, values: dict[str, Any]) -> Callable[[], Any]:
        if not self._positional:
            return functools.partial(self.function, **values)
        leading = [values.pop(name) for name in self._positional]
        return functools.partial(self.function, *leading, **values)

    def _validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._as_json:
            return self._validate_json(to_json(arguments))
        try:
            return self._validate(arguments)
        except ValidationError:
            try:
                text = to_json(arguments)
            except ValueError:
                text = None  # a lone surrogate, for example
            if text is None:
                raise
        # Once more: a strict type takes its JSON form, such as a date in a string, from JSON text only.
        return self._validate_json(text)


def read_signature(
    function: Callable[..., Any],
    context_type: type,
    what: str,
    *,
    open_ended: bool = False,
    park_input: bool = False,
) -> Signature:
    """Turn a function's type hints and docstring into a contract.

    Args:
        function: Any callable: a function, a method, a partial, an object with ``__call__``.
        context_type: A parameter annotated with it is filled by the server and hidden from the schema, as is one
            that is marked with `Depends`.
        what: What the function is, for error messages: ``"tool 'add'"``.
        open_ended: Somebody else checks the arguments, so a function may take them as ``**arguments``.
        park_input: See `Signature`.

    Raises:
        TypeError: The signature can't be offered; the message says which parameter is to blame, and what to do.
    """
    if isinstance(function, type):
        raise TypeError(f"{what} is a class; pass a function that makes an instance, or an instance to be called")
    if is_generator(function):
        raise TypeError(f"{what} is a generator; return a value, and report progress through the Context instead")
    hints = resolved_hints(function, what, {context_type.__name__: context_type, "Depends": Depends})
    description, described = read_docstring(_docstring(function))
    fields: dict[str, Any] = {}
    positional: list[str] = []
    markers: dict[str, Depends] = {}
    context_parameter: str | None = None
    extra: Literal["allow", "forbid"] = "forbid"
    for parameter in _parameters(function, what, open_ended):
        name = parameter.name
        annotation = hints.get(name, Any if isinstance(parameter.annotation, str) else parameter.annotation)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(name)
        marker = marker_in(annotation, parameter.default, f"{what}: the parameter {name!r}")
        if marker is not None:
            markers[name] = marker
        elif is_context(annotation, context_type):
            if context_parameter is not None:
                raise TypeError(
                    f"{what}: both {context_parameter!r} and {name!r} are a {context_type.__name__}; one is enough"
                )
            context_parameter = name
        else:
            fields[name] = _field(Any if annotation is _EMPTY else annotation, parameter.default, described.get(name))
    adapter, schema, as_json = _contract(fields, extra, what)
    signature = Signature(
        function=function,
        is_async=is_async(function),
        description=description,
        input_schema=schema,
        returns=_awaited(hints.get("return", inspect.Signature.empty)),
        context_parameter=context_parameter,
        dependencies=read_dependencies(markers, is_async(function), context_type, what) if markers else None,
        validate=adapter.validator.validate_python,
        validate_json=adapter.validator.validate_json,
        as_json=as_json,
        positional=tuple(positional),
        park_input=park_input,
    )
    if park_input and not signature.may_ask:
        raise TypeError(f"{what} has park_input, but nothing to ask with: give it a parameter annotated as Context")
    return signature


def _docstring(function: Callable[..., Any]) -> str | None:
    function = bare(function)
    if inspect.isroutine(function):
        return inspect.getdoc(function)
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
        if name in bound:
            continue
        if parameter.kind in _VARIADIC and not (open_ended and parameter.kind is inspect.Parameter.VAR_KEYWORD):
            stars = _VARIADIC[parameter.kind]
            raise TypeError(
                f"{what}: the parameter {stars}{name} is variadic, which no schema of named arguments can describe; "
                "name each parameter, take one that is a list or a dict, or bring an input_schema and take **arguments"
            )
        if name == "self" and not found and parameter.annotation is _EMPTY and _is_in_class(function):
            raise TypeError(f"{what} is a method without its object; register the bound method: instance.method")
        found.append(parameter)
    return found


def _is_in_class(function: Callable[..., Any]) -> bool:
    where = getattr(function, "__qualname__", "").rpartition(".")[0]
    return inspect.isfunction(function) and bool(where) and not where.endswith("<locals>")


def _field(annotation: Any, default: Any, description: str | None) -> Any:
    """One parameter as a field: with its description and default, where the annotation does not bring them."""
    if get_origin(annotation) is collections.abc.Iterable:
        annotation = list[get_args(annotation)]  # type: ignore[misc]  # pydantic would check it only during the call
    field = default if isinstance(default, FieldInfo) else None
    if description and not (field and field.description) and not _has_description(annotation):
        annotation = Annotated[annotation, Field(description=description)]
    if field is not None:
        return Annotated[annotation, field]
    if default is _EMPTY:
        return annotation
    if default is None:
        annotation = Optional[annotation]  # noqa: UP045  # `x: int = None` means it, and a model will send the null
    return Annotated[annotation, Field(default=default)]


def _has_description(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and any(
        isinstance(extra, FieldInfo) and extra.description for extra in get_args(annotation)[1:]
    )


def _contract(
    fields: dict[str, Any], extra: Literal["allow", "forbid"], what: str
) -> tuple[TypeAdapter[Any], dict[str, Any], bool]:
    make_typed_dict: Any = TypedDict  # its fields are known at run time only
    arguments = make_typed_dict("arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra=extra)
    try:
        adapter = adapter_for(arguments, f"{what}: a parameter")
        schema, generator = json_schema_of(adapter, "validation", f"{what}: a parameter")
    except TypeError:
        for name, annotation in fields.items():
            subject = f"{what}: the parameter {name!r}"
            json_schema_of(adapter_for(annotation, subject), "validation", subject)
        raise
    return adapter, schema, generator.bytes_in_json


def _awaited(returns: Any) -> Any:
    """What is there after awaiting, for a sync function that returns something to await."""
    if get_origin(returns) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return get_args(returns)[-1]
    return returns
