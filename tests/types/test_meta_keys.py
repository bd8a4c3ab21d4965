"""The rules for `_meta` keys (2026-07-28 basic, "_meta")."""

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tables import by_outcome
from tests.types.published import definitions
from trio_mcp.types import meta
from trio_mcp.types.meta import checked_meta, is_reserved_key, is_valid_key
from trio_mcp.types.versions import REVISIONS


@by_outcome(
    "key",
    "valid",
    {
        True: (
            " | name | a | 7 | a-b_c.d | com.example/ | com.example/name | com.example/a.b-c_d | example/name | "
            "a-1.b2/x | io.modelcontextprotocol/protocolVersion"
        ),
        False: (
            "-name | name- | .name | name_ | na me | näme | /name | 1com.example/name | com-.example/name | "
            "com..example/name | .com/name | com./name | com_x/name | com.example/a/b | com.example/-a | name\n | "
            "com.example/\n"
        ),
    },
)
def test_valid_keys(key: str, valid: bool) -> None:
    assert is_valid_key(key) is valid


@by_outcome(
    "key",
    "reserved",
    {
        True: (
            "io.modelcontextprotocol/x | dev.mcp/ | org.modelcontextprotocol.api/x | com.mcp.tools/x | progressToken | "
            "traceparent | tracestate | baggage"
        ),
        False: ("com.example.mcp/x | mcp/x | modelcontextprotocol/x | mcp | io.mcp | com.mcpx/x | x |  | a/b.mcp/c"),
    },
)
def test_reserved_keys(key: str, reserved: bool) -> None:
    assert is_reserved_key(key) is reserved


labels = st.from_regex(r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?", fullmatch=True)
names = st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?", fullmatch=True)


@given(st.lists(labels, min_size=1, max_size=4), names)
def test_keys_by_the_grammar_are_valid_and_the_second_label_decides_who_owns_them(prefix: list[str], name: str) -> None:
    key = ".".join(prefix) + "/" + name
    assert is_valid_key(key)
    assert is_reserved_key(key) is (len(prefix) > 1 and prefix[1] in ("mcp", "modelcontextprotocol"))


@pytest.mark.published
def test_every_key_the_schema_names_has_a_constant() -> None:
    published = set()
    for name, definition in definitions("2026-07-28").items():
        if re.search("MetaObject$", name):
            published |= definition.get("properties", {}).keys()
    constants = {getattr(meta, name) for name in meta.__all__ if name.isupper()}
    assert published <= constants
    assert all(is_valid_key(key) and is_reserved_key(key) for key in constants)


# The examples of 2025-06-18 and of 2025-11-25
@by_outcome(
    "key",
    "first_rule, second_label_rule",
    {
        (True, False): "modelcontextprotocol.io/x | mcp.dev/x | com.example.mcp.tools/x",
        (True, True): (
            "api.modelcontextprotocol.org/x | tools.mcp.com/x | org.modelcontextprotocol.api/x | com.mcp.tools/x"
        ),
        (False, True): "io.modelcontextprotocol/x | dev.mcp/x",
        (False, False): "com.example.mcp/x | mcp/x | com.example/x",
    },
)
def test_what_is_reserved_changed_with_2025_11_25(key: str, first_rule: bool, second_label_rule: bool) -> None:
    """2025-06-18: the label before any other; since 2025-11-25: the second label. Older ones follow the first rule."""
    expected = [first_rule, first_rule, first_rule, second_label_rule, second_label_rule]
    assert [is_reserved_key(key, revision) for revision in REVISIONS] == expected


GOOD = ["x", "", "com.example/x", "com.example.mcp/x", "io.modelcontextprotocol/ui"]
OF_REQUESTS = [meta.LOG_LEVEL, meta.RELATED_TASK, meta.TRACEPARENT, meta.TRACESTATE, meta.BAGGAGE]
FILLED_IN = [meta.PROGRESS_TOKEN, meta.PROTOCOL_VERSION, meta.SERVER_INFO, meta.SUBSCRIPTION_ID]
FILLED_IN += [meta.CLIENT_INFO, meta.CLIENT_CAPABILITIES]


@pytest.mark.parametrize("key", [*GOOD, *OF_REQUESTS])
def test_a_request_may_carry_keys_of_ones_own_those_of_extensions_and_those_that_requests_have(key: str) -> None:
    given = {key: 1}
    checked = checked_meta(given, "the call", of_request=True)
    assert checked == given
    assert checked is not given


@pytest.mark.parametrize("key", GOOD)
def test_a_definition_may_carry_keys_of_ones_own_and_those_of_extensions(key: str) -> None:
    assert checked_meta({key: 1}, "tool 'x'") == {key: 1}


@pytest.mark.parametrize(
    ("key", "of_request", "rule"),
    [
        ("-x", True, "is malformed: it must be a name"),
        ("com..example/x", True, "is malformed"),
        ("/x", False, "is malformed"),
        *((key, of_request, "is set by trio_mcp") for key in FILLED_IN for of_request in (True, False)),
        *((key, False, "is for requests only") for key in OF_REQUESTS),
        ("com.mcp.tools/x", True, "2025-06-18 reserves prefixes in which 'mcp'"),
        ("dev.mcp/x", False, "2025-11-25 reserves prefixes whose second label is 'mcp'"),
    ],
)
def test_a_bad_key_is_named_with_its_rule(key: str, of_request: bool, rule: str) -> None:
    revisions = ("2025-06-18", "2025-11-25")
    with pytest.raises(ValueError, match=re.escape(rule)) as caught:
        checked_meta({"ok": 1, key: 2}, "tool 'x'", of_request=of_request, revisions=revisions)
    assert str(caught.value).startswith(f"tool 'x': the _meta key {key!r} ")


def test_a_key_must_be_in_order_in_every_revision_it_may_travel_in() -> None:
    assert checked_meta({"mcp.dev/x": 1}, "x", revisions=["2025-11-25", "2026-07-28"])
    for key in ("mcp.dev/x", "dev.mcp/x"):
        with pytest.raises(ValueError, match="is reserved"):
            checked_meta({key: 1}, "x")


def test_a_huge_key_does_not_make_a_huge_message() -> None:
    with pytest.raises(ValueError, match="malformed") as caught:
        checked_meta({"-" * 1_000_000: 1}, "x")
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("given", ["text", 5, [("a", 1)], {1: "a"}])
def test_keys_other_than_a_mapping_of_names_are_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match=r"x: (meta must be a mapping|the keys of _meta must be strings)"):
        checked_meta(given, "x")
