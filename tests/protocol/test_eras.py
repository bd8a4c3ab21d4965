"""What requests and results carry besides their content, in either era."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import json_objects
from trio_mcp.eras.client_negotiation import ModernClientEra
from trio_mcp.eras.server_negotiation import LegacyServerEra, ModernServerEra
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.types import meta
from trio_mcp.types.versions import LEGACY_REVISIONS

MODERN = "2026-07-28"
INFO = {"name": "x", "version": "1"}


@given(st.sampled_from(LEGACY_REVISIONS), json_objects())
def test_the_legacy_era_adds_nothing(revision: str, content: dict[str, Any]) -> None:
    """The handshake has said it all."""
    era = LegacyServerEra(revision)
    assert era.finish_result(content) is content


def test_modern_requests_say_who_asks() -> None:
    """2026-07-28 `basic/index`, Per-request protocol fields: required on every request, also one without parameters."""
    era = ModernClientEra(MODERN, INFO, {"roots": {}})
    stamp = {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_INFO: INFO, meta.CLIENT_CAPABILITIES: {"roots": {}}}
    assert era.request_params(None) == {"_meta": stamp}
    assert era.request_params({}) == {"_meta": stamp}
    assert era.request_params({"a": 1}) == {"a": 1, "_meta": stamp}


def test_modern_requests_keep_what_the_caller_put_into_meta() -> None:
    """Its progress token, its trace context, and its own word on the reserved keys; its dicts are not changed."""
    era = ModernClientEra(MODERN, INFO, {}, log_level="info")
    given = {"_meta": {"progressToken": 3, meta.LOG_LEVEL: "debug"}}
    sent = era.request_params(given)
    assert sent["_meta"]["progressToken"] == 3
    assert sent["_meta"][meta.LOG_LEVEL] == "debug"
    assert sent["_meta"][meta.PROTOCOL_VERSION] == MODERN
    assert given == {"_meta": {"progressToken": 3, meta.LOG_LEVEL: "debug"}}


def test_the_log_level_is_sent_only_if_there_is_one() -> None:
    """2026-07-28 `server/utilities/logging`: without it the server sends no log messages."""
    assert meta.LOG_LEVEL not in ModernClientEra(MODERN, INFO, {}).request_params(None)["_meta"]
    assert ModernClientEra(MODERN, INFO, {}, log_level="info").request_params(None)["_meta"][meta.LOG_LEVEL] == "info"


@pytest.mark.parametrize("kind", ["complete", "input_required"])
def test_the_result_types_of_the_core_protocol_are_read(kind: str) -> None:
    """2026-07-28 `basic/index`, ResultType."""
    assert ModernClientEra(MODERN, INFO, {}).read_result({"resultType": kind}) == {"resultType": kind}


def test_an_absent_result_type_is_complete() -> None:
    """2026-07-28 `basic/index`, ResultType: "clients MUST treat an absent resultType as complete"."""
    assert ModernClientEra(MODERN, INFO, {}).read_result({"a": 1}) == {"a": 1}


@pytest.mark.parametrize("kind", ["other", "", "Complete", None, 1, ["complete"], {}, "x" * 100_000])
def test_an_unknown_result_type_is_refused(kind: object) -> None:
    """The same section: "MUST be considered invalid"; and no megabyte of it reaches the log."""
    with pytest.raises(RemoteProtocolError, match="resultType") as caught:
        ModernClientEra(MODERN, INFO, {}).read_result({"resultType": kind})
    assert len(str(caught.value)) < 300


def test_extensions_add_result_types() -> None:
    """The same section: the set includes the values of supported extensions."""
    era = ModernClientEra(MODERN, INFO, {}, result_types=frozenset({"complete", "task"}))
    assert era.read_result({"resultType": "task"})
    with pytest.raises(RemoteProtocolError):
        era.read_result({"resultType": "input_required"})


@given(json_objects())
def test_modern_results_say_their_type_and_who_made_them(content: dict[str, Any]) -> None:
    """`basic/index`: ``resultType`` MUST, ``serverInfo`` SHOULD be there; what the handler said itself stands."""
    era = ModernServerEra(MODERN, INFO)
    before = dict(content)
    assert era.finish_result(content) == {"resultType": "complete", **content, "_meta": {meta.SERVER_INFO: INFO}}
    assert content == before
    own = {"resultType": "input_required", "_meta": {"a": 1}}
    assert era.finish_result(own) == {
        "resultType": "input_required",
        "_meta": {meta.SERVER_INFO: INFO, "a": 1},
    }
    assert own["_meta"] == {"a": 1}
