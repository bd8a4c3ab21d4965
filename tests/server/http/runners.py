"""The runner that serves a test of this folder: each test runs on all of them, but for what the tables here say."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trio_mcp.http.server.options import RUNNERS

__all__ = ["RUNNERS", "chosen", "runners_of"]

# Modules of tests, or the tests of one, that call the application itself, or no server at all.
NO_SERVER: Mapping[str, tuple[str, ...]] = {
    "test_accounting": (),
    "test_connection": (
        "test_a_runner_that_there_is_not_is_refused_by_name",
        "test_httptools_that_is_not_installed_is_one_clear_error_before_anything_is_bound",
    ),
    "test_deadlines": ("test_idle_connections_outlive_those_of_common_proxies",),
    "test_endpoint": (
        "test_mounted_under_a_prefix",
        "test_mounted_as_the_endpoint_itself",
        "test_the_application_declines_a_websocket",
        "test_options_are_checked",
        "test_which_hosts_are_served",
        "test_keywords_replace_what_the_options_say",
        "test_an_unused_session_expires",
        "test_a_request_under_way_keeps_its_session",
        "test_a_question_to_a_client_that_is_not_heard_from_fails",
    ),
    "test_framing": ("test_a_body_in_small_pieces_costs_its_size",),
    "test_inherited_sockets": ("test_a_count_that_is_not_a_number_is_one_clear_error",),
    "test_injection": (
        "test_an_exchange_cancelled_anywhere_leaves_nothing_behind",
        "test_no_response_is_cut_off_by_the_end_of_its_own_exchange",
    ),
    "test_limits": (
        "test_what_comes_in_on_a_loopback_address_is_local",
        "test_dns_rebinding_is_refused_even_if_any_host_is_allowed",
    ),
    "test_memory": (
        "test_an_idle_session_has_one_task_and_at_most_20_kib",
        "test_what_is_cached_for_a_tool_goes_with_it",
    ),
    "test_modern": (
        "test_a_hidden_tool_is_unknown_even_to_who_leaves_out_its_headers",
        "test_a_tool_with_an_invalid_header_annotation_is_served_and_its_author_told_once",
        "test_urgent_notifications_overtake_what_the_client_has_not_read_but_progress_no_earlier_progress",
    ),
    "test_replay_machine": (),
    "test_resumption": ("test_a_store_is_checked",),
    "test_session_machine": (),
    "test_shared_sessions": (
        "test_a_process_looks_after_others_once_a_second_however_slow_its_store_is",
        "test_a_store_that_is_away_now_and_then_keeps_no_process_from_looking_after_the_dead",
        "test_no_process_loses_its_lease_because_the_store_was_away",
        "test_streams_that_are_noted_while_a_lease_is_renewed_do_no_harm",
    ),
}

# The same for HTTP/2, which only hypercorn has; so have tests with the parameter protocol="h2".
HTTP2: Mapping[str, tuple[str, ...]] = {
    "test_deadlines": ("test_over_http2_a_ping_neither_begins_a_head_nor_keeps_the_connection",),
    "test_framing": ("test_frames_that_are_mostly_framing_reset_their_stream",),
    "test_heads": (
        "test_a_method_that_is_not_a_token_is_malformed",
        "test_the_table_of_a_connection_grows_no_further_than_it_does_by_default",
    ),
    "test_http2": (),
}

# The same for what is not so on hypercorn: its hardening does not go so far, or it does without.
NOT_HYPERCORN: Mapping[str, tuple[str, ...]] = {
    "test_connection": (
        "test_a_response_in_one_piece_gets_a_length",  # it is chunked
        "test_a_wrong_response_is_500_or_cut_off_and_its_connection_closed",  # ours never are
        "test_an_application_takes_the_connection_over",  # only for a WebSocket, with the head as understood
        "test_the_number_of_a_closed_socket_tells_nothing_of_the_one_that_has_it_now",  # it reads, and watches nothing
    ),
}


def runners_of(module: str, name: str) -> tuple[str, ...]:
    """Return the runners on which a test runs; none if it starts no server."""
    for table, runners in ((NO_SERVER, ()), (HTTP2, RUNNERS[:1]), (NOT_HYPERCORN, RUNNERS[1:])):
        names = table.get(module)
        if names is not None and (not names or name in names):
            return runners
    return RUNNERS


@attrs.define
class Chosen:
    """The choice for the test that is running.

    Attributes:
        used: Whether the test has started a server.
    """

    _runner: str = "hypercorn"
    used: bool = False

    def set(self, runner: str) -> None:
        self._runner, self.used = runner, False

    def runner(self) -> str:
        self.used = True
        return self._runner


chosen = Chosen()
