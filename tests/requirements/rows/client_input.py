"""The same pages from the client's side: what a client declares, answers and sends again."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("Questions to the client, client")

topic.held(
    """
    A retry echoes the requestState exactly, with another id.
        basic/patterns/mrtr#client-requirements-basic-workflow
        rounds.py::test_the_request_goes_out_again_with_answers_state_and_a_new_id modern
    A retry carries the state of the last round, if that had any.
        basic/patterns/mrtr#client-requirements-basic-workflow
        rounds.py::test_each_round_has_its_own_answers_and_state_and_nothing_of_earlier_rounds modern
    Responses and state are sent only with the request they belong to.
        basic/patterns/mrtr#client-requirements-basic-workflow
        rounds.py::test_parallel_calls_keep_their_answers_and_states_apart modern
    A round that asks for no input is retried after a pause.
        basic/patterns/mrtr#client-requirements-basic-workflow
        rounds.py::test_no_requests_at_all_are_a_round_with_nothing_to_answer modern
    A client gives up on a server that never stops asking for input.
        basic/patterns/mrtr#client-requirements-basic-workflow rounds.py::test_rounds_are_limited modern
    A request for an undeclared capability reaches no callback.
        basic/patterns/mrtr#server-requirements-basic-workflow
        rounds.py::test_what_a_server_may_not_ask_for_reaches_no_callback modern
    Requests sent by a modern server are not answered.
        basic/patterns/mrtr#multi-round-trip-requests
        rounds.py::test_a_modern_server_may_not_send_requests_of_its_own modern
    In the legacy era a result never asks for input.
        basic/patterns/mrtr#multi-round-trip-requests rounds.py::test_the_legacy_era_has_no_rounds legacy
    The last result of several rounds is validated against the output schema.
        server/tools#output-schema rounds.py::test_the_last_result_is_checked_against_the_output_schema modern
    A client declares only capabilities that the revision knows.
        basic#capabilities legacy.py::test_each_revision_gets_what_it_knows
    A client declares the elicitation modes that it supports.
        client/elicitation#capabilities legacy.py::test_the_modes_of_elicitation_can_be_chosen 2025-11-25+
    A mode that was not declared is refused.
        client/elicitation#capabilities answers.py::test_a_mode_that_is_not_declared_is_refused 2025-11-25+
    A response that does not fit the form is never sent.
        client/elicitation#security-considerations
        answers.py::test_no_answer_that_does_not_fit_is_ever_sent 2025-06-18+
    A response includes the form's defaults.
        client/elicitation#requested-schema
        answers.py::test_any_answer_that_fits_is_sent_with_the_defaults 2025-11-25+
    Accepting a URL carries no content.
        client/elicitation#url-mode-elicitation-requests answers.py::test_a_url_takes_no_content 2025-11-25+
    A malformed request reaches no callback.
        client/elicitation#error-handling
        answers.py::test_a_malformed_request_never_reaches_the_callback 2025-06-18+
    The error -32042 reaches the caller with its URLs.
        client/elicitation#url-elicitation-required-error
        legacy.py::test_an_elicitation_that_must_come_first_is_raised_with_its_data 2025-11-25
    A request for an undeclared capability is refused.
        basic#capabilities legacy.py::test_a_request_without_a_callback_is_an_unknown_method legacy
    A server's request before the handshake has completed is refused.
        basic/lifecycle#initialization legacy.py::test_a_server_that_asks_before_the_handshake_is_refused legacy
    A sampling request that the user rejects is answered with an error.
        client/sampling#error-handling answers.py::test_the_user_refuses
    Tools in a sampling request are refused unless declared.
        client/sampling#capabilities answers.py::test_tools_are_refused_unless_declared 2025-11-25+
    A client refuses messages whose tool uses lack results.
        client/sampling#tool-use-and-result-balance answers.py::test_tool_uses_and_results_must_balance 2025-11-25+
    A root is a file URI.
        client/roots#data-types answers.py::test_what_is_not_a_root
    A legacy server is notified that the roots have changed.
        client/roots#root-list-changes answers.py::test_a_legacy_server_is_told_of_changed_roots legacy
    A modern server is not notified of changed roots: it asks each time.
        client/roots#listing-roots answers.py::test_a_modern_server_is_not_told modern
    """,
    tests="tests/client/test_input_",
)
