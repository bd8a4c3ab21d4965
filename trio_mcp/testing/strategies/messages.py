"""Provides strategies for messages, and for their parts, as each revision defines them.

`wire_models` builds instances of any wire model: they have only fields of the revision, and always the required ones.
`wire_models` reads a model's fields and their revisions, so a new model needs a rule here only if the protocol
restricts a value more than the type does.
"""

from __future__ import annotations

import functools
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Notification, Request, Response
from trio_mcp.testing.strategies.plain_data import (
    SAFE_INTEGER,
    base64_texts,
    integers,
    json_objects,
    json_schemas,
    json_values,
    numbers,
    request_ids,
    texts,
    uris,
)
from trio_mcp.types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    Era,
    Implementation,
    InputResponseRequestParams,
    ListRootsRequest,
    ListRootsResult,
    MethodSpec,
    NotificationParams,
    PrimitiveSchemaDefinition,
    RequestParams,
    ResourceRequestParams,
    SubscriptionsListenResult,
    at_least,
    era_of,
    meta as meta_keys,
    method_spec,
)
from trio_mcp.types._base import WireModel, class_span, field_span

__all__ = [
    "annotated_values",
    "batches",
    "flatten",
    "messages",
    "meta_objects",
    "notifications",
    "request_meta_objects",
    "requests",
    "results",
    "wire_models",
]

Model = TypeVar("Model", bound=WireModel)


def meta_objects(
    known: dict[str, st.SearchStrategy[Any]] | None = None, optional: dict[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for ``_meta`` objects: foreign keys with any values, and the given reserved keys."""
    label = st.text("abcXYZ", min_size=1, max_size=4)
    # The prefix is optional (`basic#_meta`). A random value of a reserved key would be malformed rather than foreign.
    keys = label | st.builds("{}.{}/{}".format, label, label, label)
    others = st.dictionaries(keys.filter(lambda key: not meta_keys.is_reserved_key(key)), json_values(3), max_size=2)
    return st.builds(operator.or_, others, st.fixed_dictionaries(known or {}, optional=optional or {}))


def _wire(model: type[WireModel], revision: str) -> st.SearchStrategy[dict[str, Any]]:
    return wire_models(model, revision).map(lambda instance: instance.to_wire())


def request_meta_objects(revision: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the ``_meta`` objects of requests; in the modern era they have the required keys."""
    if era_of(revision) is Era.LEGACY:
        return meta_objects(optional={meta_keys.PROGRESS_TOKEN: request_ids()})
    return meta_objects(
        {
            meta_keys.PROTOCOL_VERSION: st.just(revision),
            meta_keys.CLIENT_CAPABILITIES: _wire(ClientCapabilities, revision),
        },
        {meta_keys.PROGRESS_TOKEN: request_ids(), meta_keys.CLIENT_INFO: _wire(Implementation, revision)},
    )


def _meta(model: type[WireModel], revision: str) -> st.SearchStrategy[dict[str, Any]]:
    if issubclass(model, (RequestParams, InputResponseRequestParams, ResourceRequestParams)):
        return request_meta_objects(revision)
    if era_of(revision) is Era.LEGACY:
        return meta_objects()
    server = {meta_keys.SERVER_INFO: _wire(Implementation, revision)}
    if issubclass(model, SubscriptionsListenResult):
        return meta_objects({meta_keys.SUBSCRIPTION_ID: request_ids()}, server)
    if issubclass(model, NotificationParams):
        return meta_objects(optional={meta_keys.SUBSCRIPTION_ID: request_ids()})
    return meta_objects(optional=server) if "result_type" in model.model_fields else meta_objects()


def _one_of(models: Sequence[type[WireModel]], revision: str) -> st.SearchStrategy[WireModel]:
    return st.one_of(*(wire_models(model, revision) for model in models))


def _form_values(revision: str) -> st.SearchStrategy[dict[str, Any]]:
    # The published JSON Schemas allow strings, integers and booleans; only the TypeScript schemas allow fractions.
    value: st.SearchStrategy[Any] = st.booleans() | integers() | texts()
    # Multiple-choice fields came with 2025-11-25, and only they have lists as values.
    if at_least(revision, "2025-11-25"):
        value |= st.lists(texts(), max_size=2)
    return st.dictionaries(texts(), value, max_size=2)


def _form_fields(revision: str) -> st.SearchStrategy[dict[str, Any]]:
    # The annotation includes a plain object, too, for servers that use more of JSON Schema than a form may; it is left
    # out.
    kinds = [kind for kind in flatten(PrimitiveSchemaDefinition) if _is_model(kind)]
    known = [kind for kind in kinds if revision in class_span(kind)]
    return st.dictionaries(texts(), _one_of(known, revision), max_size=2)


def _parameters(_: str) -> st.SearchStrategy[Any]:
    # A random `_meta` would be invalid, so it is left out.
    return json_objects().map(lambda params: {key: value for key, value in params.items() if key != "_meta"})


# The table maps names of fields to strategies for their values, for fields that the protocol restricts beyond their
# types. A name begins with the class that declares the field; "*" means any class.
_RULES: dict[str, Callable[[str], st.SearchStrategy[Any]]] = {
    (
        "ElicitRequestURLParams.url Icon.src Implementation.website_url Resource.uri ResourceContents.uri "
        "ResourceRequestParams.uri ReadResourceRequestParams.uri ResourceTemplateReference.uri "
        "ResourceUpdatedNotificationParams.uri"
    ): lambda _: uris(),
    (
        "JSONRPCNotification.params JSONRPCRequest.params EmbeddableRequestMessage.params Notification.params "
        "NotificationMessage.params Request.params RequestMessage.params"
    ): _parameters,
    (
        "Annotations.priority ModelPreferences.cost_priority ModelPreferences.intelligence_priority "
        "ModelPreferences.speed_priority"
    ): lambda _: numbers(0, 1),
    "AudioContent.data BlobResourceContents.blob ImageContent.data": lambda _: base64_texts(),
    "Tool.input_schema Tool.output_schema": lambda _: json_schemas(),
    # Structured content is an object before 2026-07-28, and any JSON value since then; the library's model accepts
    # both.
    "CallToolResult.structured_content ToolResultContent.structured_content": lambda revision: (
        json_values() if at_least(revision, "2026-07-28") else json_objects()
    ),
    "Completion.values": lambda _: st.lists(texts(), max_size=3),
    "ElicitResult.content": _form_values,
    # There is at least one input request, because an empty object requests nothing (2026-07-28 basic/patterns/mrtr).
    "InputRequiredResult.input_requests": lambda revision: st.dictionaries(
        texts(),
        _one_of((CreateMessageRequest, ListRootsRequest, ElicitRequest), revision),
        min_size=1,
        max_size=2,
    ),
    # The field's type is a string, because extensions add values. Which of the core's two values it has depends on the
    # class.
    "InputRequiredResult.result_type": lambda _: st.just("input_required"),
    # The field's type allows any object, but the protocol allows only these results (2026-07-28 basic/patterns/mrtr).
    "InputResponseRequestParams.input_responses": lambda revision: st.dictionaries(
        texts(), _one_of((CreateMessageResult, ListRootsResult, ElicitResult), revision), max_size=2
    ),
    "RequestedSchema.properties": _form_fields,
    "ResourceTemplate.uri_template": lambda _: uris().map("{}/{{id}}".format),
    "Root.uri": lambda _: st.sampled_from(["file:///", "file:///home/user/a%20b", "file:///C:/Projects"]),
    "*.result_type": lambda _: st.just("complete"),
    # The specification's text forbids a negative time to live, but its type does not (2026-07-28
    # server/utilities/caching).
    "*.ttl_ms": lambda _: st.integers(0, SAFE_INTEGER),
}
_FIELD_RULES = {field: rule for fields, rule in _RULES.items() for field in fields.split()}

# Optional fields of which a model must have at least one.
_ANCHORS: dict[str, tuple[str, ...]] = {
    "InputRequiredResult": ("input_requests", "request_state"),  # 2026-07-28 basic/patterns/mrtr
}


def flatten(annotation: Any) -> list[Any]:
    """Return the members of a union, or the annotation itself, without ``Annotated``."""
    if typing.get_origin(annotation) is typing.Annotated:
        return flatten(typing.get_args(annotation)[0])
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return [part for arm in typing.get_args(annotation) for part in flatten(arm)]
    return [annotation]


def annotated_values(
    annotation: Any, models: Callable[[type[BaseModel]], st.SearchStrategy[Any] | None]
) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a type annotation allows.

    Args:
        annotation: The annotation; it may consist of models, literals, lists, dicts, unions, JSON scalars and Any.
        models: Returns the strategy for a model, or None to leave the model out.
    """
    arms = [models(arm) if _is_model(arm) else _plain_values(arm, models) for arm in flatten(annotation)]
    return st.one_of(*(arm for arm in arms if arm is not None))


def _is_model(annotation: Any) -> bool:
    plain = isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias)
    return plain and issubclass(annotation, BaseModel)


_SCALARS: dict[Any, Callable[[], st.SearchStrategy[Any]]] = {
    str: texts,
    int: integers,
    float: lambda: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans,
    type(None): st.none,
    Any: json_values,
}


def _plain_values(annotation: Any, models: Callable[[type[BaseModel]], Any]) -> st.SearchStrategy[Any]:
    if annotation in _SCALARS:
        return _SCALARS[annotation]()
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is list:
        return st.lists(annotated_values(args[0], models), max_size=2)
    if origin is dict:
        return st.dictionaries(texts(), annotated_values(args[1], models), max_size=2)
    if isinstance(annotation, TypeAliasType):  # the official SDK's name for any JSON value
        return json_values()
    # If a field were silently never drawn, the round-trip tests would miss its faults.
    raise TypeError(f"there is no strategy for values of {annotation!r}")


def _field_values(model: type[WireModel], name: str, revision: str, extras: bool) -> st.SearchStrategy[Any]:
    if name == "meta":
        return _meta(model, revision)
    annotation = model.model_fields[name].annotation
    # A subclass may override the rule of an inherited field, or narrow the field's type, so that the rule no longer
    # applies.
    for owner in model.__mro__:
        rule = _FIELD_RULES.get(f"{owner.__name__}.{name}")
        if rule is not None and issubclass(owner, WireModel) and owner.model_fields[name].annotation == annotation:
            return rule(revision)
    if (rule := _FIELD_RULES.get(f"*.{name}")) is not None:
        return rule(revision)

    def nested(member: type[BaseModel]) -> st.SearchStrategy[Any] | None:
        # Some members of a union came later, such as audio in content. Earlier revisions leave them out.
        known = issubclass(member, WireModel) and revision in class_span(member)
        return wire_models(member, revision, extras=extras) if known else None

    arms = flatten(annotation)
    if not model.model_fields[name].is_required():
        arms = [arm for arm in arms if arm is not type(None)]  # the wire form omits a field that is None
    if name == "content" and not at_least(revision, "2025-11-25") and len(arms) > 1:
        arms = [arm for arm in arms if typing.get_origin(arm) is not list]  # a list of blocks came with 2025-11-25
    return annotated_values(functools.reduce(operator.or_, arms), nested)


@functools.cache
def wire_models(model: type[Model], revision: str, *, extras: bool = False) -> st.SearchStrategy[Model]:
    """Return a strategy for instances of a model, as a revision defines it.

    Args:
        model: A wire model of the revision.
        revision: The revision, which determines the fields that exist, and those that are required.
        extras: Whether to add fields that no revision defines, some of them null, also in nested models.
    """
    return _instances(model, revision, extras)


@st.composite
def _instances(draw: st.DrawFn, model: type[Model], revision: str, extras: bool) -> Model:
    # A composite strategy is printed as its call rather than as the tree of all the strategies that it draws from.
    return model(**draw(_fields(model, revision, extras)))


@functools.cache
def _fields(model: type[WireModel], revision: str, extras: bool) -> st.SearchStrategy[dict[str, Any]]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name in model.model_fields:
        span = field_span(model, name)
        if revision in span.revisions:
            group = required if revision in span.required else optional
            group[name] = _field_values(model, name, revision, extras)
    anchors = _ANCHORS.get(model.__name__, ())
    variants = [
        st.fixed_dictionaries(
            required | {anchor: optional[anchor]}, optional={key: optional[key] for key in optional if key != anchor}
        )
        for anchor in anchors
    ]
    fields = st.one_of(*variants) if variants else st.fixed_dictionaries(required, optional=optional)
    if extras:
        keys = st.sampled_from(["xUnknown", "x-unknown", "example.com/x"])
        fields = st.builds(operator.or_, fields, st.dictionaries(keys, json_values(3), max_size=2))
    return fields


# --- whole messages --------------------------------------------------------------------------------------------------


def requests(method: str, revision: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for requests as they go over the wire.

    Args:
        method: A method that one side may send in the revision.
        revision: The revision.

    Raises:
        ValueError: If the revision has no such request.
    """
    spec = _spec(method, revision, "request")
    if spec.embedded:
        raise ValueError(f"{method} is not a request in {revision}: it occurs only within a result")
    return _enveloped(_wire(spec.message, revision), {"id": request_ids()})


def notifications(method: str, revision: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for notifications as they go over the wire.

    Args:
        method: A method that one side may send in the revision.
        revision: The revision.

    Raises:
        ValueError: If the revision has no such notification.
    """
    return _enveloped(_wire(_spec(method, revision, "notification").message, revision), {})


def results(method: str, revision: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for results, each of them the ``result`` of a response.

    Args:
        method: The method of the request.
        revision: The revision.

    Raises:
        ValueError: If the revision has no such request.
    """
    # A call may return a task in 2025-11-25, and ask for input since 2026-07-28.
    return st.one_of(*(_wire(model, revision) for model in _spec(method, revision, "request").results))


def _spec(method: str, revision: str, kind: str) -> MethodSpec:
    spec = method_spec(revision, method)
    if spec is None:
        raise ValueError(f"revision {revision} has no method {method}")
    if spec.is_request != (kind == "request"):
        raise ValueError(f"{method} is not a {kind} in {revision}")
    return spec


def _enveloped(
    message: st.SearchStrategy[dict[str, Any]], members: dict[str, st.SearchStrategy[Any]]
) -> st.SearchStrategy[dict[str, Any]]:
    """Add ``members`` and ``jsonrpc`` to a strategy's messages, because the models of some revisions lack them."""
    return st.builds(operator.or_, message, st.fixed_dictionaries({"jsonrpc": st.just("2.0"), **members}))


def messages() -> st.SearchStrategy[Any]:
    """Return a strategy for any single message."""
    params = st.none() | json_objects()
    errors = st.builds(ErrorData, st.integers(-(2**31), 2**31), texts(), st.none() | json_values())
    return st.one_of(
        st.builds(Request, request_ids(), texts(), params),
        st.builds(Notification, texts(), params),
        st.builds(Response, request_ids(), json_objects()),
        # An error that responds to an unreadable message has no id.
        st.builds(ErrorResponse, st.none() | request_ids(), errors),
    )


def batches() -> st.SearchStrategy[Batch]:
    """Return a strategy for any batch of messages."""
    return st.lists(messages(), min_size=1, max_size=4).map(lambda items: Batch(tuple(items)))
