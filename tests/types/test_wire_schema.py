"""What the models say about revisions is what the published schemas say, property by property."""

import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest

import trio_mcp.types
from tests.strategies import constructs
from tests.types.published import SCHEMAS, definitions
from trio_mcp.testing.strategies.messages import flatten
from trio_mcp.types._base import WireModel, field_span
from trio_mcp.types.versions import REVISIONS, at_least

pytestmark = pytest.mark.published

LEGACY_WITHOUT_NAMED_PARAMS = ("2024-11-05", "2025-03-26", "2025-06-18")

# Constructs whose name means something else, or is spelled differently, in some revision
RENAMED = {
    # Until 2025-06-18 a response is a successful one.
    **{(revision, "JSONRPCResponse"): "JSONRPCResultResponse" for revision in LEGACY_WITHOUT_NAMED_PARAMS},
    **{(revision, "JSONRPCError"): "JSONRPCErrorResponse" for revision in LEGACY_WITHOUT_NAMED_PARAMS},
    # The only choice field of 2025-06-18; later the name stands for all of them.
    ("2025-06-18", "EnumSchema"): "LegacyTitledEnumSchema",
    # `trio_mcp.jsonrpc` has the messages of these names.
    **{(revision, name): f"Any{name}" for revision in REVISIONS for name in ("Request", "Notification")},
}

# Models of what the schemas describe in place, without a name
NEVER_NAMED = (
    "ClientTasksCapability ClientTasksRequestsCapability Completion CompletionArgument CompletionContext "
    "ElicitationCapability ElicitationCompleteNotificationParams ElicitationRequiredErrorData EnumOption "
    "HeaderMismatchErrorObject ListRootsRequestParams MissingRequiredClientCapabilityErrorData "
    "MissingRequiredClientCapabilityErrorObject PromptsCapability RequestedSchema ResourcesCapability "
    "RootsCapability SamplingCapability ServerTasksCapability ServerTasksRequestsCapability TaskRequestParams "
    "TasksElicitationCapability TasksSamplingCapability TasksToolsCapability TitledItems ToolsCapability "
    "URLElicitationRequiredErrorObject UnsupportedProtocolVersionErrorData "
    "UnsupportedProtocolVersionErrorObject UntitledItems"
)
# Our base classes: a request or notification with its envelope, and what two of the schema's types share
BASES = "CacheablePage Described EmbeddableRequestMessage NotificationMessage RequestMessage"
# Shapes that got a name when they were used twice, by the revision since which they have it
NAMED_SINCE = {
    "2025-03-26": ("Annotations"),
    "2025-06-18": ("ResourceTemplateReference"),
    "2025-11-25": (
        "CallToolRequestParams CancelledNotificationParams CompleteRequestParams CreateMessageRequestParams "
        "ElicitRequestFormParams Error GetPromptRequestParams InitializeRequestParams JSONRPCErrorResponse "
        "JSONRPCResultResponse LegacyTitledEnumSchema LoggingMessageNotificationParams NotificationParams "
        "PaginatedRequestParams ProgressNotificationParams ReadResourceRequestParams RequestParams "
        "ResourceRequestParams ResourceUpdatedNotificationParams SetLevelRequestParams SubscribeRequestParams "
        "UnsubscribeRequestParams"
    ),
}
UNNAMED: dict[str, str | None] = {
    **dict.fromkeys(f"{NEVER_NAMED} {BASES}".split()),
    **{name: revision for revision, names in NAMED_SINCE.items() for name in names.split()},
}

# Properties that only our models have. Params described in place leave `_meta` to the base definitions Request and
# Notification, which allow it.
ONLY_OURS = ("params._meta",)

# Fields whose model is another than the one the schema refers to
OTHER_MODEL = {
    # 2026-07-28 requires a `_meta` of RequestParams, but not of this request, so its params have a model of their own.
    ("2025-11-25", "ListRootsRequest.params"),
}

# Members of unions that only our side or only theirs has; (revision, union) -> names
UNION_DIFFERENCES: dict[tuple[str, str], set[str]] = {
    # A request that may run as a task is answered with CreateTaskResult, which the unions forget.
    ("2025-11-25", "ClientResult"): {"CreateTaskResult"},
    ("2025-11-25", "ServerResult"): {"CreateTaskResult"},
    # The published union is that of messages. Our ClientResult also has what clients answer inside requests, as the
    # schema's InputResponse.
    ("2026-07-28", "ClientResult"): {"CreateMessageResult", "ElicitResult", "ListRootsResult"},
    # One model serves both directions; the method table knows that modern clients have no progress to report.
    ("2026-07-28", "ClientNotification"): {"ProgressNotification"},
}

# Values of scalar definitions
SCALARS = {
    "Cursor": str,
    "ProgressToken": int | str,
    "RequestId": int | str,
    "ResultType": str,
    "JSONValue": Any,
    "JSONObject": dict[str, Any],
    "JSONArray": list[Any],
    "MetaObject": dict[str, Any],
    "InputRequests": dict,
    "InputResponses": dict,
    "JSONRPCBatchRequest": list,
    "JSONRPCBatchResponse": list,
}


def ours(revision: str, name: str) -> Any:
    return getattr(trio_mcp.types, RENAMED.get((revision, name), name))


def models_in(annotation: Any) -> list[type[WireModel]]:
    """Return the wire models anywhere in an annotation."""
    found = []
    for arm in flatten(annotation):
        if isinstance(arm, type) and not isinstance(arm, types.GenericAlias) and issubclass(arm, WireModel):
            found.append(arm)
        elif typing.get_origin(arm) in (list, dict):
            found.extend(models_in(typing.get_args(arm)[-1]))
    return found


def properties_of(revision: str, schema: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the properties of an object schema and which are required, through ``$ref`` and ``allOf``."""
    if "$ref" in schema:
        schema = definitions(revision)[schema["$ref"].split("/")[-1]]
    properties = dict(schema.get("properties", {}))
    required = set(schema.get("required", ()))
    for part in schema.get("allOf", ()):
        more, needed = properties_of(revision, part)
        properties.update(more)
        required |= needed
    return properties, required


def fields_of(revision: str, model: type[WireModel]) -> dict[str, tuple[str, bool]]:
    """Return wire name -> (field, required) of what the model has in a revision."""
    name_of: Any = model.model_config["alias_generator"]
    spans = {name: field_span(model, name) for name in model.model_fields}
    return {
        name_of(name): (name, revision in span.required) for name, span in spans.items() if revision in span.revisions
    }


def differences(revision: str, schema: dict[str, Any], model: type[WireModel], path: str) -> Iterator[str]:
    """Yield every difference in property names or in what is required, also in objects described in place."""
    properties, required = properties_of(revision, schema)
    fields = fields_of(revision, model)
    for name in sorted(properties.keys() | fields.keys()):
        here = f"{path}.{name}"
        if name not in fields:
            yield f"{here}: only in the schema"
        elif name not in properties:
            if not here.endswith(tuple(f".{known}" for known in ONLY_OURS)):
                yield f"{here}: only in the model"
        else:
            field, needed = fields[name]
            if needed != (name in required):
                yield f"{here}: required in the {'model' if needed else 'schema'} only"
            yield from below(revision, properties[name], model.model_fields[field].annotation, here)


def below(revision: str, schema: dict[str, Any], annotation: Any, path: str) -> Iterator[str]:
    """Yield the differences between a property and the type of a field."""
    if schema.get("type") == "array":
        schema = schema.get("items", {})
    inner = models_in(annotation)
    if "$ref" in schema:
        target = schema["$ref"].split("/")[-1]
        expected = models_in(ours(revision, target))
        missing = [each.__name__ for each in expected if not any(issubclass(one, each) for one in inner)]
        if expected and inner and missing and (revision, path) not in OTHER_MODEL:
            yield f"{path}: refers to {target}, the model has {[one.__name__ for one in inner]}"
    elif inner and ("properties" in schema or "allOf" in schema):
        yield from differences(revision, schema, inner[0], path)


def member_names(revision: str, schema: dict[str, Any]) -> set[str]:
    """Return the names of the constructs that a union has, through other unions."""
    arms = schema.get("anyOf", [schema])
    names = set()
    for arm in arms:
        if "$ref" not in arm:
            continue
        name = arm["$ref"].split("/")[-1]
        target = definitions(revision)[name]
        names |= member_names(revision, target) if "anyOf" in target else {RENAMED.get((revision, name), name)}
    return names


CASES = [(revision, name) for revision in REVISIONS for name in definitions(revision)] if SCHEMAS.is_dir() else []


@pytest.mark.parametrize(("revision", "name"), CASES)
def test_construct_is_what_the_schema_says(revision: str, name: str) -> None:
    """Every definition has a construct with the same properties, requirements, members or values."""
    schema, construct = definitions(revision)[name], ours(revision, name)
    if name in SCALARS:
        expected = SCALARS[name]
        assert (typing.get_origin(construct) if expected in (dict, list) else construct_type(construct)) == expected
    elif "enum" in schema:
        assert set(typing.get_args(construct)) == set(schema["enum"])
    elif typing.get_origin(construct) is Literal:
        pytest.fail(f"{name} is an enumeration here, but not in the schema")
    elif isinstance(construct, type) and issubclass(construct, WireModel):
        assert list(differences(revision, schema, construct, name)) == []
    else:
        known = set(constructs(revision))
        members = {model.__name__ for model in models_in(construct) if model in known}
        expected_members = member_names(revision, schema)
        if "properties" in schema:  # a union of one, written out
            method = schema["properties"]["method"]["const"]
            expected_members = {each.__name__ for each in known if sends(each) == method}
        assert members ^ expected_members == UNION_DIFFERENCES.get((revision, name), set())


def sends(model: type[WireModel]) -> str | None:
    """Return the method of a request or notification."""
    field = model.model_fields.get("method")
    return field.default if field is not None else None


def construct_type(construct: Any) -> Any:
    """Return an alias without its strictness."""
    arms = flatten(construct)
    return arms[0] if len(arms) == 1 else arms[0] | arms[1]


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_model_of_a_revision_is_in_its_schema(revision: str) -> None:
    named = {RENAMED.get((revision, name), name) for name in definitions(revision)}
    strangers = set()
    for model in constructs(revision):
        name = model.__name__
        if name in named or name == "WireModel":
            continue
        since = UNNAMED.get(name, "never unnamed")
        if since == "never unnamed" or (since is not None and at_least(revision, since)):
            strangers.add(name)
    assert strangers == set()
