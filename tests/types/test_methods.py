"""The revisions, and their method table against the published schemas' unions and against the official SDK's tables."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, strategies as st
from mcp_types import methods as their_methods

from tests.types.published import definitions
from trio_mcp.types.methods import _FACTS, _ROWS, _TASK_ROWS, MethodSpec, facts_of, method_spec, methods_of
from trio_mcp.types.versions import (
    LATEST,
    LATEST_LEGACY,
    LATEST_MODERN,
    LEGACY_REVISIONS,
    MODERN_REVISIONS,
    REVISIONS,
    Era,
    at_least,
    era_of,
)

revisions = st.sampled_from(REVISIONS)


def test_the_published_revisions_from_oldest_to_newest() -> None:
    assert REVISIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
    assert (LATEST_LEGACY, LATEST_MODERN, LATEST) == ("2025-11-25", "2026-07-28", "2026-07-28")


def test_every_revision_is_of_one_era() -> None:
    assert LEGACY_REVISIONS + MODERN_REVISIONS == REVISIONS
    assert [era_of(revision) for revision in REVISIONS] == [Era.LEGACY] * 4 + [Era.MODERN]


@given(revisions, revisions)
def test_at_least_is_the_order_of_publication(one: str, other: str) -> None:
    assert at_least(one, other) is (REVISIONS.index(one) >= REVISIONS.index(other))


@pytest.mark.parametrize("unknown", ["", "2025-06-19", "9999-12-31", "DRAFT-2026-v1", "2026-07-28 "])
def test_an_unknown_revision_is_never_at_least_anything(unknown: str) -> None:
    """Revisions compare as strings all too easily: 9999-12-31 must not count as a newer one that has everything."""
    assert not any(at_least(unknown, revision) or at_least(revision, unknown) for revision in REVISIONS)
    assert not at_least(unknown, unknown)
    with pytest.raises(ValueError, match="unknown protocol revision"):
        era_of(unknown)


# --- methods -------------------------------------------------------------------------------------------------------


Side = Literal["client", "server"]

ALL = [(revision, spec) for revision in REVISIONS for spec in methods_of(revision).values()]

each_method = pytest.mark.parametrize(("revision", "spec"), ALL, ids=lambda part: getattr(part, "method", part))


def sent_by(revision: str, side: Side, *, requests: bool) -> set[str]:
    return {
        spec.method for spec in methods_of(revision).values() if side in spec.senders and spec.is_request is requests
    }


def in_union(revision: str, union: str) -> set[str]:
    """Return the methods of a union in the published schema."""
    schema = definitions(revision).get(union, {"anyOf": []})
    members = [definitions(revision)[arm["$ref"].split("/")[-1]] for arm in schema.get("anyOf", ())] or [schema]
    return {member["properties"]["method"]["const"] for member in members if "properties" in member}


def test_only_methods_of_the_table_are_special() -> None:
    assert set(_FACTS) <= {spec.method for _, spec in ALL}
    assert not any(facts_of("tools/call"))
    assert not any(facts_of("example/mine"))


@pytest.mark.published
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("side", ["client", "server"])
def test_who_sends_what_is_what_the_schema_says(revision: str, side: Side) -> None:
    assert sent_by(revision, side, requests=True) == in_union(revision, f"{side.capitalize()}Request")
    assert sent_by(revision, side, requests=False) == in_union(revision, f"{side.capitalize()}Notification")


@pytest.mark.published
@pytest.mark.parametrize("revision", REVISIONS)
def test_embedded_requests_are_the_schemas_input_requests(revision: str) -> None:
    embedded = {spec.method for spec in methods_of(revision).values() if spec.embedded}
    assert embedded == in_union(revision, "InputRequest")
    assert not any(spec.senders for spec in methods_of(revision).values() if spec.embedded)


@pytest.mark.published
@each_method
def test_message_and_params_are_those_of_the_schema(revision: str, spec: MethodSpec) -> None:
    """The named message has this very method, requires params where the table says so, and params of that name."""
    schema = definitions(revision)[spec.message.__name__]
    assert schema["properties"]["method"]["const"] == spec.method
    assert ("params" in schema["required"]) is spec.params_required
    params = schema["properties"]["params"]
    if "$ref" in params:
        target = params["$ref"].split("/")[-1]
        arms = definitions(revision)[target].get("anyOf", [params])
        named = {arm["$ref"].split("/")[-1] for arm in arms}
        # 2026-07-28 frees this request from the `_meta` that RequestParams requires, so it has params of its own.
        expected = {"ListRootsRequestParams"} if spec.method == "roots/list" else named
        assert {model.__name__ for model in spec.params_models} == expected


@pytest.mark.published
@pytest.mark.parametrize("revision", MODERN_REVISIONS)
def test_modern_results_are_those_of_the_published_responses(revision: str) -> None:
    """Each modern request has a response in the schema, which names its results and whether they may be kept."""
    for spec in methods_of(revision).values():
        if not spec.is_request or spec.embedded:
            continue
        response = definitions(revision)[spec.results[0].__name__ + "Response"]["properties"]["result"]
        named = {arm["$ref"].split("/")[-1] for arm in response.get("anyOf", [response])}
        assert {model.__name__ for model in spec.results} == named
        assert spec.may_ask_for_input is ("InputRequiredResult" in named)
        assert spec.cacheable is ("ttlMs" in definitions(revision)[spec.results[0].__name__]["properties"])


# The official SDK leaves the methods of tasks, and their results, out of its tables.
def without_tasks(methods: set[str]) -> set[str]:
    return {method for method in methods if not method.startswith(("tasks/", "notifications/tasks/"))}


@pytest.mark.parametrize("revision", REVISIONS)
def test_constructs_are_those_of_the_official_sdk(revision: str) -> None:
    """Messages and results by name; their EmptyResult is our Result, as in the schema."""
    requests = their_methods.CLIENT_REQUESTS | their_methods.SERVER_REQUESTS
    notifications = their_methods.CLIENT_NOTIFICATIONS | their_methods.SERVER_NOTIFICATIONS
    results = their_methods.SERVER_RESULTS | their_methods.CLIENT_RESULTS
    for spec in methods_of(revision).values():
        key = (spec.method, revision)
        if spec.embedded or not without_tasks({spec.method}):
            continue
        message = requests[key] if spec.is_request else notifications[key]
        assert message.__name__ == spec.message.__name__
        if spec.is_request:
            result = results[key]
            names = {arm.__name__ for arm in (get_args(result) if isinstance(result, UnionType) else (result,))}
            assert names == {model.__name__ for model in spec.results} - {"CreateTaskResult"}


@each_method
def test_only_the_modern_era_has_what_is_modern(revision: str, spec: MethodSpec) -> None:
    if revision not in MODERN_REVISIONS:
        modern = [spec.cacheable, spec.may_ask_for_input, spec.embedded, spec.name_header is not None]
        assert not any(modern)


def test_name_header_is_the_name_or_uri_of_three_requests() -> None:
    """2026-07-28 basic/transports/streamable-http, "Standard Request Headers"."""
    headers = {spec.method: spec.name_header for spec in methods_of("2026-07-28").values() if spec.name_header}
    assert headers == {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


@each_method
def test_name_header_and_capabilities_exist(revision: str, spec: MethodSpec) -> None:
    """A header names a required field of the params; a capability path leads to a field of the capabilities."""
    if spec.name_header:
        assert spec.params.model_fields[spec.name_header].is_required()
    for side, path in (("ServerCapabilities", spec.server_capability), ("ClientCapabilities", spec.client_capability)):
        if path is not None:
            assert leads_somewhere(revision, side, path), f"{spec.method}: {path}"


def leads_somewhere(revision: str, side: str, path: str) -> bool:
    """Follow a dotted wire path through our capability models, in one revision."""
    from trio_mcp.types import capabilities
    from trio_mcp.types._base import WireModel, field_span

    model: Any = getattr(capabilities, side)
    for label in path.split("."):
        if not (isinstance(model, type) and issubclass(model, WireModel)):
            return False
        name_of: Any = model.model_config["alias_generator"]
        named = [
            field
            for name, field in model.model_fields.items()
            if name_of(name) == label and revision in field_span(model, name).revisions
        ]
        if not named:
            return False
        model = get_args(named[0].annotation)[0]
    return True


def test_completion_needs_a_capability_only_since_there_is_one() -> None:
    """2024-11-05 has completion, but no capability for it."""
    specs = [methods_of(revision)["completion/complete"] for revision in REVISIONS]
    capabilities = [spec.server_capability for spec in specs]
    assert capabilities == [None, "completions", "completions", "completions", "completions"]


def test_a_method_missing_from_a_revision_gives_none() -> None:
    assert method_spec("2026-07-28", "initialize") is None
    assert method_spec("2024-11-05", "elicitation/create") is None
    assert method_spec("2026-07-28", "tools/nonsense") is None
    assert method_spec("1999-01-01", "tools/call") is None
    with pytest.raises(KeyError):
        methods_of("1999-01-01")


def test_no_two_rows_are_about_the_same_method_of_a_revision() -> None:
    pairs = [(revision, row.spec.method) for row in _ROWS + _TASK_ROWS for revision in row.revisions]
    assert len(pairs) == len(set(pairs)) == len(ALL)


def test_the_table_cannot_be_changed() -> None:
    table: Any = methods_of("2025-11-25")
    with pytest.raises(TypeError):
        table["tools/call"] = None
