"""Messages, schemas and metadata: what no transport has to do with, and other tests hold."""

from __future__ import annotations

from tests.requirements.model import MODERN, Topic, since

topic = Topic("Types and schemas")

topic.held(
    "id_of_every_type",
    "basic#requests",
    "Only a string or an integer is an id.",
    "tests/protocol/test_codec.py::test_nothing_else_is_an_id",
)
topic.held(
    "own_ids_are_new",
    "basic#requests",
    "A session never reuses one of its own ids.",
    "tests/protocol/test_peer.py::test_ids_are_integers_that_are_never_used_again",
)
topic.held(
    "result_or_error",
    "basic#responses",
    "An answer that has neither result nor error, or both, is malformed and never answered.",
    "tests/protocol/test_codec.py::test_a_broken_answer_names_its_call_and_is_never_answered",
)
topic.held(
    "id_left_out",
    "basic#error-responses",
    "An error whose request's id could not be read goes out without one.",
    "tests/protocol/test_codec.py::test_an_id_that_is_not_known_is_left_out",
    since("2025-11-25"),
)
topic.held(
    "messages_of_the_schema",
    "schema",
    "Every method has the message and the parameters of the published schema.",
    "tests/types/test_methods.py::test_message_and_params_are_those_of_the_schema",
)
topic.held(
    "senders_of_the_schema",
    "schema",
    "Each message has the senders of the published schema.",
    "tests/types/test_methods.py::test_who_sends_what_is_what_the_schema_says",
)
topic.held(
    "constructs_of_the_schema",
    "schema",
    "Every construct has the fields of the published schema.",
    "tests/types/test_wire_schema.py::test_construct_is_what_the_schema_says",
)
topic.held(
    "instances_fit_the_schema",
    "schema",
    "Every construct is valid by the published schema when written.",
    "tests/types/test_wire_generated.py::test_instance_fits_the_published_schema",
)
topic.held(
    "unknown_fields_survive",
    "schema",
    "Fields that a construct does not know survive, at every depth.",
    "tests/types/test_wire_base.py::test_unknown_fields_and_nulls_survive_at_every_depth",
)
topic.held(
    "keys_of_meta",
    "basic#_meta",
    "Only keys that the grammar allows are valid; the second label decides who owns them.",
    "tests/types/test_meta_keys.py::test_keys_by_the_grammar_are_valid_and_the_second_label_decides_who_owns_them",
    since("2025-11-25"),
)
topic.held(
    "own_keys_of_meta",
    "basic#_meta",
    "A definition may carry custom keys and those of extensions, but no reserved ones.",
    "tests/types/test_meta_keys.py::test_a_definition_may_carry_keys_of_ones_own_and_those_of_extensions",
    since("2025-06-18"),
)
topic.held(
    "icons_that_may_be_loaded",
    "basic#icons",
    "An icon is refused unless its URI is one of https: or data:.",
    "tests/types/test_icons.py::test_anything_else_must_not_be_loaded",
    since("2025-11-25"),
)
topic.held(
    "icons_by_their_bytes",
    "basic#icons",
    "The content type of a data: URI is decided by its bytes, not by the MIME type it claims.",
    "tests/types/test_icons.py::test_the_bytes_decide_what_a_data_uri_holds",
    since("2025-11-25"),
)
topic.held(
    "icons_bounded",
    "basic#icons",
    "The size of an icon is bounded before it is decoded.",
    "tests/types/test_icons.py::test_a_data_uri_is_bounded",
    since("2025-11-25"),
)
topic.held(
    "schema_2020_12",
    "basic#json-schema-usage",
    "A schema that names no dialect is read as JSON Schema 2020-12.",
    "tests/protocol/test_json_schema.py::test_2020_12",
    since("2025-11-25"),
)
topic.held(
    "schema_dialects",
    "basic#json-schema-usage",
    "A schema is read by the rules of the dialect that it names.",
    "tests/protocol/test_json_schema.py::test_draft_07_is_read_by_its_own_rules",
    since("2025-11-25"),
)
topic.held(
    "schema_unknown_dialect",
    "basic#implementation-requirements",
    "A schema of a dialect that is not supported is refused with an error that names it.",
    "tests/protocol/test_json_schema.py::test_an_unsupported_dialect_is_named",
    since("2025-11-25"),
)
topic.held(
    "schema_valid",
    "basic#schema-validation",
    "A schema that is invalid by its own dialect is refused.",
    "tests/protocol/test_json_schema.py::test_an_invalid_schema_is_refused",
    since("2025-11-25"),
)
topic.held(
    "schema_references",
    "basic#ref-resolution",
    "A $ref to a network URI is never followed: its schema is refused.",
    "tests/protocol/test_json_schema.py::test_references_to_elsewhere_are_refused",
    MODERN,
)
topic.held(
    "schema_cost",
    "basic#composition-keyword-resource-use",
    "A schema whose composition could take too long is refused.",
    "tests/protocol/test_schema_cost.py::test_what_could_take_too_long_is_refused",
    MODERN,
)
topic.held(
    "schema_size",
    "basic#composition-keyword-resource-use",
    "The depth and number of a schema's subschemas are bounded.",
    "tests/protocol/test_schema_cost.py::test_schemas_of_unreasonable_size_are_refused",
    MODERN,
)
