"""The same pages from the client's side: what a client declares, answers and sends again."""

from __future__ import annotations

from typing import Any

from tests.requirements.model import ALL, LEGACY, MODERN, Topic, since

MRTR = "basic/patterns/mrtr"
CLIENT = f"{MRTR}#client-requirements-basic-workflow"
ELICITATION, SAMPLING, ROOTS = "client/elicitation", "client/sampling", "client/roots"
FORMS, TOOLS = since("2025-06-18"), since("2025-11-25")

topic = Topic("Questions to the client, client")

# name, section, sentence, test, revisions
HELD: list[tuple[str, str, str, str, Any]] = [
    (
        "again",
        CLIENT,
        "A retry echoes the requestState exactly, with another id.",
        "rounds.py::test_the_request_goes_out_again_with_answers_state_and_a_new_id",
        MODERN,
    ),
    (
        "own_state",
        CLIENT,
        "A retry carries the state of the last round, if that had any.",
        "rounds.py::test_each_round_has_its_own_answers_and_state_and_nothing_of_earlier_rounds",
        MODERN,
    ),
    (
        "apart",
        CLIENT,
        "Responses and state are sent only with the request they belong to.",
        "rounds.py::test_parallel_calls_keep_their_answers_and_states_apart",
        MODERN,
    ),
    (
        "nothing_asked",
        CLIENT,
        "A round that asks for no input is retried after a pause.",
        "rounds.py::test_no_requests_at_all_are_a_round_with_nothing_to_answer",
        MODERN,
    ),
    (
        "bounded",
        CLIENT,
        "A client gives up on a server that never stops asking for input.",
        "rounds.py::test_rounds_are_limited",
        MODERN,
    ),
    (
        "undeclared",
        f"{MRTR}#server-requirements-basic-workflow",
        "A request for an undeclared capability reaches no callback.",
        "rounds.py::test_what_a_server_may_not_ask_for_reaches_no_callback",
        MODERN,
    ),
    (
        "no_requests",
        f"{MRTR}#multi-round-trip-requests",
        "Requests sent by a modern server are not answered.",
        "rounds.py::test_a_modern_server_may_not_send_requests_of_its_own",
        MODERN,
    ),
    (
        "legacy_results",
        f"{MRTR}#multi-round-trip-requests",
        "In the legacy era a result never asks for input.",
        "rounds.py::test_legacy_servers_ask_nothing_by_results",
        LEGACY,
    ),
    (
        "output_schema",
        "server/tools#output-schema",
        "The last result of several rounds is validated against the output schema.",
        "rounds.py::test_the_last_result_is_checked_against_the_output_schema",
        MODERN,
    ),
    (
        "by_revision",
        "basic#capabilities",
        "A client declares only capabilities that the revision knows.",
        "capabilities.py::test_each_revision_gets_what_it_knows",
        ALL,
    ),
    (
        "modes",
        f"{ELICITATION}#capabilities",
        "A client declares the elicitation modes that it supports.",
        "capabilities.py::test_the_modes_of_elicitation_can_be_chosen",
        TOOLS,
    ),
    (
        "other_mode",
        f"{ELICITATION}#capabilities",
        "A mode that was not declared is refused.",
        "elicitation.py::test_a_mode_that_is_not_declared_is_refused",
        TOOLS,
    ),
    (
        "valid_answers",
        f"{ELICITATION}#security-considerations",
        "A response that does not fit the form is never sent.",
        "elicitation.py::test_no_answer_that_does_not_fit_is_ever_sent",
        FORMS,
    ),
    (
        "with_defaults",
        f"{ELICITATION}#requested-schema",
        "A response includes the form's defaults.",
        "elicitation.py::test_any_answer_that_fits_is_sent_with_the_defaults",
        TOOLS,
    ),
    (
        "url_consent",
        f"{ELICITATION}#url-mode-elicitation-requests",
        "Accepting a URL carries no content.",
        "elicitation.py::test_a_url_takes_no_content",
        TOOLS,
    ),
    (
        "malformed",
        f"{ELICITATION}#error-handling",
        "A malformed request reaches no callback.",
        "elicitation.py::test_a_malformed_request_never_reaches_the_callback",
        FORMS,
    ),
    (
        "required_first",
        f"{ELICITATION}#url-elicitation-required-error",
        "The error -32042 reaches the caller with its URLs.",
        "legacy.py::test_an_elicitation_that_must_come_first_is_raised_with_its_data",
        ("2025-11-25",),
    ),
    (
        "no_callback",
        "basic#capabilities",
        "A request for an undeclared capability is refused.",
        "legacy.py::test_a_request_without_a_callback_is_an_unknown_method",
        LEGACY,
    ),
    (
        "early",
        "basic/lifecycle#initialization",
        "A server's request before the handshake has completed is refused.",
        "legacy.py::test_a_server_that_asks_before_the_handshake_is_refused",
        LEGACY,
    ),
    (
        "user_refuses",
        f"{SAMPLING}#error-handling",
        "A sampling request that the user rejects is answered with an error.",
        "sampling.py::test_the_user_refuses",
        ALL,
    ),
    (
        "tools_declared",
        f"{SAMPLING}#capabilities",
        "Tools in a sampling request are refused unless declared.",
        "sampling.py::test_tools_are_refused_unless_declared",
        TOOLS,
    ),
    (
        "balance",
        f"{SAMPLING}#tool-use-and-result-balance",
        "A client refuses messages whose tool uses lack results.",
        "sampling.py::test_tool_uses_and_results_must_balance",
        TOOLS,
    ),
    ("files_only", f"{ROOTS}#data-types", "A root is a file URI.", "roots.py::test_what_is_not_a_root", ALL),
    (
        "changed",
        f"{ROOTS}#root-list-changes",
        "A legacy server is notified that the roots have changed.",
        "roots.py::test_a_legacy_server_is_told_of_changed_roots",
        LEGACY,
    ),
    (
        "not_told",
        f"{ROOTS}#listing-roots",
        "A modern server is not notified of changed roots: it asks each time.",
        "roots.py::test_a_modern_server_is_not_told",
        MODERN,
    ),
]

for _name, _section, _text, _test, _revisions in HELD:
    topic.held(_name, _section, _text, f"tests/client/test_input_{_test}", _revisions)
