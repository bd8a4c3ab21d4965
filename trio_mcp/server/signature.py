"""A function's signature as a contract: JSON Schema out, validated arguments in."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin

import attrs
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined, to_jsonable_python
from typing_extensions import TypedDict

from trio_mcp.server.docstrings import read_docstring

__all__ = ["Signature", "json_schema_of", "read_signature"]

_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class _PlainJsonSchema(GenerateJsonSchema):
    """Without a title on every property that only repeats its name: a model reads, and pays for, each of them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


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
    """

    function: Callable[..., Any]
    is_async: bool
    description: str | None
    input_schema: dict[str, Any]
    returns: Any
    context_parameter: str | None
    _validate: Callable[[Any], dict[str, Any]]
    _factories: dict[str, FieldInfo]
    _positional: tuple[str, ...]

    def bind(self, arguments: dict[str, Any], context: object) -> Callable[[], Any]:
        """Validate arguments and bind them.

        Raises:
            pydantic.ValidationError: They don't fit the signature.
        """
        values = self._validate(arguments)
        for name, field in self._factories.items():
            if name not in values:
                values[name] = field.get_default(call_default_factory=True)
        if self.context_parameter is not None:
            values[self.context_parameter] = context
        leading = [values.pop(name) for name in self._positional if name in values]
        return functools.partial(self.function, *leading, **values)


def read_signature(
    function: Callable[..., Any], context_type: type, what: str, *, open_ended: bool = False
) -> Signature:
    """Turn a function's type hints and docstring into a contract.

    Args:
        function: Any callable: a function, a method, a partial, an object with ``__call__``.
        context_type: A parameter annotated with it is filled by the server and hidden from the schema.
        what: What the function is, for error messages: ``"tool 'add'"``.
        open_ended: Somebody else checks the arguments, so a function may take them as ``**arguments``.

    Raises:
        TypeError: The signature can't be offered; the message says which parameter is to blame, and what to do.
    """
    parameters = _parameters(function, what, open_ended)
    description, described = read_docstring(inspect.getdoc(_innermost(function)))
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    factories: dict[str, FieldInfo] = {}
    context_parameter: str | None = None
    extra: Literal["allow", "forbid"] = "forbid"
    for parameter in parameters:
        name, annotation, default = parameter.name, parameter.annotation, parameter.default
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if _is_context(annotation, context_type):
            if context_parameter is not None:
                raise TypeError(
                    f"{what}: both {context_parameter!r} and {name!r} are a {context_type.__name__}; one is enough"
                )
            context_parameter = name
            continue
        if isinstance(default, FieldInfo):
            annotation, default = Annotated[annotation, _without_default(default)], _default_of(default)
        if name in described and not _has_description(annotation):
            annotation = Annotated[annotation, Field(description=described[name])]
        if default is inspect.Parameter.empty:
            fields[name] = annotation
        else:
            fields[name] = NotRequired[annotation]
            if not isinstance(default, FieldInfo):
                defaults[name] = default
            if isinstance(parameter.default, FieldInfo):
                factories[name] = parameter.default  # else the function itself would see the Field
    make_typed_dict: Any = TypedDict  # its fields are known at run time only
    arguments = make_typed_dict("arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra=extra)
    adapter = _adapter(arguments, what, f"the parameters of {what}")
    schema = json_schema_of(adapter, "validation", what)
    for name, default in defaults.items():
        try:
            schema["properties"][name].setdefault("default", to_jsonable_python(default))
        except ValueError:
            pass  # a default that has no JSON form still works, it just can't be shown
    return Signature(
        function=function,
        is_async=is_async_callable(function),
        description=description,
        input_schema=schema,
        returns=_returns(function, what),
        context_parameter=context_parameter,
        validate=adapter.validator.validate_python,
        factories=factories,
        positional=tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY),
    )


def json_schema_of(adapter: TypeAdapter[Any], mode: Any, what: str) -> dict[str, Any]:
    """The JSON Schema 2020-12 of a type.

    Raises:
        TypeError: It has none.
    """
    try:
        schema = adapter.json_schema(mode=mode, schema_generator=_PlainJsonSchema)
    except PydanticInvalidForJsonSchema as exc:
        raise TypeError(f"{what}: a type has no JSON Schema: {exc.message}") from None
    schema.pop("title", None)
    return schema


def is_async_callable(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    innermost = _innermost(function)
    return inspect.iscoroutinefunction(innermost) or inspect.iscoroutinefunction(getattr(innermost, "__call__", None))  # noqa: B004


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _parameters(function: Callable[..., Any], what: str, open_ended: bool) -> list[inspect.Parameter]:
    innermost = _innermost(function)
    if inspect.isasyncgenfunction(innermost) or inspect.isgeneratorfunction(innermost):
        raise TypeError(f"{what} is a generator; return a value, and report progress through the Context instead")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as exc:
        raise TypeError(f"{what} has no readable signature: {exc}") from None
    hints = _hints(innermost, what)
    found = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in _VARIADIC and not (open_ended and parameter.kind is inspect.Parameter.VAR_KEYWORD):
            stars = _VARIADIC[parameter.kind]
            raise TypeError(
                f"{what}: the parameter {stars}{name} is variadic, which no schema of named arguments can describe; "
                "name each parameter, take one that is a list or a dict, or bring an input_schema and take **arguments"
            )
        found.append(parameter.replace(annotation=hints.get(name, Any)))
    return found


def _hints(function: Callable[..., Any], what: str) -> dict[str, Any]:
    from typing import get_type_hints

    target = function if inspect.isroutine(function) else type(function).__call__
    local = {}
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
    if code is not None and cells:
        for name, cell in zip(code.co_freevars, cells, strict=True):
            try:
                local[name] = cell.cell_contents
            except ValueError:
                pass  # not assigned yet
    try:
        return get_type_hints(target, localns=local, include_extras=True)
    except NameError as exc:
        raise TypeError(
            f"{what}: an annotation can't be resolved: {exc}; types used in annotations must be defined at module level"
        ) from None
    except TypeError as exc:
        raise TypeError(f"{what}: an annotation is no type: {exc}") from None


def _returns(function: Callable[..., Any], what: str) -> Any:
    return _hints(_innermost(function), what).get("return", inspect.Signature.empty)


def _is_context(annotation: Any, context_type: type) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(origin, context_type):
        return True
    return any(
        _is_context(option, context_type) for option in get_args(annotation) if option is not type(None)
    ) and type(None) in get_args(annotation)


def _without_default(field: FieldInfo) -> FieldInfo:
    bare = copy.copy(field)
    bare.default, bare.default_factory = PydanticUndefined, None
    bare._attributes_set = {k: v for k, v in field._attributes_set.items() if k not in ("default", "default_factory")}
    return bare


def _default_of(field: FieldInfo) -> Any:
    """What a ``Field(...)`` in place of a default says of it: none, a value, or the field itself for a factory."""
    if field.default_factory is not None:
        return field
    return inspect.Parameter.empty if field.is_required() else field.default


def _has_description(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and any(
        isinstance(extra, FieldInfo) and extra.description for extra in get_args(annotation)[1:]
    )


def _adapter(kind: Any, what: str, subject: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError) as exc:
        raise TypeError(f"{subject} can't be described: {str(exc).splitlines()[0]}") from None
