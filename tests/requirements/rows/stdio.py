"""``basic/transports/stdio``: what other tests hold, with real processes and bytes on real pipes."""

from __future__ import annotations

from tests.requirements.model import MODERN, Topic

topic = Topic("stdio")

PAGE = "basic/transports/stdio"
SHUTDOWN = f"{PAGE}#shutdown"
SERVER, CLIENT = "tests/transports/test_stdio_server_", "tests/transports/test_stdio_client_"

for _name, _section, _text, _test in (
    (
        "messages_only_on_stdout",
        PAGE,
        "A server writes nothing but messages to its standard output, whatever its tools print.",
        f"{SERVER}wire.py::test_no_noise_reaches_the_wire",
    ),
    (
        "nothing_reads_the_wire",
        PAGE,
        "Tools and their child processes read nothing from the standard input that carries messages.",
        f"{SERVER}wire.py::test_tools_and_their_children_read_nothing_from_the_wire",
    ),
    (
        "printed_before",
        PAGE,
        "Text printed before serving began does not end up among the messages.",
        f"{SERVER}wire.py::test_what_was_printed_before_the_block_is_written_before_the_wire_begins",
    ),
    (
        "newline_delimited",
        PAGE,
        "Messages are told apart by newlines, however the bytes arrive.",
        "tests/protocol/test_framing.py::test_any_chunks_give_what_the_lines_give",
    ),
    (
        "no_embedded_newline",
        PAGE,
        "A line separator inside a string does not end a message.",
        "tests/protocol/test_framing.py::test_a_line_separator_inside_a_string_ends_no_line",
    ),
    (
        "every_message_survives",
        PAGE,
        "Every message is one line, and is unchanged after it has been written and read.",
        "tests/protocol/test_codec.py::test_every_message_survives_the_wire",
    ),
    (
        "garbage_answered",
        "basic#error-codes",
        "Invalid JSON is answered with -32700, an invalid message with -32600; neither affects other messages.",
        f"{SERVER}wire.py::test_garbage_is_answered_if_possible_and_affects_nothing_else",
    ),
    (
        "garbage_not_answered",
        "basic#error-responses",
        "Broken answers and broken notifications are not answered.",
        f"{SERVER}wire.py::test_messages_that_need_no_response_get_none",
    ),
    (
        "garbage_to_the_client",
        PAGE,
        "A server's lines that are not messages do not affect its client otherwise.",
        f"{CLIENT}death.py::test_garbage_on_the_output_affects_nothing_else",
    ),
    (
        "too_large",
        PAGE,
        "A message beyond the size limit is refused and skipped, and the next one is served.",
        f"{SERVER}wire.py::test_a_message_over_the_limit_is_refused_and_skipped",
    ),
    (
        "depth",
        "basic#error-codes",
        "A message that is nested too deeply is a parse error.",
        "tests/protocol/test_codec.py::test_a_depth_bomb_is_a_parse_error",
    ),
    (
        "last_line",
        PAGE,
        "A last message without its newline is answered.",
        f"{SERVER}wire.py::test_a_last_line_without_newline_is_answered",
    ),
    (
        "stderr_is_free",
        PAGE,
        "A client may pass the server's standard error on, line by line, to a function.",
        f"{CLIENT}stderr.py::test_a_callback_gets_every_line",
    ),
    (
        "stderr_ignored",
        PAGE,
        "A client may ignore the server's standard error.",
        f"{CLIENT}stderr.py::test_discarded_standard_error_appears_nowhere_but_in_the_error",
    ),
    (
        "stderr_utf8",
        PAGE,
        "Standard error is text in UTF-8, and invalid bytes do no harm.",
        f"{CLIENT}stderr.py::test_text_arrives_decoded_whatever_the_bytes",
    ),
    (
        "end_of_input",
        SHUTDOWN,
        "A server exits when its standard input ends.",
        f"{SERVER}end.py::test_the_end_of_the_input_ends_an_idle_server",
    ),
    (
        "end_in_mid_tool",
        SHUTDOWN,
        "A server exits when its standard input ends, even while a tool runs.",
        f"{SERVER}end.py::test_the_end_of_the_input_ends_a_server_in_mid_tool",
    ),
    (
        "sigterm",
        SHUTDOWN,
        "A server exits on SIGTERM.",
        f"{SERVER}end.py::test_sigterm_ends_the_server",
    ),
    (
        "killed",
        SHUTDOWN,
        "A server that does not exit is killed.",
        f"{CLIENT}group.py::test_a_stopped_server_is_killed",
    ),
    (
        "no_child_left",
        SHUTDOWN,
        "No child of a server outlives its client's block.",
        f"{CLIENT}group.py::test_no_child_or_grandchild_survives",
    ),
    (
        "server_closes",
        SHUTDOWN,
        "A server that closes its input but keeps running is lost to its client.",
        f"{CLIENT}death.py::test_a_server_that_closes_its_input_and_lives_on_is_lost",
    ),
    (
        "client_stops_reading",
        SHUTDOWN,
        "A server whose client no longer reads ends quietly.",
        f"{SERVER}end.py::test_a_client_that_closed_its_reading_end_ends_the_server_quietly",
    ),
    (
        "credentials",
        "basic#auth",
        "A server's environment has the variables it was given and only the safe ones of the rest.",
        f"{CLIENT}start.py::test_only_the_safe_variables_and_the_given_ones_reach_the_child",
    ),
):
    topic.held(_name, _section, _text, _test)

topic.held(
    "subscriptions_end_first",
    "basic/patterns/subscriptions#graceful-closure",
    "The results of open subscriptions leave before the server closes its output.",
    "tests/server/test_listen.py::test_over_stdio_the_result_leaves_before_the_link_is_closed",
    MODERN,
)
