"""``basic/transports/stdio``: checked by other tests, with real processes and bytes on real pipes."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("stdio")

topic.held(
    """
    A server writes nothing but messages to its standard output, whatever its tools print.
        basic/transports/stdio server.py::test_no_noise_reaches_the_wire
    Tools and their child processes read nothing from the standard input that carries messages.
        basic/transports/stdio server.py::test_tools_and_their_children_read_nothing_from_the_wire
    Text printed before serving began does not end up among the messages.
        basic/transports/stdio
        server.py::test_what_is_printed_before_in_and_after_the_block_and_what_is_too_long_stay_apart_from_the_wire
    Invalid JSON is answered with -32700, an invalid message with -32600; neither affects other messages.
        basic#error-codes server.py::test_garbage_is_answered_if_possible_and_affects_nothing_else
    Broken answers and broken notifications are not answered.
        basic#error-responses server.py::test_garbage_is_answered_if_possible_and_affects_nothing_else
    A server's lines that are not messages do not affect its client otherwise.
        basic/transports/stdio client_end.py::test_garbage_on_the_output_affects_nothing_else
    A message beyond the size limit is refused and skipped, and the next one is served.
        basic/transports/stdio
        server.py::test_what_is_printed_before_in_and_after_the_block_and_what_is_too_long_stay_apart_from_the_wire
    A last message without its newline is answered.
        basic/transports/stdio server.py::test_requests_piped_in_one_go_are_all_answered_before_the_exit
    A client may pass the server's standard error on, line by line, to a function.
        basic/transports/stdio client_start.py::test_a_callback_gets_every_line
    A client may ignore the server's standard error.
        basic/transports/stdio client_start.py::test_where_standard_error_appears
    Standard error is text in UTF-8, and invalid bytes do no harm.
        basic/transports/stdio client_start.py::test_text_arrives_decoded_whatever_the_bytes
    A server exits when its standard input ends.
        basic/transports/stdio#shutdown server.py::test_the_end_of_the_input_ends_the_server
    A server exits when its standard input ends, even while a tool runs.
        basic/transports/stdio#shutdown server.py::test_the_end_of_the_input_ends_the_server
    A server exits on SIGTERM.
        basic/transports/stdio#shutdown server.py::test_sigterm_ends_a_server_whose_client_never_reads
    A server that does not exit is killed.
        basic/transports/stdio#shutdown client_end.py::test_a_stopped_server_is_killed
    No child of a server outlives its client's block.
        basic/transports/stdio#shutdown client_end.py::test_no_child_or_grandchild_survives
    A server that closes its input but keeps running is lost to its client.
        basic/transports/stdio#shutdown client_end.py::test_a_server_that_closes_its_input_and_lives_on_is_lost
    A server whose client no longer reads ends quietly.
        basic/transports/stdio#shutdown server.py::test_a_client_that_closed_its_reading_end_ends_the_server_quietly
    A server's environment has the variables it was given and only the safe ones of the rest.
        basic#auth client_start.py::test_only_the_safe_variables_and_the_given_ones_reach_the_child
    """,
    tests="tests/transports/test_stdio_",
)
topic.held(
    """
    Messages are told apart by newlines, however the bytes arrive.
        basic/transports/stdio framing.py::test_any_chunks_give_what_the_lines_give
    A line separator inside a string does not end a message.
        basic/transports/stdio framing.py::test_a_line_separator_inside_a_string_ends_no_line
    Every message is one line, and is unchanged after it has been written and read.
        basic/transports/stdio codec.py::test_every_message_survives_the_wire
    A message that is nested too deeply is a parse error.
        basic#error-codes codec.py::test_a_depth_bomb_is_a_parse_error
    """,
    tests="tests/protocol/test_",
)
topic.held(
    """
    The results of open subscriptions leave before the server closes its output.
        basic/patterns/subscriptions#graceful-closure over_stdio_the_result_leaves_before_the_link_is_closed modern
    """,
    tests="tests/server/test_listen.py::test_",
)
