"""The messages of a client, as a server sees them: what a client does is the same over every transport."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("Messages, client")

topic.held(
    """
    A client gives each answer to the request with its id, in any order.
        basic/patterns#request-and-response protocol/test_peer.py::test_an_answer_settles_its_request_once
    A client never uses an id for two of its requests.
        basic#requests protocol/test_peer.py::test_ids_are_integers_that_are_never_used_again
    A client states its revision, name and capabilities in each request.
        basic#_meta protocol/test_negotiation.py::test_modern_requests_say_who_asks modern
    A client confirms the handshake before its first request.
        basic/lifecycle#initialization
        transports/test_http_client_eras.py::test_any_refusal_that_is_not_modern_leads_to_the_handshake legacy
    A client disconnects from a server that chose a revision it does not know.
        basic/lifecycle#version-negotiation session/test_lifetime.py::test_a_handshake_that_fails_says_so legacy
    A client raises an error with the code, message and data that the server gave.
        basic#error-responses client/test_calls.py::test_a_refusal_and_a_malformed_answer_cost_one_call
    A client reports a response to a request it never sent, and goes on.
        basic#responses protocol/test_peer.py::test_an_answer_to_what_was_never_asked_is_a_fault
    A result of a type that the client does not know is invalid.
        basic#resulttype protocol/test_negotiation.py::test_an_unknown_result_type_is_refused modern
    A result without a type is a complete one.
        basic#resulttype protocol/test_negotiation.py::test_the_result_types_of_the_core_protocol_are_read modern
    A client takes notifications that no handler knows.
        basic#notifications session/test_calls.py::test_notifications_arrive_in_order_and_a_failing_handler_costs_one
    Progress goes to the call with its token, and to no other.
        basic/patterns/progress#progress-flow protocol/test_peer.py::test_progress_that_fits_no_request_is_a_fault
    Cancelling a call cancels its own request and no other.
        basic/patterns/cancellation#cancellation-flow
        session/test_cancellation.py::test_a_notice_overtakes_bulk_but_never_its_own_request
    A client cancels a request that times out, and no response comes after that.
        basic/patterns/cancellation#timeouts
        session/test_cancellation.py::test_the_session_goes_on_after_a_timeout_and_the_late_answer_is_ignored
    A client receives notifications that belong to no request.
        server/tools#list-changed-notification
        client/test_calls.py::test_updates_of_a_watched_resource_reach_on_message legacy
    A client answers a ping, even while it waits for a response.
        basic/utilities/ping#behavior-requirements
        session/test_calls.py::test_ping_is_answered_by_either_side_without_a_handler legacy
    A client answers an unknown request with -32601.
        basic#requests client/test_input_legacy.py::test_a_request_without_a_callback_is_an_unknown_method legacy
    A server's request during a call is answered while the call goes on.
        client/sampling#creating-messages
        client/test_input_legacy.py::test_a_callback_may_call_the_server_meanwhile legacy
    A result that asks for input is answered by a retry with the responses, the state and a new id.
        basic/patterns/mrtr#client-requirements-basic-workflow
        client/test_input_rounds.py::test_the_request_goes_out_again_with_answers_state_and_a_new_id modern
    A client validates structured content against the tool's output schema.
        server/tools#output-schema
        client/test_calls.py::test_structured_content_is_checked_by_the_output_schema_that_is_known_until_it_changes
        2025-06-18+
    """,
)
