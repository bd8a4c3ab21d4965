"""`trio_mcp._secrets`: what counts as a secret, and that taking secrets out of a text takes linear time."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.tables import by_outcome, each_of
from trio_mcp import _secrets
from trio_mcp._secrets import LABELS, MASK, Place, is_secret, mask_text, mask_words

FIELD, WIRE, QUERY = Place

# --- names ------------------------------------------------------------------------------------------------------------


@each_of(
    "name",
    # AWS | Azure | Google Cloud
    "X-Amz-Security-Token | X-Amz-Signature | X-Amz-Credential | aws_secret_access_key | AWS_SESSION_TOKEN"
    " | accessKeyId"
    " | x-functions-key | Ocp-Apim-Subscription-Key | subscription-key | AccountKey | SharedAccessKey"
    " | SharedAccessSignature | AZURE_STORAGE_KEY | AzureConnectionString"
    " | X-Goog-Api-Key | X-Goog-Signature | private_key | GOOGLE_API_KEY"
    # GitHub, GitLab | Slack, Stripe, Twilio, SendGrid, Shopify | Atlassian, Notion | OpenAI, Anthropic
    " | GITHUB_TOKEN | GH_PAT | X-Hub-Signature-256 | PRIVATE-TOKEN | JOB-TOKEN | Deploy-Token | CI_JOB_JWT"
    " | SLACK_SIGNING_SECRET | slackBotToken | Stripe-Signature | webhook_secret | TWILIO_AUTH_TOKEN | SENDGRID_API_KEY"
    " | X-Shopify-Access-Token | atlassian_api_token | NOTION_KEY | OPENAI_API_KEY | x-api-key | anthropicApiKey"
    # Cloudflare | Datadog, New Relic, PagerDuty, HubSpot | Kong, Apigee, AWS API Gateway, RapidAPI | Vault, Kubernetes
    " | X-Auth-Key | CF-Access-Client-Secret | CF-Access-Jwt-Assertion | X-Auth-User-Service-Key | DD-API-KEY"
    " | DD-APPLICATION-KEY | application_key | Api-Key | X-License-Key | X-Insert-Key | NEW_RELIC_LICENSE_KEY"
    " | routing_key | hapikey | apikey | X-RapidAPI-Key | X-Vault-Token | role_secret_id | client-key-data"
    " | .dockerconfigjson_auth | identitytoken"
    # OAuth and sign-ins | HTTP | everything else
    " | client_secret | clientSecret | refresh_token | id_token | id_token_hint | subject_token | client_assertion"
    " | code_verifier | oauth_verifier | oauth_token_secret | device_code | user_code | authorization_code"
    " | SAMLResponse"
    " | otp | totp_seed | one_time_code | 2fa_code | mfaCode | backup_codes | csrf | X-CSRF-Token | XSRF-TOKEN"
    " | Authorization | Proxy-Authorization | Cookie | Set-Cookie | DPoP | Mcp-Session-Id | PHPSESSID | session_key"
    " | password | PGPASSWORD | dbPasswd | user.password | passphrase | pass | pwd | pin | secret | secrets"
    " | credentials"
    " | creds | auth | basic_auth | _authToken | token | tokens | accessTokenV2 | bearer | jwt"
    " | encryptionKey | ssh_key",
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@each_of(
    "name",
    "key | code | monkey | keyboard | hotkey | key_id | keys | keyword | primary_key | foreign_key"
    " | sort_key | cacheKey"
    " | partition_key | public_key | PUBLIC_KEY | translation-key | Idempotency-Key | Sec-WebSocket-Key | issue_key"
    " | status_code | error_code | zip_code | country_code | code_challenge | qr_code | codes | decode"
    " | progressToken | max_tokens | maxTokens | tokens_used | total_tokens | input_tokens | cached_tokens"
    " | token_count"
    " | tokenizer | tokenize | token_type | token_endpoint | tokens_per_second | nextPageToken | next_token"
    " | x-ratelimit-remaining-tokens | anthropic-ratelimit-tokens-limit | unexpected token | stop_token"
    " | author | authority | authenticated | authorization_servers | authorization_endpoint | WWW-Authenticate | oauth"
    " | token_endpoint_auth_methods_supported | bearer_methods_supported | auth_method | signature | sign | design"
    " | password_policy | password_url | secret_name | secretary | cookie_policy | session | session_timeout"
    " | compass | passed | bypass | passenger | pinned | opinion | spin | gpio_pin | assertion | verifier"
    " | ticket | state"
    " | X-Auth-Email | io.modelcontextprotocol/oauth-client-credentials | Content-Type"
    " | Mcp-Protocol-Version | ETag | ",
)
def test_names_that_only_look_like_those_of_secrets(name: str) -> None:
    assert not is_secret(name)


@by_outcome(
    "name",
    "since",
    {
        WIRE: "signature | sig | Maps-Key | MAPS_KEY | X-Query-Key",
        QUERY: "key | code | hmac | assertion",
        None: "sort-key | PRIMARY_KEY | error_code | state | page | KEYS",
    },
)
def test_some_names_are_those_of_secrets_in_some_places(name: str, since: Place | None) -> None:
    """`Place` has them in order: each has the names of those before it."""
    lower = name.lower().replace("-", "_")  # elsewhere than in a header and in the environment
    assert [place for place in Place if is_secret(lower, place)] == [
        place for place in Place if since is not None and place >= since
    ]


def test_of_a_long_name_the_beginning_and_the_end_count() -> None:
    assert is_secret("password" + "n" * 50_000)
    assert is_secret("n" * 50_000 + "-password")
    assert not is_secret("n" * 50_000)


# --- texts ------------------------------------------------------------------------------------------------------------

PEM = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128\n\nMII\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        # Headers.
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        *(
            (each, each)  # a challenge names what is wrong, and no secret
            for each in (
                'WWW-Authenticate: Bearer error="invalid_token", scope="read"',
                'Bearer realm="staff", error="insufficient_scope"',
                'DPoP algs="ES256", error="use_dpop_nonce"',
                'Bearer resource_metadata="https://host.example/.well-known/oauth-protected-resource"',
            )
        ),
        ("bearer key: abcdef", "bearer key: ***"),
        ("authorization: hunter2 hunter3\r\nAccept: */*", "authorization: ***\r\nAccept: */*"),
        ('Authorization: Digest username="me", response="6629"', "Authorization: Digest ***"),
        ("curl -H 'Authorization: Basic dXNlcjpwYXNz' https://host", "curl -H 'Authorization: Basic ***' https://host"),
        ("Cookie: a=b; sid=xyz\nAccept: */*", "Cookie: ***\nAccept: */*"),
        ("x-functions-key: abc", "x-functions-key: ***"),
        ("Ocp-Apim-Subscription-Key:abc", "Ocp-Apim-Subscription-Key:***"),
        ("sent Token 0123456789abcdef", "sent Token ***"),
        # Queries, forms, and URLs within URLs.
        ("https://me:hunter2@host/x?token=abc&page=2#top", "https://***@host/x?token=***&page=2#top"),
        ("postgres://me:p@ss@host/db", "postgres://***@host/db"),
        ("https://host/?key=AbC-1&q=pears", "https://host/?key=***&q=pears"),
        ("https://host/back?state=x&code=AbC", "https://host/back?state=x&code=***"),
        ("https://blob.example/c?sv=2022&sig=a%2Fb%3D&se=9", "https://blob.example/c?sv=2022&sig=***&se=9"),
        (
            "https://s3/x?X-Amz-Credential=A/1/s3&X-Amz-Signature=fe5",
            "https://s3/x?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        (
            "https://a/?to=https%3A%2F%2Fb%3Fcode%3DAbC%26page%3D2",
            "https://a/?to=https%3A%2F%2Fb%3Fcode%3D***%26page%3D2",
        ),
        (
            "code=AbC&code_verifier=x&grant_type=authorization_code",
            "code=***&code_verifier=***&grant_type=authorization_code",
        ),
        # The environment and command lines.
        ("API_KEY=abc HOME=/root PASSWORD='x'", "API_KEY=*** HOME=/root PASSWORD='***'"),
        ("DB=AccountName=me;AccountKey=a+/=;Suffix=net", "DB=AccountName=me;AccountKey=***;Suffix=net"),
        ("serve --token abc --port 80", "serve --token *** --port 80"),
        ("serve --token=abc -v", "serve --token=*** -v"),
        # Any space, any quotes.
        ("password:  hunter2", "password:  ***"),
        ("password\t=\t\t`hunter2`", "password\t=\t\t`***`"),
        ("Password:\n  hunter2\nNext: line", "Password:\n  ***\nNext: line"),
        ("API key: abc, sort key: abc, max tokens: 5", "API key: ***, sort key: abc, max tokens: 5"),
        # JSON, also within strings; Python; XML; YAML.
        ('{"password": "two words", "progressToken": "p"}', '{"password": "***", "progressToken": "p"}'),
        (r'{"password": "a\"b\\", "user": "me"}', '{"password": "***", "user": "me"}'),
        (r"{\"secret\":\"s\"}", r"{\"secret\":\"***\"}"),
        (r"{\"secret\":\"a\\\"b\", \"user\":\"me\"}", r"{\"secret\":\"***\", \"user\":\"me\"}"),
        ("{'password': 'x', 'user': 'me', 'otp': 123456}", "{'password': '***', 'user': 'me', 'otp': ***}"),
        (
            "<User>me</User><SecretAccessKey>a/b</SecretAccessKey>",
            "<User>me</User><SecretAccessKey>***</SecretAccessKey>",
        ),
        ('{"credentials": {"user": "}", "key": ["a"]}, "id": 1}', '{"credentials": ***, "id": 1}'),
        ("tokens: [1, [2], 'it'] and more", "tokens: *** and more"),
        ("credentials:\n  user: me\n\n  key: abc\nname: x", "credentials:\n  ***\nname: x"),
        ("credentials:\r\n  user: me\r\n\r\n  key: abc\r\nname: x", "credentials:\r\n  ***\nname: x"),
        ("token:\npassword: x", "token:\npassword: ***"),
        ("password: |\n  two\n\n  lines\nname: x", "password: ***\nname: x"),
        ("- token: >-\n    two\n    lines\n  name: |\n    x", "- token: ***\n  name: |\n    x"),
        ("password: > 5", "password: > 5"),
        # A name and a value that it names.
        ('{"name": "API_TOKEN", "value": "abc"}', '{"name": "API_TOKEN", "value": "***"}'),
        ('{"value": "abc", "name": "API_TOKEN"}', '{"value": "***", "name": "API_TOKEN"}'),
        (r"[{\"key\":\"x-api-key\",\"value\":\"abc\"}]", r"[{\"key\":\"x-api-key\",\"value\":\"***\"}]"),
        (
            "- name: API_TOKEN\n  value: abc\n- name: PORT\n  value: 80",
            "- name: API_TOKEN\n  value: ***\n- name: PORT\n  value: 80",
        ),
        ("{'Name': 'password', 'Value': 'abc'}", "{'Name': 'password', 'Value': '***'}"),
        ('{"name": "greeting", "value": "hello"}', '{"name": "greeting", "value": "hello"}'),
        # Looks.
        ("eyJhbGciOi.eyJzdWIiOi.c2ln", "***"),
        ("id-eyJhbGciOi.eyJzdWIiOi.c2ln, eyJhbGciOi.eyJzdWIiOi", "id-***, eyJhbGciOi.eyJzdWIiOi"),
        (PEM + "\nand", "***\nand"),
        (PEM[:60], "***"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_or_is_named_like_one_is_masked(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@each_of(
    "text",
    # GitHub, GitLab | Slack, Stripe | Twilio, SendGrid, Shopify, Atlassian, Notion | OpenAI, Anthropic and others
    "ghp_abcdefghijklmnop1234 | github_pat_11ABCDEFG0abcdefghij | glpat-abcdefghij1234567890 | xoxb-123456789012-abcdef"
    " | sk_live_abcdefghijklmnop1234 | rk_test_abcdefghijklmnop1234 | whsec_abcdefghijklmnop1234"
    " | SK0123456789abcdef0123456789abcdef | SG.abcdefghijklmnop12.abcdefghijklmnop"
    " | shpat_0123456789abcdef0123456789abcdef"
    " | ATATT3xFfGF0abcdefghijkl | ntn_1234567890abcdefghij | sk-abcdefghijklmnop1234 | sk-proj-abcdefghijklmnop1234"
    " | sk-ant-api03-abcdefghijklmnop | hf_abcdefghijklmnop1234 | gsk_abcdefghijklmnop1234"
    # AWS, Google | New Relic, HubSpot, Vault, npm, PyPI
    " | AKIAABCDEFGHIJKLMNOP | ASIAABCDEFGHIJKLMNOP | AIzaSyA1234567890abcdefghijklmnopqrstu"
    " | ya29.a0AfH6SMBabcdefghijk1"
    " | GOCSPX-abcdefghijklmnop1234 | NRAK-ABCDEFGHIJKLMNOP1234 | pat-na1-0123abcd-4567-89ef-0123-456789abcdef"
    " | hvs.CAESIabcdefghijklmn1 | npm_abcdefghijklmnop1234 | pypi-AgEIcHlwaS5vcmcCJDEyMzQ",
)
def test_keys_that_can_be_recognised_are_masked_anywhere(text: str) -> None:
    assert mask_text(f"see {text}, and more") == "see ***, and more"


@each_of(
    "text",
    "max_tokens=100, basic authentication | the monkey: 5 | {'key': 'pears', 'code': 404} | sort_key=name"
    " | https://host/keys/abc?page=2&sort=key#code | errors: {'code': -32602} | code: 404 | Basic usage/examples"
    " | hf_hub_enable_hf_transfer | npm_config_user_agent_name | sk-estimator-doc-link-item | if tokens > 5: stop"
    " | def login(password: str, token: str = None) | password: required | tokens: 512 | is_secret: false"
    " | Idempotency-Key: 7f | status code: 200 | 12:30:45 | a = b | Bearer of news | ftp://host/a@b | see a@b.example"
    ' | {"token": {"type": "string", "minLength": 1}} | {"name": "token", "description": "x", "required": true}',
)
def test_what_is_harmless_can_be_read(text: str) -> None:
    assert mask_text(text) == text


def test_an_option_for_a_secret_hides_what_follows() -> None:
    assert mask_words(["node", "--token", "abc", "--port", "80", "s3.js"]) == "node --token *** --port 80 s3.js"


@given(text=st.text(alphabet="a=:\"\\ -?&Betokn.ry/@J'{}[]<>\n%", max_size=200))
@settings(max_examples=examples(300))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


# --- time -------------------------------------------------------------------------------------------------------------

# Python's own parser of patterns, which is private: there is no other.
PARSER: Any = re._parser  # type: ignore[attr-defined]  # noqa: SLF001
UNBOUNDED = PARSER.MAXREPEAT
MOST = 1000


def patterns() -> Iterator[re.Pattern[str]]:
    for value in vars(_secrets).values():
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]:
            pattern = each[0] if isinstance(each, tuple) else each
            if hasattr(pattern, "pattern") and hasattr(pattern, "flags"):
                yield pattern


def can_be_empty(parsed: Any) -> bool:
    return bool(parsed.getwidth()[0] == 0)


def steps(parsed: Any, *, last: bool) -> int:
    """Return how many characters one attempt may read, in vain, at most; what it takes in for good costs nothing.

    Args:
        parsed: A parsed pattern, or a part of it.
        last: Whether nothing that follows it can fail.
    """
    total = 0
    for place, (kind, what) in enumerate(parsed):
        rest = parsed[place + 1 :]
        ends = last and can_be_empty(rest)
        total += _steps(str(kind), what, ends)
    return total


def _steps(kind: str, what: Any, last: bool) -> int:
    match kind:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, inner = what
            if most == UNBOUNDED:
                assert last, "what follows a repetition without a bound can fail: its text is read again and again"
                assert kind == "POSSESSIVE_REPEAT" or len(inner) == 1
                return steps(inner, last=False)
            # One that is not possessive is tried again with each smaller number.
            tried = 1 if kind == "POSSESSIVE_REPEAT" else most - least + 1
            return int(most * steps(inner, last=False) * tried)
        case "SUBPATTERN":
            return steps(what[3], last=last)
        case "ATOMIC_GROUP":
            return steps(what, last=last)
        case "BRANCH":
            return sum(steps(each, last=last) for each in what[1])
        case "ASSERT" | "ASSERT_NOT":
            return steps(what[1], last=False)
        case "GROUPREF_EXISTS":
            return sum(steps(each, last=last) for each in what[1:] if each is not None)
        case _:
            return 1


@pytest.mark.parametrize("pattern", list(patterns()), ids=lambda pattern: pattern.pattern[:40])
def test_every_pattern_takes_linear_time(pattern: re.Pattern[str]) -> None:
    """A peer may send megabytes of what nearly matches, again and again.

    An attempt at one character reads no more than a fixed number of others in vain, so that a text of any kind takes
    time in proportion to its length.
    """
    assert steps(PARSER.parse(pattern.pattern, pattern.flags), last=True) <= MOST


@each_of("pattern", "(a+)+b | a*b | (a|b)*c | a{1,40}a{1,40}b | a+?b | x(a*)y? z")
def test_a_pattern_that_takes_longer_is_noticed(pattern: str) -> None:
    with pytest.raises(AssertionError):
        assert steps(PARSER.parse(pattern), last=True) <= MOST


def lines_run(text: str) -> int:
    """Return how many lines of the module run to mask a text."""
    counted = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        if frame.f_code.co_filename != _secrets.__file__:
            return None
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        mask_text(text)
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.parametrize(
    "piece",
    [
        *("password=", "token: ", "key=", "value='", 'value: "', "value=`'", r"\"value\":\"", '"', "\\", "%3Fcode%3D"),
        *("--token ", '{"credentials": ', "credentials: [", '{"token": {"type": "string", ', "token:\n "),
        *("token:\n", " - name: x\n", "<token>"),
        *("Authorization: x\\n", "'cookie: ", "name: password, ", "value=''name=", "eyJaaaaa-", "://a"),
    ],
)  # fmt: skip
def test_twice_the_text_takes_twice_the_steps(piece: str) -> None:
    """What is done with the matches of patterns reads on as well: to a closing quote, or bracket, or line."""
    once, twice = lines_run(piece * 300), lines_run(piece * 600)
    assert twice <= 2.1 * once + 50


def test_labels_are_names_in_json() -> None:
    assert set(LABELS.values()) <= {"value", "Value", "ParameterValue"}
    assert MASK not in LABELS
