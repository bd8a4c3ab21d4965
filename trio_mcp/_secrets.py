"""Secrets: the names that they have, the patterns that they follow, and how to mask them in text.

Three things reveal a secret: its name, the place where that name occurs, and what the secret itself looks like. The
names are those used by the most popular APIs and gateways: AWS, Azure, Google Cloud, GitHub, GitLab, Slack, Stripe,
Twilio, SendGrid, Shopify, Atlassian, Notion, OpenAI, Anthropic, Cloudflare, Datadog, New Relic, PagerDuty, HubSpot,
Kong; and by OAuth, HTTP, Kubernetes and Vault.

It is better to mask too much than to show what cannot be taken back. Still, a text that shows nothing is of no use, so
the names that only resemble those of secrets are listed as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeAlias

from trio_mcp._patterns import late_pattern

__all__ = [
    "LABELS",
    "MASK",
    "Place",
    "is_secret",
    "mask_text",
    "mask_words",
    "names_session",
    "without_credentials",
    "without_options",
]

MASK: Final = "***"

MAX_NAME: Final = 200
"""The length up to which a name is examined as a whole; of a longer name, only the beginning and the end are examined.

An arbitrary choice.
"""


class Place(IntEnum):
    """The places where a name can occur. A name that reveals a secret in one place does so in all later places, too."""

    FIELD = 0
    """JSON, text or a command line, where only unmistakable names reveal a secret."""
    WIRE = 1
    """A header field or an environment variable, where nearly every ``…-KEY`` is an API key."""
    QUERY = 2
    """The query of a URL, where ``key`` is an API key and ``code`` an authorization code (RFC 6749, section 4.1.2)."""


# --- names ------------------------------------------------------------------------------------------------------------

# Names are compared by their words, in lower case: `apiKey`, `API-KEY` and `api_key` all become `_api_key_`.
_WORD = late_pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

# These words may occur anywhere in a name, with or without separators, as in PGPASSWORD, hapikey and accesstoken.
_ANYWHERE = late_pattern(
    "passw(or)?d|passphrase|passcode|secret(?!ar)|credential|cookie|jwt|bearer|authorization"
    "|(api|access|private|signing|encryption|subscription|functions)key|accesssignature|connectionstring"
    "|sess(ion)?id|dpop|samlresponse|(access|auth|bearer|csrf|id|identity|refresh|session|user)token"
)
_SESSION = late_pattern("sess(ion)?id")

# These kinds of keys and codes are secrets even in JSON, where nearly all other keys and codes are harmless.
_KEYS: Final = (
    "account|admin|aes|anon|app|application|auth|client|consumer|decryption|deploy|function|hmac|ingestion|insert"
    "|integration|license|master|rapidapi|rest|role|routing|server|service|session|shared|sign|ssh|storage|symmetric"
    "|webhook|write"
)
_CODES: Final = (
    "access|activation|auth|backup|confirmation|device|fa|login|mfa|one_time|otp|pairing|recovery|security|sms|user"
    "|verification"
)
_BY_PLACE: Final = {
    Place.FIELD: late_pattern(
        "_(token|csrf|xsrf|otp|totp|hotp|creds?)_|_(pass|pwd|pin|auth|tokens|client_assertion)_$"
        rf"|_(code|oauth)_verifier_$|_({_KEYS})_keys?_((base_)?64_|pem_|data_|value_|hex_)?$|_({_CODES})_codes?_$"
    ),
    Place.WIRE: late_pattern("_(sig|signature|pat)_|[a-z0-9]_key_((base_)?64_)?$"),
    Place.QUERY: late_pattern("^_(key|code|hmac|assertion)_$"),
}

# A name that contains one of these words is not that of a secret, even if it also matches one of the preceding
# patterns.
_HARMLESS = late_pattern(
    # These tokens are the units that language models count, or belong to the protocol, to parsers or to paginated
    # results.
    "_(progress|max|min|input|output|total|prompt|completion|stop|eos|bos|pad|unk|sep|cls|unexpected|next|prev|previous"
    "|page|pagination|continuation|continue|sync|resume|starting)_tokens?_"
    "|_(cached|limit|new|reasoning|remaining|special|thinking|used)_tokens_|_tokens_(left|per|remaining|used)_"
    "|_token_(address|bucket|ids?|ring|symbol)_|ratelimit|_rate_limit_"
    # These keys belong to tables, caches or keyboards, or to WebSocket (RFC 6455, section 4.1).
    "|_(primary|foreign|sort|partition|hash|range|row|cache|surrogate|idempotency|dedup|deduplication|public|publishable"
    "|lookup|object|parent|group|composite|natural|unique|index|socket|translation|registry|hot|arrow|enter|shift"
    "|ctrl|alt|tab|escape)_keys?_|_(gpio|led)_pin_"
    # A value whose name ends with one of these words only describes a secret (its type, origin or lifetime, for
    # example).
    "|_(types?|type_hint|endpoints?|ur[li]s?|supported|methods?|algs?|algorithms?|counts?|limits?|usage|length|size"
    "|expiry|expires|expires_(in|at|on)|expiration|ttl|lifetime|policy|required|enabled|format|budget|servers?|names?"
    "|prefix|file|path|dir|directory|version|status|details|description|issuer|audience|provider|scopes?)_$"
    # A name that begins like this is that of a protocol extension, which is named after what it does.
    "|^_io_modelcontextprotocol_"
)


def is_secret(name: str, place: Place = Place.FIELD) -> bool:
    """Return whether a value with this name must be masked.

    Args:
        name: The name, in any style, such as ``apiKey`` or ``API-KEY``.
        place: Where the name occurs.
    """
    # A peer may choose a name of any length, so only the beginning and the end of a long one are examined.
    if len(name) > MAX_NAME:
        name = f"{name[: MAX_NAME // 2]} {name[-MAX_NAME // 2 :]}"
    return _is_secret(name, place)


@lru_cache(1024)
def _is_secret(name: str, place: Place) -> bool:
    # A name in upper case or with hyphens counts as an environment variable or a header field, wherever it occurs.
    if place is Place.FIELD and (name.isupper() or "-" in name):
        place = Place.WIRE
    words = f"_{'_'.join(_WORD.findall(name))}_".lower()
    if _HARMLESS.search(words) is not None:
        return False
    joined = words.replace("_", "")
    return _ANYWHERE.search(joined) is not None or any(
        _BY_PLACE[each].search(words) is not None for each in Place if each <= place
    )


def names_session(name: str) -> bool:
    """Return whether a name is that of a session id."""
    return _SESSION.search("".join(_WORD.findall(name[:MAX_NAME])).lower()) is not None


# --- looks ------------------------------------------------------------------------------------------------------------

# Every pattern takes linear time, however hostile the text: each repetition either has a small bound, or is followed by
# nothing that can fail, so that the search continues after the text that the repetition has read. tests/test_secrets.py
# checks this.
_Instead: TypeAlias = str | Callable[[re.Match[str]], str]


def _where(asked: str, masked: Callable[[re.Match[str]], str] = lambda found: MASK) -> Callable[[re.Match[str]], str]:
    """Return a function for `re.sub` that masks a match if its last group matches ``asked``, and otherwise keeps it."""
    wanted = late_pattern(asked)
    return lambda found: masked(found) if wanted.search(found[found.lastindex or 0]) else found[0]


def _without_user(found: re.Match[str]) -> str:
    _, at, host = found[0].rpartition("@")
    return f"{MASK}@{host}" if at else found[0]


_LOOKS: Final[tuple[tuple[re.Pattern[str], _Instead], ...]] = (
    # A PEM block (RFC 7468) extends to its END line, or to the end of the text if the block was cut off. Old PEM blocks
    # begin with header lines that contain hyphens, so a hyphen alone does not end the block.
    (
        late_pattern(
            r"-----BEGIN (?:RSA |EC |DSA |OPENSSH |ENCRYPTED |ANY |PGP )?PRIVATE KEY(?: BLOCK)?-----"
            r"(?>(?:[^-]|-(?!-{4}END ))*)(?:-----END [A-Z ]{0,40}+-{0,5}+)?"
        ),
        MASK,
    ),
    (late_pattern(r"PuTTY-User-Key-File-[0-9]:[\s\S]*"), MASK),
    # HTTP credentials follow the name of their scheme (RFC 9110, section 11.4). The second pattern of each entry
    # excludes prose, such as "a bearer credential".
    (
        # In a challenge, the name of a parameter follows the scheme.
        late_pattern(
            r"\b(Bearer|DPoP|Negotiate|ApiKey|GenieKey|FlyV1)\s{1,16}+"
            r"(?!(?:error_description|error_uri|resource_metadata)=\")([\w.~+/=-]{8,}+)",
            re.IGNORECASE,
        ),
        _where(r"[0-9+/=_.-]", lambda found: f"{found[1]} {MASK}"),
    ),
    (
        late_pattern(r"\b(Basic|Token)\s{1,16}+([\w.~+/=-]{8,}+)", re.IGNORECASE),
        _where(r"[0-9=]|[a-z][A-Z]", lambda found: f"{found[1]} {MASK}"),
    ),
    (
        late_pattern(r"\b(Digest)\s{1,16}+([^\r\n]{8,}+)", re.IGNORECASE),
        _where(r"response=", lambda found: f"{found[1]} {MASK}"),
    ),
    # A JSON Web Token, signed or encrypted, begins with a JSON object, which is "eyJ" in Base64. Whatever follows
    # without a space is masked as well.
    (late_pattern(r"\beyJ([\w.-]{5,}+)"), _where(r"\w\.[\w-]+\.")),
    # Many APIs give their keys a recognizable prefix. If only short words follow the prefix, it belongs to an ordinary
    # name, such as `hf_hub_enable_transfer`.
    (
        late_pattern(
            r"\b((?:sk[-_]|[pr]k_(?:live|test)_|whsec_|gh[pousr]_|github_pat_|gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat)-"
            r"|xox[a-z][-.]|xapp-|shp[a-z]{2}_|hf_|npm_|pypi-|ntn_|pat-[a-z]{2}[0-9]-|gsk_|xai-|pplx-|r8_|lin_api_|PMAK-"
            r"|NR[A-Z]{2}-|do[opr]_v1_|dp\.[a-z]{2}\.|gl(?:c|sa)_|sntry[su]_|figd_|sbp_|sb_secret_|tskey-|nfp_|fo1_|rubygems_"
            r"|pscale_|ops_eyJ|hv[sbr]\.|ya29\.|GOCSPX-|AT[A-Z]TT3|ATBB|AGE-SECRET-KEY-1|SG\.|AIza|v1\.0-)[\w.-]{16,}+)"
        ),
        _where("[0-9]|[A-Za-z]{14}"),
    ),
    (late_pattern(r"\bsecret_[A-Za-z0-9]{40,}+"), MASK),  # a Notion token
    (late_pattern(r"\bdapi[0-9a-f]{32,}+"), MASK),  # a Databricks token
    (late_pattern(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"), MASK),
    (late_pattern(r"\bSK[0-9a-f]{32}\b"), MASK),  # a Twilio API key
    (late_pattern(r"\b[0-9a-f]{32}-us[0-9]{1,2}\b"), MASK),  # a Mailchimp API key
    (late_pattern(r"\b[0-9a-f]{36}NRAL\b"), MASK),  # a New Relic key
    (late_pattern(r"\b[0-9]{8,10}:AA[\w-]{33}"), MASK),  # the token of a Telegram bot
    # The URL of a webhook, such as those of Slack and Discord, is itself a secret.
    (late_pattern(r"(?<=hooks\.slack\.com/)[\w/-]{8,}+"), MASK),
    (late_pattern(r"(?<=/api/webhooks/)[\w/-]{8,}+"), MASK),
    # A URL may contain a user name and a password.
    (late_pattern(r"(?<=://)[^\s/?#\"'<>\\]++"), _without_user),
)


def mask_text(text: str) -> str:
    """Mask everything in the text that looks like a secret, or whose name is that of a secret."""
    for pattern, instead in _LOOKS:
        text = pattern.sub(instead, text)
    return "".join(_without_named(text))


# --- names in a text --------------------------------------------------------------------------------------------------

# This pattern matches a name and the beginning of its value: in a query, in environment variables, in headers, on a
# command line, in JSON, YAML, Python and XML. A quote inside another string has backslashes before it.
_NAMED = late_pattern(
    r"""(?:(?<![\w.%-])|(?<=%3F)|(?<=%26)|(?<=%23))(-{1,2}+)?([A-Z0-9_][\w.-]{0,199}+)"""
    r"""(?:\\{0,15}+["'`]?+[^\S\n]{0,64}+(?:={1,3}+>?+|:=?+|%3D)[^\S\n]{0,64}+(?:\n[ \t]{0,64}+)?"""
    r"""|>|(?(1)[ \t]{1,64}+|(?!)))"""
    r"""(?:[brfu]{0,2}(\\{0,15}+)(["'`]))?""",
    re.IGNORECASE,
)
_CLOSING: Final = {quote: late_pattern(rf"(?<!\\)(\\{{0,63}}+){quote}") for quote in "\"'`"}
_NAME = late_pattern(r"[\w.-]{1,200}+")
_UNQUOTED = late_pattern(r"""[^\s&;,"'`\\<>{}\[\]]*+""")
_ENCODED = late_pattern(r"""(?:[^\s&;,"'`\\<>{}\[\]%]|%(?!2[63]))*""")
_ENCODED_BEFORE = late_pattern("%(?:3F|26|23)", re.IGNORECASE)
_INDENTED = late_pattern("[ ]*+")
_SCALAR = late_pattern(r"[|>][0-9+-]{0,2}+[ \t]{0,64}+\r?+\n")
"""The beginning of a multi-line string in YAML (version 1.2.2, section 8.1)."""
_LINE = late_pattern(r"(?:[^\r\n\\]|\\(?![rn]))*")
_BRACKET = late_pattern(r"""[\[\]{}]|(\\{0,15}+)(["'`])""")
_SCHEME = late_pattern(r"(?:Basic|Bearer|Digest|DPoP|Negotiate|Token|ApiKey|AWS4-HMAC-SHA256) ", re.IGNORECASE)

_OF_CHALLENGES: Final = frozenset(
    {"algs", "error", "error_description", "error_uri", "realm", "resource_metadata", "scope"}
)
"""The parameters that may follow the scheme in ``WWW-Authenticate`` (RFC 6750, section 3; RFC 9449; RFC 9728)."""

_NOTHING: Final = frozenset(
    """true false null none nil undefined str string int integer number float bool boolean bytes object array any
    optional required missing unset empty hidden redacted secretstr""".split()  # noqa: SIM905 - a list of words
)
"""Words that reveal nothing in the place of a value: literals, types, and remarks such as ``redacted``."""

# A JSON schema may describe a secret, but contains none; in text it is recognized by its beginning.
_SCHEMA = late_pattern(
    r"""\{\s{0,64}+\\{0,15}+["'](?:\$ref|title|description|(?:any|one|all)Of|type\\{0,15}+["']\s{0,8}+:\s{0,8}+"""
    r"""(?:\[|\\{0,15}+["'](?:string|number|integer|boolean|object|array|null)))\\{0,15}+["']"""
)

LABELS: Final = {
    "name": "value",
    "key": "value",
    "field": "value",
    "header": "value",
    "variable": "value",
    "Name": "Value",
    "Key": "Value",
    "ParameterKey": "ParameterValue",
}
"""Members of an object that contain the name of a value, each with the member that contains the value itself.

Variables in Kubernetes, headers in HAR and parameters in AWS are written like this.
"""
_LABELLED: Final = frozenset(LABELS.values())
_LABEL_AHEAD = late_pattern(
    r"""\\{0,15}+["'`]?+\s{0,64}+,?+\s{0,64}+\\{0,15}+["'`]?+"""
    rf"""(?:{"|".join(LABELS)})\\{{0,15}}+["'`]?+\s{{0,64}}+[:=]\s{{0,64}}+\\{{0,15}}+["'`]?+([\w.-]{{1,200}}+)"""
)
_BETWEEN: Final = 80
"""The distance, in characters, below which a name and a value form a pair of `LABELS`. An arbitrary choice."""


def _without_named(text: str) -> Iterator[str]:
    """Yield the pieces of a text, with a mask in place of each value that has the name of a secret."""
    at = 0
    label, label_end = "", -_BETWEEN
    for found in _NAMED.finditer(text):
        # This match is inside a value that has already been masked. Treating it as a name would reveal parts of that
        # value.
        if found.start() < at:
            continue
        name, begins = found[2], found.end()
        if name in LABELS:
            labelled = _NAME.match(text, begins)
            if labelled is not None:
                label, label_end = labelled[0], labelled.end()
        if name in _LABELLED:
            near = begins - label_end < _BETWEEN and not text[label_end : found.start(2)].strip(" \t\r\n,\"'\\-")
            secret = is_secret(label if near else _label_ahead(text, found))
        else:
            secret = _is_named_secret(text, found)
        if not secret:
            continue
        shown, end = _value(text, found)
        if end > begins:
            yield text[at:begins] + shown
            at = end
    yield text[at:]


def _label_ahead(text: str, found: re.Match[str]) -> str:
    """Return the name that follows its value in the text, or an empty string if no name does."""
    if found[4] is None:
        return ""
    ahead = _LABEL_AHEAD.match(text, _end_of_quoted(text, found.end(), found[3], found[4]))
    return "" if ahead is None else ahead[1]


def _is_named_secret(text: str, found: re.Match[str]) -> bool:
    name, start = found[2], found.start()
    before = text[max(0, start - 20) : start]
    if text[found.end(2)] == ">" and not before.endswith("<"):
        return False  # a greater-than sign that does not end an XML tag
    if before.endswith(("?", "&", "#", "%3F", "%26", "%23", "%3f")):
        return is_secret(name, Place.QUERY)
    # In prose a name may have several words: "API key: …". In a challenge, the name does not begin with the scheme.
    if before.endswith(" ") and (word := before[:-1].rpartition(" ")[2]).isalpha():
        name = name if name in _OF_CHALLENGES and _SCHEME.fullmatch(f"{word} ") else f"{word} {name}"
    elif start == 0 and is_secret(name, Place.QUERY):
        # The text may be the body of a submitted form, which begins with a name.
        value = _UNQUOTED.match(text, found.end())
        return is_secret(name) or (value is not None and text[value.end() : value.end() + 1] == "&")
    return is_secret(name)


def _value(text: str, found: re.Match[str]) -> tuple[str, int]:
    """Return what to show instead of the value of a secret, and where the value ends."""
    name, begins = found[2].lower(), found.end()
    if found[4] is not None:
        return MASK, _end_of_quoted(text, begins, found[3], found[4])
    if text[begins : begins + 1] in ("{", "["):
        # A JSON schema is not masked as a whole: its members are examined one by one.
        return MASK, begins if _SCHEMA.match(text, begins) else _end_of_brackets(text, begins)
    if name.endswith(("authorization", "cookie")):
        return _line(text, found)
    if "\n" in text[found.end(2) : begins] or _SCALAR.match(text, begins):
        return _block(text, found)
    value = (_ENCODED if _ENCODED_BEFORE.match(text, found.start() - 3) else _UNQUOTED).match(text, begins)
    assert value is not None  # the pattern matches an empty text, too
    if value[0].lower() in _NOTHING or (name.endswith("tokens") and value[0].isdigit()):
        return "", begins
    return MASK, value.end()


def _line(text: str, found: re.Match[str]) -> tuple[str, int]:
    """Mask the value of a header field, which extends to the end of the line, or of the quotes around the field."""
    begins = found.end()
    quote = text[found.start() - 1 : found.start()]
    if quote in _CLOSING:
        end = _end_of_quoted(text, begins, "", quote)
    else:
        line = _LINE.match(text, begins)
        end = begins if line is None else line.end()
    scheme = _SCHEME.match(text, begins, end)
    return (MASK, end) if scheme is None else (scheme[0] + MASK, end)


def _block(text: str, found: re.Match[str]) -> tuple[str, int]:
    """Mask the value on the lines after a name: a word, or, in YAML, all lines that are indented further."""
    begins = found.end()
    head = text[max(0, found.start() - MAX_NAME) : found.start()].rpartition("\n")[2]
    own = len(head) - len(head.lstrip(" -"))
    first = text.rfind("\n", found.end(2), begins) + 1  # 0 if the value begins on the name's line, with `|` or `>`
    if first and begins - first <= own:
        # The line is not indented further than the name, so it is either the value or the next name, whose own value is
        # examined separately.
        value = _UNQUOTED.match(text, begins)
        return (MASK, begins if value is None or value[0].endswith(":") else value.end())
    end = begins
    while True:
        next_line = text.find("\n", end)
        if next_line < 0:
            return MASK, len(text)
        line = _INDENTED.match(text, next_line + 1)
        if line is not None and len(line[0]) <= own and text[line.end() : line.end() + 1] not in ("", "\r", "\n"):
            return MASK, next_line
        end = next_line + 1


def _end_of_quoted(text: str, begins: int, backslashes: str, quote: str) -> int:
    """Return where a quoted string ends; ``backslashes`` escape its opening quote if it is inside another string."""
    # Each string around the quoted one doubles every backslash, and adds a backslash before each quote.
    outer = len(backslashes)
    for closing in _CLOSING[quote].finditer(text, begins):
        if len(closing[1]) % (2 * (outer + 1)) == outer:
            return closing.end() - outer - 1
    return len(text)


def _end_of_brackets(text: str, begins: int) -> int:
    """Return the position after the bracket that closes the one at ``begins``; the end of the text if none does."""
    depth, at = 0, begins
    for found in _BRACKET.finditer(text, begins):
        if found.start() < at:
            continue  # the bracket is inside a string
        if found[2] is not None:
            at = _end_of_quoted(text, found.end(), found[1], found[2]) + len(found[1]) + 1
        else:
            depth += 1 if found[0] in "[{" else -1
            if depth == 0:
                return found.end()
    return len(text)


# --- command lines ----------------------------------------------------------------------------------------------------


def mask_words(words: Iterable[str]) -> str:
    """Return a command line with secrets masked, recognized by their form or by the name of the option before them."""
    return " ".join(without_options(words))


def without_options(words: Iterable[str]) -> Iterator[str]:
    """Yield the words of a command line, masked as in `mask_words`."""
    last = ""
    for word in words:
        # The word after an option with a secret's name is masked as a whole. Any other word that contains such a name,
        # for example a path with `token` in it, has no effect on the next word.
        yield MASK if last.startswith("-") and is_secret(last.lstrip("-")) else mask_text(word)
        last = word


# --- what was sent ----------------------------------------------------------------------------------------------------

_SENT = late_pattern(r"[^\s;,]+")
_SHORTEST: Final = 8
"""The shortest secret that is replaced, in characters; a shorter one could be an ordinary word. An arbitrary choice."""


def without_credentials(text: bytes, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return a server's text with the credentials of the request masked: some servers repeat them in a refusal.

    Args:
        text: The text of the response.
        fields: The header fields of the request.
    """
    for name, value in fields:
        if is_secret(name, Place.WIRE):
            # A server may repeat a cookie's value without its name.
            for sent in _SENT.findall(value) + [value.partition("=")[2] for value in value.split("; ")]:
                if len(sent) >= _SHORTEST:
                    text = text.replace(sent.encode(), MASK.encode())
    return text
