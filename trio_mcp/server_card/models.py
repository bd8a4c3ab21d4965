"""The models of a server card, most of which a registry's ``server.json`` shares.

Server cards are an experimental extension (SEP-2127): github.com/modelcontextprotocol/experimental-ext-server-card.
Unknown members are kept. A member that is there must not be null.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Strict, StringConstraints, ValidationError

from trio_mcp.types._base import WireModel
from trio_mcp.types.common import IconTheme

__all__ = [
    "CARD_SCHEMA",
    "CARD_TYPE",
    "CardIcon",
    "CardInput",
    "CardRemote",
    "CardRepository",
    "CardVariables",
    "Flag",
    "Meta",
    "NamedInput",
    "ServerCard",
    "ServerName",
    "ServerVersion",
    "ShortText",
    "Text",
    "Uri",
    "UrlTemplate",
    "Website",
    "not_null",
    "problems_of",
]

CARD_TYPE: Final = "application/mcp-server-card+json"
"""The media type of a server card."""

CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
"""The value of a card's ``$schema``."""

_NAME: Final = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_URL_TEMPLATE: Final = re.compile(r"https?://\S+|\{[A-Za-z_][A-Za-z0-9_]*\}\S*")

_ONE = r"v?\d+(?:\.\d+){0,3}(?:-[0-9A-Za-z.-]+)?"
# A comparison, a span from one version to another, alternatives, or a version with a wildcard.
_RANGE: Final = re.compile(
    rf"(?:\^|~|>=|<=|>|<|=)\s*{_ONE}.*|{_ONE}\s+-\s+{_ONE}|{_ONE}(?:\s*\|\|\s*{_ONE})+"
    r"|(?=.*[xX*])(?:v?\d+|[xX*])(?:\.(?:\d+|[xX*])){0,2}(?:-[0-9A-Za-z.-]+)?"
)


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:80]!r} is not of the form namespace/name, such as com.example/weather: only letters, digits, dots"
            " and hyphens, underscores in the second part, and one slash"
        )
    return name


def _version(version: str) -> str:
    if version == "latest" or _RANGE.fullmatch(version.strip()):
        raise ValueError(f"{version[:80]!r} is not one version, such as 1.2.0")
    return version


def _uri(uri: str) -> str:
    try:
        usable = _URI.fullmatch(uri) is not None and urlsplit(uri).scheme != ""
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{uri[:80]!r} is not an absolute URI")
    return uri


def _url_template(url: str) -> str:
    if not _URL_TEMPLATE.fullmatch(url):
        raise ValueError(f"{url[:80]!r} begins neither with http:// or https:// nor with a variable such as {{host}}")
    return url


def _card_schema(schema: str) -> str:
    if schema != CARD_SCHEMA:
        raise ValueError(f"{schema[:80]!r} is not the schema of server cards, {CARD_SCHEMA}")
    return schema


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise ValueError("is null; leave it out instead")
    return value


not_null: Final = BeforeValidator(_refuse_null)
"""Refuses null for an optional member: None in Python means that the member is absent."""

Text = Annotated[str | None, not_null]
Texts = Annotated[list[str] | None, not_null]
Flag = Annotated[Annotated[bool, Strict()] | None, not_null]
Meta = Annotated[dict[str, Any] | None, not_null]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Uri = Annotated[str, AfterValidator(_uri)]
Website = Annotated[Uri | None, not_null]
UrlTemplate = Annotated[str, AfterValidator(_url_template)]
ServerName = Annotated[str, StringConstraints(min_length=3, max_length=200), AfterValidator(_name)]
ServerVersion = Annotated[str, StringConstraints(max_length=255), AfterValidator(_version)]


class CardInput(WireModel):
    """A value that a user supplies, or that is given: for a variable of a URL, a header, or an argument."""

    description: Text = None
    is_required: Flag = None
    is_secret: Flag = None
    format: Annotated[Literal["string", "number", "boolean", "filepath"] | None, not_null] = None
    default: Text = None
    placeholder: Text = None
    value: Text = None
    choices: Texts = None


CardVariables = Annotated[dict[str, CardInput] | None, not_null]


class NamedInput(CardInput):
    """A header, or an environment variable."""

    name: str
    variables: CardVariables = None


class CardRemote(WireModel):
    """An endpoint of the server. Its URL and its headers may contain variables in braces."""

    type: Literal["streamable-http", "sse"]
    url: UrlTemplate
    headers: Annotated[list[NamedInput] | None, not_null] = None
    variables: CardVariables = None
    # The revisions of the protocol, as `server/discover` names them.
    supported_protocol_versions: Texts = None


class CardRepository(WireModel):
    """The repository of the server's source."""

    url: Uri
    source: str
    subfolder: Text = None
    id: Text = None


class CardIcon(WireModel):
    """An icon; see `trio_mcp.types.icons` for what may be loaded."""

    src: Uri
    mime_type: Text = None
    sizes: Texts = None
    theme: Annotated[IconTheme | None, not_null] = None


class ServerCard(WireModel):
    """The document that a server over HTTP publishes about itself: its identity, and how to connect.

    A card is read before there is a connection, and is not authoritative: don't base access on it, and prefer what the
    server says once you are connected.
    """

    schema_: Annotated[str, AfterValidator(_card_schema)]
    name: ServerName
    version: ServerVersion
    description: ShortText
    title: Annotated[ShortText | None, not_null] = None
    website_url: Website = None
    repository: Annotated[CardRepository | None, not_null] = None
    icons: Annotated[list[CardIcon] | None, not_null] = None
    remotes: Annotated[list[CardRemote] | None, not_null] = None
    meta: Meta = None


_SAID: Final[Mapping[str, Callable[[Any, Any], str]]] = {
    "missing": lambda given, limits: "is missing",
    "string_too_long": lambda given, limits: f"has {len(given)} characters; at most {limits['max_length']} are allowed",
    "string_too_short": lambda given, limits: "is too short" if given else "is empty",
    "value_error": lambda given, limits: str(limits["error"]),
}
"""The type of an error of pydantic -> what we say, from the input and the error's context."""


def problems_of(error: ValidationError, document: object) -> list[str]:
    """Return what is wrong with a document, one line each: the path of a member, and the problem.

    Args:
        error: The error of the model that was made from the document.
        document: The document.
    """
    found = []
    for each in error.errors(include_url=False):
        path, place = "", document
        for number, step in enumerate(each["loc"], 1):
            if isinstance(place, list) and isinstance(step, int):
                path, place = f"{path}[{step}]", place[step]
            elif isinstance(place, dict) and step in place:
                path, place = f"{path}.{step!s:.80}", place[step]
            elif number == len(each["loc"]) and each["type"] == "missing":
                path += f".{step}"
            # Otherwise, pydantic names the member of a union, which is not in the document.
        say = _SAID.get(each["type"])
        text = each["msg"] if say is None else say(each["input"], each.get("ctx", {}))
        found.append(f"{path.removeprefix('.') or 'the document'}: {text[:1].lower()}{text[1:]}")
    return list(dict.fromkeys(found))
