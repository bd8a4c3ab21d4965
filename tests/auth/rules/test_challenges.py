"""The parser of challenges: what is sent is read, whatever else comes does no harm."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from trio_mcp.auth.rules.challenges import (
    MAX_FIELD,
    Challenge,
    Wanted,
    format_challenge,
    parse_challenges,
    read_wanted,
)
from trio_mcp.http.headers import Headers

TOKENS = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=8)
PLAIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)
CHALLENGES = st.tuples(TOKENS, st.dictionaries(TOKENS.map(str.lower), PLAIN, max_size=4))

METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
EVIL = "https://evil.example/prm"


@given(st.lists(CHALLENGES, max_size=4), st.sampled_from([", ", ",", " ,, \t, "]))
def test_what_is_formatted_is_read_again(challenges: list[tuple[str, dict[str, str]]], comma: str) -> None:
    """Any names and values survive, alone and among others."""
    text = comma.join(format_challenge(scheme, parameters) for scheme, parameters in challenges)
    expected = [Challenge(scheme.lower(), parameters) for scheme, parameters in challenges]
    assert parse_challenges(text) == expected


@given(
    st.one_of(
        st.text(), st.text(' \t,="\\Bearerscope;()\x00ü', max_size=60), st.binary().map(lambda b: b.decode("latin-1"))
    )
)
def test_nothing_makes_the_parser_raise(text: str) -> None:
    """Nor the reader of a whole response; what it shows has no control characters."""
    parse_challenges(text)
    wanted = read_wanted(Headers([("WWW-Authenticate", text), ("DPoP-Nonce", text)]))
    assert (wanted.description or "").isprintable()


@given(st.text(max_size=20), st.text(' ",\\=ax', max_size=20))
def test_a_quoted_string_hides_all_that_is_in_it(before: str, inside: str) -> None:
    """No value can pass for another parameter, or for another challenge."""
    decoy = f'{before}", resource_metadata="{EVIL}", Bearer resource_metadata="{EVIL}{inside}'
    text = format_challenge("Basic", {"realm": decoy}) + f', Bearer realm="x", resource_metadata="{METADATA}"'
    wanted = read_wanted(Headers([("WWW-Authenticate", text)]))
    assert (wanted.metadata, wanted.others) == (METADATA, ("basic",))


@pytest.mark.parametrize(
    "piece",
    ['"', '\\"', "a=", 'a="', "a ", " ", ",", "=", "Bearer a=b,", "a,", '"\\', "Bearer a=b ", "Bearer aaaa== ", "ü"],
)
def test_time_grows_with_the_length_only(piece: str) -> None:
    """Pieces on which a pattern that tries again would need the square of it, or more; there is a limit besides."""
    text = "Bearer " + piece * (10 * MAX_FIELD)
    began = time.process_time()
    parse_challenges(text)
    assert time.process_time() - began < 0.5  # some milliseconds; with the square it would be seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The examples of RFC 9110, section 11.6.1, and RFC 6750, section 3.
        (
            'Basic realm="simple", Newauth realm="apps", type=1,\ttitle="Login to \\"apps\\""',
            [("basic", {"realm": "simple"}), ("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'})],
        ),
        ("Negotiate a2VyYmVyb3M=, Bearer", [("negotiate", "a2VyYmVyb3M="), ("bearer", {})]),
        ("Negotiate", [("negotiate", {})]),
        (
            'Bearer realm="example", error="invalid_token", error_description="The access token expired"',
            [
                (
                    "bearer",
                    {"realm": "example", "error": "invalid_token", "error_description": "The access token expired"},
                )
            ],
        ),
        # What servers send although the grammar has no room for it.
        (f"Bearer resource_metadata={METADATA}", [("bearer", {"resource_metadata": METADATA})]),
        ('Bearer realm="a" scope="b c"', [("bearer", {"realm": "a", "scope": "b c"})]),
        ('bearer REALM = "a" , , Scope=b', [("bearer", {"realm": "a", "scope": "b"})]),
        ('Bearer scope="a", realm=, error=x', [("bearer", {"scope": "a", "realm": "", "error": "x"})]),
        ('Bearer scope="a", scope="b"', [("bearer", {"scope": "a"})]),
        # What is malformed ends its challenge, and no more.
        (
            'Bearer scope="a", a==b, error=x, DPoP algs="ES256"',
            [("bearer", {"scope": "a"}), ("dpop", {"algs": "ES256"})],
        ),
        (
            'Bearer scope="a", error="never closed, DPoP algs="ES256"',
            [("bearer", {"scope": "a", "error": "never closed, DPoP algs="})],
        ),
        ('Bearer scope="a", error="never closed', [("bearer", {"scope": "a"})]),
        ('realm="a", Bearer', [("bearer", {})]),
        ('"Bearer", (Bearer), =Bearer', []),
        ("", []),
        (" ,\t, ", []),
    ],
)
def test_table(text: str, expected: list[tuple[str, dict[str, str] | str]]) -> None:
    """What is read from a field: for each challenge its parameters, or its token."""
    assert parse_challenges(text) == [
        Challenge(scheme, {}, rest) if isinstance(rest, str) else Challenge(scheme, rest) for scheme, rest in expected
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            [f'Bearer resource_metadata="{METADATA}", scope="a b  a"'],
            Wanted(METADATA, frozenset({"a", "b"}), bearer=True),
        ),
        (
            ['Basic realm="x"', 'DPoP algs="ES256", error="use_dpop_nonce"', f"Bearer resource_metadata={METADATA}"],
            Wanted(METADATA, error="use_dpop_nonce", dpop=True, bearer=True, others=("basic",)),
        ),
        (
            [
                f'Bearer resource_metadata="{METADATA}", scope="a"',
                f'DPoP resource_metadata="{EVIL}", error="e", scope="b"',
            ],
            Wanted(METADATA, frozenset({"a"}), error="e", dpop=True, bearer=True),
        ),
        # Another scheme's parameters are not ours.
        ([f'Basic resource_metadata="{EVIL}", scope="root"', "Bearer"], Wanted(bearer=True, others=("basic",))),
        ([f'BearerX resource_metadata="{EVIL}"'], Wanted(others=("bearerx",))),
        (['Bearer scope=""'], Wanted(scopes=frozenset(), bearer=True)),
        (['Bearer scope="a\\" b c\td"'], Wanted(scopes=frozenset({"b"}), bearer=True)),
        (['Bearer error_description="a\x1b[2Jb"'], Wanted(description="a [2Jb", bearer=True)),
        (["Bearer resource_metadata=''"], Wanted(metadata="''", bearer=True)),
        (['Bearer resource_metadata=""'], Wanted(bearer=True)),
        ([], Wanted()),
    ],
)
def test_what_a_response_asks_for(fields: list[str], expected: Wanted) -> None:
    """The challenges of Bearer and DPoP together; the first one that says something counts."""
    assert read_wanted(Headers([("WWW-Authenticate", field) for field in fields])) == expected


@pytest.mark.parametrize(
    ("scheme", "name"), [("Bea rer", "a"), ("", "a"), ("Bearer", "a b"), ("Bearer", ""), ("Ü", "a")]
)
def test_names_that_cannot_be_sent(scheme: str, name: str) -> None:
    """They are a mistake of the program."""
    with pytest.raises(ValueError, match="is not a valid name"):
        format_challenge(scheme, {name: "x"})


def test_values_are_made_fit_to_send() -> None:
    """A value never breaks out of its quotes, nor the field out of its line."""
    sent = format_challenge("Bearer", {"error_description": 'a"b\\c\r\nSet-Cookie: x\x00ü'})
    assert sent == 'Bearer error_description="a\\"b\\\\c  Set-Cookie: x  "'


@pytest.mark.parametrize("field", [
    'Bearer error="invalid_token", error_description="not {}"',
    'Bearer error="insufficient_scope", scope="{}"',
    'Bearer error="invalid_token", scope="\\{}"',
    'DPoP error="{}"',
])  # fmt: skip
def test_a_challenge_that_repeats_the_token_is_not_read(field: str) -> None:
    token = "CANARY-0123456789"
    headers = Headers([("WWW-Authenticate", field.format(token))])
    assert read_wanted(headers) != Wanted()
    assert read_wanted(headers, token=token) == Wanted()
    # What is short is a part of any word.
    assert read_wanted(headers, token="e") != Wanted()
