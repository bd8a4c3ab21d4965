"""A ``server.json`` (2025-12-11), which describes a server to a registry: how it is made, and its rules.

github.com/modelcontextprotocol/registry: docs/reference/server-json and, for what no schema says, internal/validators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, ValidationError, model_validator

from trio_mcp._addresses import is_loopback
from trio_mcp.cli.publishing.project import Project
from trio_mcp.server_card.models import (
    CardInput,
    CardRepository,
    CardVariables,
    Flag,
    Meta,
    NamedInput,
    ServerName,
    ServerVersion,
    ShortText,
    Text,
    Uri,
    UrlTemplate,
    Website,
    not_null,
    problems_of,
)
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import IconTheme, Implementation

__all__ = ["SCHEMA", "ServerDocument", "as_text", "document_problems", "merged", "name_problem", "server_document"]

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

MAX_PROVIDED: Final = 4096
"""How many bytes of JSON the publisher's own metadata may have."""
PROVIDED: Final = "io.modelcontextprotocol.registry/publisher-provided"

VERSIONED: Final = ("npm", "pypi", "nuget")
"""The types of packages that need a version of their own."""
PACKAGED: Final = (*VERSIONED, "oci", "mcpb")
"""The types of packages."""

_STRICT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9]/[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]")
_FORGES: Final = {
    "github": re.compile(r"https?://(?:www\.)?github\.com/[\w.-]+/[\w.-]+/?"),
    "gitlab": re.compile(r"https?://(?:www\.)?gitlab\.com/[\w.-]+(?:/[\w.-]+)+/?"),
}
_SUBFOLDER: Final = re.compile(r"[\w.-]+(?:/[\w.-]+)*")
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")


class DocumentIcon(WireModel):
    """An icon, of which a registry accepts fewer types than a card may have."""

    src: Annotated[Uri, StringConstraints(max_length=255)]
    mime_type: Annotated[
        Literal["image/png", "image/jpeg", "image/jpg", "image/svg+xml", "image/webp"] | None, not_null
    ] = None
    sizes: Annotated[list[Annotated[str, StringConstraints(pattern=r"^(\d+x\d+|any)$")]] | None, not_null] = None
    theme: Annotated[IconTheme | None, not_null] = None


class PositionalArgument(CardInput):
    """A word of a command line."""

    type: Literal["positional"]
    value_hint: Text = None
    is_repeated: Flag = None
    variables: CardVariables = None

    @model_validator(mode="after")
    def _is_known(self) -> PositionalArgument:
        if self.value_hint is None and self.value is None:
            raise ValueError("a positional argument needs a value or a valueHint")
        return self


class NamedArgument(CardInput):
    """An option of a command line, ``--name=value``."""

    type: Literal["named"]
    name: str
    is_repeated: Flag = None
    variables: CardVariables = None


class StdioTransport(WireModel):
    """A package whose process speaks over its standard streams."""

    type: Literal["stdio"]


class UrlTransport(WireModel):
    """An endpoint over HTTP: one that a package's process opens, or a remote."""

    type: Literal["streamable-http", "sse"]
    # The rule of 2025-12-11: the URL of a card may also begin with a variable.
    url: Annotated[UrlTemplate, StringConstraints(pattern=r"^https?://")]
    headers: Annotated[list[NamedInput] | None, not_null] = None
    variables: CardVariables = None


PackageArguments = Annotated[
    list[Annotated[PositionalArgument | NamedArgument, Field(discriminator="type")]] | None, not_null
]


class RegistryPackage(WireModel):
    """A package from which a client installs the server."""

    registry_type: str
    identifier: str
    transport: Annotated[StdioTransport | UrlTransport, Field(discriminator="type")]
    version: Annotated[Annotated[ServerVersion, StringConstraints(min_length=1)] | None, not_null] = None
    registry_base_url: Website = None
    runtime_hint: Text = None
    runtime_arguments: PackageArguments = None
    package_arguments: PackageArguments = None
    environment_variables: Annotated[list[NamedInput] | None, not_null] = None
    file_sha256: Annotated[str | None, not_null] = Field(default=None, pattern="^[a-f0-9]{64}$")


class ServerDocument(WireModel):
    """A ``server.json``."""

    schema_: Website = None
    name: ServerName
    description: ShortText
    version: ServerVersion
    title: Annotated[ShortText | None, not_null] = None
    repository: Annotated[CardRepository | None, not_null] = None
    website_url: Website = None
    icons: Annotated[list[DocumentIcon] | None, not_null] = None
    packages: Annotated[list[RegistryPackage] | None, not_null] = None
    remotes: Annotated[list[UrlTransport] | None, not_null] = None
    meta: Meta = None


def name_problem(name: str) -> str | None:
    """Return why a registry would refuse a name; None if it wouldn't."""
    if len(name) > 200:
        return f"has {len(name)} characters; at most 200 are allowed"
    if not _STRICT_NAME.fullmatch(name):
        return (
            "is not of the form namespace/name, such as io.github.OWNER/weather: letters, digits, dots and hyphens"
            " (after the slash, also underscores), with a letter or digit at either end of both parts"
        )
    return None


def document_problems(document: object) -> list[str]:
    """Return why a registry would refuse a document, one line each: those of the schema, or else those of the rest."""
    try:
        found = ServerDocument.from_wire(document)
    except ValidationError as exc:
        return problems_of(exc, document)
    return list(_refusals(found))


def _refusals(document: ServerDocument) -> Iterator[str]:
    """Yield what the schema allows and the registry refuses."""
    if document.schema_ != SCHEMA:
        yield f"$schema: is {document.schema_!r:.200}, but must be {SCHEMA}"
    if problem := name_problem(document.name):
        yield f"name: {document.name!r} {problem}"
    if document.title is not None and not document.title.strip():
        yield "title: is blank"
    if document.repository is not None:
        yield from _of_repository(document.repository)
    urls = {"websiteUrl": document.website_url}
    urls |= {f"icons[{number}].src": icon.src for number, icon in enumerate(document.icons or ())}
    for path, url in urls.items():
        if url is not None and urlsplit(url).scheme != "https":
            yield f"{path}: {url[:80]!r} does not begin with https://"
    if not document.packages and not document.remotes:
        yield "the document: has neither packages nor remotes, so no client could connect"
    for number, package in enumerate(document.packages or ()):
        yield from (f"packages[{number}].{each}" for each in _of_package(package))
    for number, remote in enumerate(document.remotes or ()):
        yield from (f"remotes[{number}].url: {each}" for each in _of_url(remote.url, remote.variables or {}))
        host = _hostname(remote.url)
        if host == "localhost" or is_loopback(host or ""):
            yield f"remotes[{number}].url: {remote.url[:80]!r} leads to the machine of each reader"
    own = (document.meta or {}).get(PROVIDED, {})
    if not isinstance(own, dict):
        yield f"_meta.{PROVIDED}: must be an object"
    provided = json.dumps(own, separators=(",", ":"), ensure_ascii=False)
    if (size := len(provided.encode("utf-8", "surrogatepass"))) > MAX_PROVIDED:
        yield f"_meta.{PROVIDED}: has {size} bytes; at most {MAX_PROVIDED} are allowed"


def _of_repository(repository: CardRepository) -> Iterator[str]:
    forge = _FORGES.get(repository.source)
    if forge is None:
        yield f"repository.source: {repository.source[:80]!r} is neither 'github' nor 'gitlab'"
    elif not forge.fullmatch(repository.url):
        yield f"repository.url: {repository.url[:80]!r} is not the URL of a repository on {repository.source}.com"
    folder = repository.subfolder
    if folder and (not _SUBFOLDER.fullmatch(folder) or {".", ".."} & {*folder.split("/")}):
        yield f"repository.subfolder: {folder[:80]!r} is not a relative path without . and .."


def _of_package(package: RegistryPackage) -> Iterator[str]:
    kind = package.registry_type
    if kind not in PACKAGED:
        yield f"registryType: {kind[:80]!r} is not one of {', '.join(PACKAGED)}"
        return
    if not package.identifier or re.search(r"\s", package.identifier):
        yield f"identifier: {package.identifier[:80]!r} is empty, or has spaces in it"
    if package.registry_base_url is not None:
        yield "registryBaseUrl: leave it out, since the type says which registry it is, and no other is accepted"
    if kind in VERSIONED and package.version is None:
        yield "version: is missing"
    if kind == "mcpb":
        if package.file_sha256 is None:
            yield "fileSha256: is missing"
        if not package.identifier.startswith("https://") or "mcp" not in package.identifier:
            yield f"identifier: {package.identifier[:80]!r} is not the https URL of a release, with 'mcp' in it"
    arguments = [*(package.runtime_arguments or ()), *(package.package_arguments or ())]
    if package.runtime_arguments and package.runtime_hint is None:
        yield "runtimeHint: is missing, though there are runtimeArguments"
    for each in arguments:
        if isinstance(each, NamedArgument):
            yield from _of_named(each)
    known = {each.name for each in package.environment_variables or ()}
    known |= {each.name for each in arguments if isinstance(each, NamedArgument)}
    known |= {each.value_hint for each in arguments if isinstance(each, PositionalArgument) and each.value_hint}
    if isinstance(package.transport, UrlTransport):
        yield from (f"transport.url: {each}" for each in _of_url(package.transport.url, known))
    elif (package.transport.model_extra or {}).get("url"):
        yield "transport.url: must be left out for stdio"


def _of_named(argument: NamedArgument) -> Iterator[str]:
    name = argument.name
    if not name or re.search(r"[<>\s$]", name):
        yield f"arguments: the name {name[:80]!r} must be that of an option alone, such as --port"
        return
    for what, value in (("value", argument.value), ("default", argument.default)):
        if value and value.startswith(name):
            yield f"arguments: the {what} of {name} begins with {name}, which would be there twice"


def _of_url(url: str, known: Any) -> Iterator[str]:
    if unknown := sorted({*_VARIABLE.findall(url)} - {*known}):
        yield f"{url[:80]!r} has variables that are not declared: {', '.join(unknown)[:80]}"
    elif _hostname(_VARIABLE.sub("x", url)) is None:
        yield f"{url[:80]!r} is not a URL with a host"


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def server_document(name: str, version: str, project: Project, info: Implementation) -> dict[str, Any]:
    """Return the ``server.json`` of a server in a package on PyPI, which clients start with uvx.

    Args:
        name: The name of the server in the registry.
        version: The version of the package.
        project: The project.
        info: What the server says about itself.
    """
    repository = project.repository
    icons = [each.to_wire() for each in info.icons or () if urlsplit(each.src).scheme == "https"]
    made = {
        "$schema": SCHEMA,
        "name": name,
        "title": info.title,
        "description": info.description or project.text("description"),
        "version": version,
        "websiteUrl": info.website_url,
        "repository": repository and {"url": "https://github.com/{}/{}".format(*repository), "source": "github"},
        "icons": icons,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": project.name,
                "version": version,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
            }
        ],
    }
    return {key: value for key, value in made.items() if value or key == "description"}


def merged(before: dict[str, Any] | None, made: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the members that the project determines, and whatever else the old one has."""
    if before is None:
        return made
    merged = {**before, **made}
    packages = before.get("packages")
    own = made["packages"][0]
    if isinstance(packages, list) and all(isinstance(each, dict) for each in packages):
        kept = [{**own, **each, "version": own["version"]} if _is_same(each, own) else each for each in packages]
        merged["packages"] = kept if any(_is_same(each, own) for each in packages) else [own, *packages]
    return merged


def _is_same(package: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return all(package.get(key) == own[key] for key in ("registryType", "identifier"))


def as_text(document: Mapping[str, Any]) -> bytes:
    """Return the text of a JSON file."""
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
