"""Messages, schemas and metadata: requirements that don't depend on a transport, checked by other tests."""

from __future__ import annotations

from tests.requirements.model import Topic

topic = Topic("Types and schemas")

topic.held(
    """
    Only a string or an integer is an id.
        basic#requests codec.py::test_strings_and_integers_are_ids_and_nothing_else_is
    A session never reuses one of its own ids.
        basic#requests peer.py::test_ids_are_integers_that_are_never_used_again
    An answer that has neither result nor error, or both, is malformed and never answered.
        basic#responses codec.py::test_a_broken_answer_names_its_call_and_is_never_answered
    An error whose request's id could not be read goes out without one.
        basic#error-responses codec.py::test_an_id_that_is_not_known_is_left_out 2025-11-25+
    A schema that names no dialect is read as JSON Schema 2020-12.
        basic#json-schema-usage json_schema.py::test_2020_12 2025-11-25+
    A schema is read by the rules of the dialect that it names.
        basic#json-schema-usage json_schema.py::test_draft_07_is_read_by_its_own_rules 2025-11-25+
    A schema of a dialect that is not supported is refused with an error that names it.
        basic#implementation-requirements json_schema.py::test_an_unsupported_dialect_is_named 2025-11-25+
    A schema that is invalid by its own dialect is refused.
        basic#schema-validation json_schema.py::test_an_invalid_schema_is_refused 2025-11-25+
    A $ref to a network URI is never followed: its schema is refused.
        basic#ref-resolution json_schema.py::test_references_to_elsewhere_are_refused modern
    A schema whose composition could take too long is refused.
        basic#composition-keyword-resource-use schema_cost.py::test_what_could_take_too_long_is_refused modern
    The depth and number of a schema's subschemas are bounded.
        basic#composition-keyword-resource-use schema_cost.py::test_schemas_of_unreasonable_size_are_refused modern
    """,
    tests="tests/protocol/test_",
)
topic.held(
    """
    Every method has the message and the parameters of the published schema.
        schema methods.py::test_message_and_params_are_those_of_the_schema
    Each message has the senders of the published schema.
        schema methods.py::test_who_sends_what_is_what_the_schema_says
    Every construct has the fields of the published schema.
        schema wire_schema.py::test_construct_is_what_the_schema_says
    Every construct is valid by the published schema when written.
        schema wire_generated.py::test_instance_fits_the_published_schema
    Fields that a construct does not know survive, at every depth.
        schema wire_base.py::test_unknown_fields_and_nulls_survive_at_every_depth
    Only keys that the grammar allows are valid; the second label decides who owns them.
        basic#_meta
        meta_keys.py::test_keys_by_the_grammar_are_valid_and_the_second_label_decides_who_owns_them 2025-11-25+
    A definition may carry custom keys and those of extensions, but no reserved ones.
        basic#_meta meta_keys.py::test_a_definition_may_carry_keys_of_ones_own_and_those_of_extensions 2025-06-18+
    An icon is refused unless its URI is one of https: or data:.
        basic#icons icons.py::test_anything_else_must_not_be_loaded 2025-11-25+
    The content type of a data: URI is decided by its bytes, not by the MIME type it claims.
        basic#icons icons.py::test_the_bytes_decide_what_a_data_uri_holds 2025-11-25+
    The size of an icon is bounded before it is decoded.
        basic#icons icons.py::test_a_data_uri_is_bounded 2025-11-25+
    """,
    tests="tests/types/test_",
)
