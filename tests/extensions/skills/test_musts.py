"""Each MUST of the skills extension (SEP-2640), and what checks it here; the official suite sees few of them.

`MUSTS` has the statements in the order of `specification/stable/skills.mdx`, by section. A statement is checked by the
tests whose names follow, or by the official suite (``sep-2640-…``); or it is one for programs that use the library, and
the page about skills tells them.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "how-to" / "skills.md"

MUSTS: list[tuple[str, str, str]] = [
    ("Capability Negotiation", "a server implements skills/list and skills/get", "sep-2640-skills-enumeration"),
    ("Capability Negotiation", "directoryRead: true means resources/directory/read", "test_directories"),
    (
        "Capability Negotiation",
        "clients MUST NOT call it otherwise",
        "test_directories_are_not_read_unless_declared",
    ),
    ("Capability Negotiation", "resources is declared, too", "test_declares_the_extension_and_resources"),
    ("Skill Format", "a SKILL.md, with a name and a description", "test_a_skill_file_that_breaks_a_rule_is_refused"),
    ("Skill Format", "it begins with YAML frontmatter", "test_a_file_without_a_frontmatter_is_refused"),
    (
        "Resource Mapping",
        "the final segment equals the name",
        "test_a_skill_file_that_breaks_a_rule_is_refused test_an_entry_that_breaks_a_rule_does_not_lose_the_others",
    ),
    ("Resource Mapping", "and keeps the naming rules", "test_the_rules_for_names"),
    ("Resource Mapping", "no DNS or network resolution of the authority", "test_no_name_is_resolved"),
    (
        "Resource Mapping",
        "a host MUST NOT conclude from the scheme that a resource is a skill",
        "test_a_scheme_makes_no_skill",
    ),
    ("Nested Skills", "hosts MUST NOT act on a nested frontmatter", "test_a_nested_skill_is_only_files"),
    ("Nested Skills", "activation needs a consent of its own", "page: approves none that is nested in it"),
    (
        "Skill URIs",
        "both halves of the identity are preserved, and none is keyed on the URI alone",
        "test_in_a_group_a_skill_is_identified_by_its_server_too page: `(server, entry.uri, entry.fingerprint)`",
    ),
    ("Skill URIs", "paths on a disk encode the server", "page: by server and URI"),
    ("Frontmatter", "identical in content to that of the file", "test_values_of_the_core_schema"),
    ("Names", "names are not assumed to be unique", "test_names_need_not_be_unique"),
    ("Names", "collisions are resolved per origin", "page: Resolve names per server"),
    ("Names", "no silent shadowing", "page: it must not hide a skill of another origin"),
    (
        "Resources",
        "complete, each file exactly once, SKILL.md included",
        "test_entries_state_every_file_with_its_digest test_every_directory_with_a_skill_file_is_a_skill_at_any_depth",
    ),
    (
        "Resources",
        "each uri is within the skill's directory, and has a size and a digest",
        "test_an_entry_that_breaks_a_rule_does_not_lose_the_others",
    ),
    ("Resources", "dynamic content is declared as such", "test_a_dynamic_skill_is_made_for_each_reading"),
    (
        "Resources",
        "an invalid entry MUST NOT be loaded",
        "test_an_entry_that_breaks_a_rule_does_not_lose_the_others",
    ),
    ("Limits", "hosts support skills up to the limits", "test_the_limits_are_inclusive"),
    ("Listing Skills", "resultType is complete", "test_results_are_complete"),
    (
        "Listing Skills",
        "a host supports loading a skill given only its URI",
        "test_an_unlisted_skill_is_loaded_by_its_uri",
    ),
    (
        "Getting a Skill",
        "-32602 for what is not served",
        "test_an_unknown_skill_is_an_invalid_parameter",
    ),
    ("Getting a Skill", "the server answers for every skill", "test_an_unlisted_skill_is_answered_for"),
    ("Reading Skill Content", "a plain read is not a load", "page: it is not a skill that has been loaded"),
    (
        "Verification on Read",
        "digest and size are verified, and unverified content is not used",
        "test_content_that_is_not_what_was_listed_is_not_used",
    ),
    (
        "The Acting Window",
        "reads only resolve to listed files; others are failures",
        "test_only_listed_files_are_read test_the_held_entry_stands_whatever_the_server_lists_later",
    ),
    (
        "Frontmatter Verification",
        "field by field, and a discrepancy is a failure",
        "test_a_frontmatter_that_differs_in_one_field_is_refused"
        " test_a_dynamic_skill_is_loaded_only_if_that_is_allowed",
    ),
    ("Lazy Retrieval", "nothing ahead of need", "test_nothing_is_fetched_ahead_of_need"),
    ("Digests Are Not a Trust Anchor", "a match does not secure anything", "page: and nothing about either"),
    ("Reading Directories", "resultType is complete", "test_results_are_complete"),
    ("Reading Directories", "-32602 for anything but a directory, every directory is served", "test_directories"),
    (
        "Directory Reads and the Held Entry",
        "a new child is not read, and the result does not extend the manifest",
        "test_the_held_entry_stands_whatever_the_server_lists_later",
    ),
    (
        "Error Handling",
        "standard errors: -32602, and -32603 for internal ones",
        "test_only_the_uris_of_files_are_read test_a_dynamic_skill_that_returns_no_text_fails",
    ),
    ("Security Considerations", "content is untrusted, its origin visible", "page: tell the model which server"),
    ("Security Considerations", "no implicit local execution", "page: Run nothing that a skill names without"),
    (
        "Security Considerations",
        "reads are bound to the origin, servers have labels of the host's",
        "test_in_a_group_a_skill_is_identified_by_its_server_too",
    ),
    (
        "Security Considerations",
        "allowed-tools is ignored",
        "test_allowed_tools_is_only_a_field page: `allowed-tools` is a field like others",
    ),
    (
        "Security Considerations",
        "approvals are bound to the resources, and revoked with them",
        "test_a_fingerprint_binds_an_approval",
    ),
    (
        "Security Considerations",
        "a dynamic skill can't be bound",
        "test_a_dynamic_skill_is_loaded_only_if_that_is_allowed page: an approval of it covers only what was seen",
    ),
    ("Security Considerations", "caches on a disk", "page: where neither the model nor its tools can write"),
]


def names_of_tests() -> set[str]:
    """Return the names of all tests in this folder."""
    trees = [ast.parse(file.read_text()) for file in HERE.glob("test_*.py")]
    return {
        each.name for tree in trees for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
    }


@pytest.mark.parametrize(("section", "statement", "checks"), MUSTS)
def test_each_statement_is_checked(section: str, statement: str, checks: str) -> None:
    names, told, sentence = checks.partition("page: ")
    assert names.split() or told
    for name in names.split():
        assert name in names_of_tests() or name.startswith("sep-2640-")
    assert sentence in " ".join(PAGE.read_text().split())
