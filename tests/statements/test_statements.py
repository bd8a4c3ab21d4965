"""The statements of the specification: the data, and the script that compares it with a checkout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tests.statements.compare import differences
from tests.statements.extract import of_extension, of_page, short_hash, statements as found_in
from trio_mcp.conformance.rules.catalogue import RULES, SIDES
from trio_mcp.conformance.statements.model import REVISIONS, Location, Statement, statements


def test_texts_are_sentences_of_their_own() -> None:
    texts = Counter(each.text for each in statements())
    assert [text for text, times in texts.items() if times > 1] == []
    assert [text for text in texts if not text.endswith(".") or not text[0].isupper() or text.count("`") % 2] == []


def test_most_musts_that_a_peer_can_observe_are_checked() -> None:
    checked = {
        (place.revision, each.keyword, place.hash): any(place.revision in RULES[rule].revisions for rule in each.rules)
        for each in statements()
        if each.keyword.startswith("MUST") and each.observable
        for place in each.places
    }
    assert sum(checked.values()) >= 0.95 * len(checked)


def test_rules_fit_their_statements() -> None:
    for each in statements():
        every = {who for kinds in SIDES.values() for who in kinds}
        sides = {"transport", each.binds} if each.binds in ("server", "client") else every
        for rule in map(RULES.__getitem__, each.rules):
            assert rule.who in sides, (rule.id, each.text)
            assert set(rule.revisions) & {place.revision for place in each.places}, (rule.id, each.text)


# The text of these rules has no MUST or SHOULD in the two revisions whose statements are listed.
WITHOUT_STATEMENT = {
    "acknowledged-within-request": "The text tells what an acknowledgement holds, without a keyword.",
    "batch-supported": "Only 2025-03-26 has batches.",
    "client-ext-task-answers-known": "The MUST is in a comment of the code, where statements are not looked for.",
    "client-method-not-found": "The text names the code for roots only; JSON-RPC does for every method.",
    "client-results-valid": "The schema gives the form of each result.",
    "completion-at-most-100": "The limit stands in the schema, without a keyword.",
    "ext-task-final": "The diagram of the states has no way out of an end, without a keyword.",
    "ext-task-id-kept": "The comment of the field calls the id stable, without a keyword.",
    "listen-result-has-id": "The text describes the response that ends a subscription, without a keyword.",
    "log-level-respected": "The text says what the level means, without a keyword.",
    "nothing-after-listen": "The text says that a response ends a subscription, without a keyword.",
    "one-message-an-event": "The schema of JSON-RPC leaves nothing else for an event to hold.",
    "unknown-method-code": "JSON-RPC has this code; the text lists it without a keyword.",
    "unknown-method-refused": "JSON-RPC has this error; the text lists it without a keyword.",
    "updates-only-subscribed": "The schema describes the notification as one to subscribers, without a keyword.",
    "websocket-messages": "A custom transport has to keep the message format; the specification defines no WebSocket.",
}


def test_each_rule_has_a_statement() -> None:
    named = {rule for each in statements() for rule in each.rules}
    assert named - RULES.keys() == set(), "statements name rules that don't exist"
    # The tables do not list what the specifications of skills and of apps say: tests/extensions quotes them.
    elsewhere = {
        rule.id for rule in RULES.values() if rule.section.startswith(("extensions/skills", "extensions/apps"))
    }
    expected = {rule.id for rule in RULES.values() if rule.level == "EXPECTED"}
    assert RULES.keys() - named - elsewhere - expected == WITHOUT_STATEMENT.keys()
    assert not expected & named, "what a statement demands is not only expected"


def test_a_rule_takes_its_words_from_one_statement() -> None:
    named = Counter(rule for each in statements() for rule in each.rules)
    owned = Counter(rule for each in statements() for rule in each.owns)
    assert owned == {rule: 1 for rule, times in named.items() if times > 1}


def test_links_lead_to_the_section() -> None:
    base = "https://modelcontextprotocol.io/specification/2026-07-28"
    links = {Location("2026-07-28", section, "").link for section in ("basic#_meta", "index#overview", "basic")}
    assert links == {f"{base}/basic#_meta", f"{base}#overview", f"{base}/basic"}


def test_links_to_an_extension_lead_to_its_own_page() -> None:
    link = "https://github.com/modelcontextprotocol/ext-tasks/blob/main/specification/2026-07-28/tasks.md#task-creation"
    assert Location("2026-07-28", "extensions/tasks#task-creation", "").link == link
    assert RULES["ext-task-durable"].link("2026-07-28") == link


# What a page says, and the statements in it: anchor, keyword and sentence.
PAGES = {
    "a sentence over lines, with markup": (
        """\
        ## The *first* `Heading`
        Nothing here. A [server](/x(y)) **MUST
        NOT** send `a` or **b**, e.g. in a list. It may rest.
        """,
        [("the-first-heading", "MUST NOT", "A server MUST NOT send a or b, e.g. in a list.")],
    ),
    "code, comments and front matter": (
        """\
        ---
        description: it MUST
        ---
        ```json
        "MUST"
        ```
        {/* SHOULD */}
          ~~~
          MUST
          ~~~
        """,
        [],
    ),
    "synonyms, and two keywords in a sentence": (
        "That is REQUIRED. It SHALL NOT be and is RECOMMENDED, though it MAY be SHOULD-constrained.",
        [
            ("", "MUST", "That is REQUIRED."),
            ("", "MUST NOT", "It SHALL NOT be and is RECOMMENDED, though it MAY be SHOULD-constrained."),
            ("", "SHOULD", "It SHALL NOT be and is RECOMMENDED, though it MAY be SHOULD-constrained."),
        ],
    ),
    "a list with its beginning": (
        """\
        1. Clients **MUST**:
           - check `a`
             and b
           - check c. They SHOULD NOT wait.
        2. Other things
        """,
        [
            ("", "MUST", "Clients MUST: check a and b"),
            ("", "MUST", "Clients MUST: check c."),
            ("", "SHOULD NOT", "They SHOULD NOT wait."),
        ],
    ),
    "a beginning without a list": (
        """\
        They MUST send this:

        ```json
        ```

        - nothing
        """,
        [("", "MUST", "They MUST send this:")],
    ),
    "a component and a table": (
        """\
        <Warning>
          Servers **SHOULD** warn.
        </Warning>
        Each MUST have:

        | Name | Use |
        | ---- | --- |
        | `a`  | b   |
        """,
        [("", "SHOULD", "Servers SHOULD warn."), ("", "MUST", "Each MUST have: a b")],
    ),
    "a member of the schema": (
        """\
        ### `Thing`
        <div class="tsd-signature">MUST</div>
        <div class="tsd-anchor-link" id="thing-x" data-typedoc-h="3"><span>x: MUST</span></div>
        <div class="tsd-comment"><p>It <code>MUST</code> be &gt; 0. Else:</p> <ul> <li>One SHOULD go</li></ul></div>
        """,
        [("thing-x", "MUST", "It MUST be > 0."), ("thing-x", "SHOULD", "One SHOULD go")],
    ),
    "headings of one name, and signs in them": (
        "# A\nIt MUST.\n# A\nIt SHOULD.\n# B & C (d)\nIt MUST.",
        [("a", "MUST", "It MUST."), ("a-2", "SHOULD", "It SHOULD."), ("b-%26-c-d", "MUST", "It MUST.")],
    ),
    "keywords that are only mentioned": ("The key words MUST and SHOULD are to be read as follows.", []),
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_finds_statements(page: str) -> None:
    text, expected = PAGES[page]
    assert list(of_page(dedent(text))) == expected


def test_compares_with_a_checkout(tmp_path: Path) -> None:
    for revision in REVISIONS:
        page = tmp_path / "docs" / "specification" / revision / "server" / "tools.mdx"
        page.parent.mkdir(parents=True)
        page.write_text("## Calls\nIt MUST be.\n\nIt MUST be.\n\nIt SHOULD be.\n")
    old, new = REVISIONS
    section = "server/tools#calls"
    must, should = short_hash("It MUST be."), short_hash("It SHOULD be.")
    same, changed = Location(old, section, must), Location(old, section, "00000000")
    listed = [
        Statement("Be.", "MUST", "both", (same, changed, Location(new, section, must)), (), ""),
        Statement(
            "Try to be.", "SHOULD", "both", (Location(old, section, should), Location(new, section, should)), (), ""
        ),
        Statement("Don't be.", "MUST NOT", "both", (Location(new, section, must),), (), ""),
    ]
    found = {(each.kind, *each.where[::2]) for each in differences(found_in(tmp_path, REVISIONS), listed)}
    assert found == {("changed", old, "MUST"), ("new", new, "MUST"), ("gone", new, "MUST NOT")}


def test_compares_with_a_checkout_of_an_extension(tmp_path: Path) -> None:
    """Its headings of one name are numbered as GitHub does it."""
    page = tmp_path / "specification" / "2026-07-28" / "tasks.md"
    page.parent.mkdir(parents=True)
    page.write_text("# A\n\n## Response\nIt MUST be.\n\n## Response\nIt SHOULD be.\n")
    found = [
        (each.revision, each.section, each.keyword) for each in of_extension(tmp_path, "extensions/tasks", REVISIONS)
    ]
    new = REVISIONS[-1]
    assert found == [(new, "extensions/tasks#response", "MUST"), (new, "extensions/tasks#response-1", "SHOULD")]


def test_says_what_a_checkout_lacks(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has no pages"):
        list(found_in(tmp_path, REVISIONS))
