"""Resources: registration, URIs to functions, return values to contents (`server/resources`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from trio_mcp.errors import TrioMcpError
from trio_mcp.server.context import Context
from trio_mcp.server.features.caching import MAX_TTL, CacheHint, checked_hint
from trio_mcp.server.functions.hints import bare
from trio_mcp.server.functions.signature import Bound, Signature, read_signature
from trio_mcp.server.revisions import wire_for
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import Annotations, Icon
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.resources import (
    BlobResourceContents,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextResourceContents,
)
from trio_mcp.uri_templates import UriTemplate, check_uri

if TYPE_CHECKING:
    from trio_mcp.server.features.mounting import Mounted

__all__ = ["RegisteredResource", "ResourceNotFound", "make_resource", "read_result", "safe_join"]


class ResourceNotFound(TrioMcpError):
    """Raise it in a function of a resource: the client learns that there is no resource of that URI."""


class ContentsError(Exception):
    """The function returned what has no form as contents: a fault of the server's."""


@attrs.frozen
class RegisteredResource:
    """A resource, or a template of resources, as the server holds it.

    Attributes:
        definition: What clients see of it.
        signature: The function's.
        template: What matches its URIs; None for a single resource.
        cache: For how long its contents may be kept; None if it has no hint of its own.
    """

    definition: Resource | ResourceTemplate
    signature: Signature
    template: UriTemplate | None
    cache: CacheHint | None
    mounted: Mounted | None = attrs.field(default=None, kw_only=True)
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """What it is known by: its URI, or its URI template."""
        return self.definition.uri if isinstance(self.definition, Resource) else self.definition.uri_template

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""
        wire = self._wire.get(revision)
        if wire is None:
            wire = self._wire[revision] = wire_for(self.definition, revision)
        return wire

    def bind(self, uri: str, context: Context[Any]) -> Bound | None:
        """Bind what a URI says to the function; None if it is the URI of another resource."""
        values: dict[str, Any] | None = {}
        if self.template is not None:
            values = self.template.match(uri)
        if values is None:
            return None
        try:
            return self.signature.bind(values, context)
        except ValidationError:
            return None  # `users://{id}` with an int has no resource `users://x`


def make_resource(
    uri: str,
    function: Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    mime_type: str | None,
    size: int | None,
    annotations: Annotations | Mapping[str, Any] | None,
    icons: Iterable[Icon] | None,
    meta: Mapping[str, Any] | None,
    cache: CacheHint | None,
    park_input: bool,
) -> RegisteredResource:
    """Make a resource of a function. See `Server.add_resource`."""
    if not callable(function):
        raise TypeError(f"a resource must be a function, got {type(function).__name__}")
    check_uri(uri, "the URI of a resource")
    what = f"resource {uri!r}"
    if name is None:
        name = getattr(bare(function), "__name__", type(function).__name__)
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise ValueError(f"{what}: {name!r} is no valid name; pass name=…")
    template = UriTemplate(uri) if "{" in uri or "}" in uri else None
    if size is not None and (template is not None or isinstance(size, bool) or not isinstance(size, int) or size < 0):
        raise ValueError(f"{what}: size must be a number of bytes, and only a single resource has one; got {size!r}")
    if cache is not None:
        checked_hint(cache, what)
    signature = read_signature(function, Context, what, park_input=park_input)
    _check_agreement(signature, template, what)
    if isinstance(annotations, Mapping):
        annotations = Annotations(**annotations)
    details: dict[str, Any] = {
        "name": name,
        "title": title,
        "description": description if description is not None else signature.description,
        "mime_type": mime_type,
        "annotations": annotations,
        "icons": None if icons is None else checked_icons(icons, what),
        "meta": None if meta is None else checked_meta(meta, what),
    }
    if template is None:
        return RegisteredResource(Resource(uri=uri, size=size, **details), signature, None, cache)
    return RegisteredResource(ResourceTemplate(uri_template=uri, **details), signature, template, cache)


def _check_agreement(signature: Signature, template: UriTemplate | None, what: str) -> None:
    parameters = set(signature.input_schema.get("properties", ()))
    required = set(signature.input_schema.get("required", ()))
    always = set() if template is None else {*template.variables, *filter(None, [template.exploded])}
    sometimes = set() if template is None else set(template.query_variables)
    problems = {
        "the function has no parameter for the variable": (always | sometimes) - parameters,
        "the URI has no variable for the parameter": parameters - always - sometimes,
        "a query may lack it, so give a default to the parameter": sometimes & required,
        "every URI has a value for it, so take the default from the parameter": (always & parameters)
        - required
        - ({template.exploded} if template is not None else set()),
    }
    for problem, names in problems.items():
        if names:
            raise TypeError(f"{what}: {problem} {', '.join(map(repr, sorted(names)))}")


def read_result(value: Any, uri: str, mime_type: str | None, revision: str) -> dict[str, Any]:
    """The wire form of the `ReadResourceResult` that carries what a function returned.

    Raises:
        ContentsError: It has no form as contents.
    """
    if isinstance(value, ReadResourceResult):
        if value.ttl_ms is not None and not 0 <= value.ttl_ms <= MAX_TTL * 1000:
            raise ContentsError(f"its ttl_ms must be from 0 to {MAX_TTL * 1000:.0f} (a year), got {value.ttl_ms}")
        return wire_for(value, revision)
    many = isinstance(value, (list, tuple)) and any(isinstance(item, ResourceContents) for item in value)
    contents = [_contents(item, uri, mime_type) for item in (value if many else [value])]
    return {"contents": [wire_for(each, revision) for each in contents]}


def _contents(value: Any, uri: str, mime_type: str | None) -> ResourceContents:
    if isinstance(value, (TextResourceContents, BlobResourceContents)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return BlobResourceContents(uri=uri, mime_type=mime_type, blob=base64.b64encode(value).decode())
    if value is None:
        raise ContentsError("it returned None; return the contents, or raise ResourceNotFound")
    if not isinstance(value, str):
        mime_type = mime_type or "application/json"
        try:
            plain = value.to_wire() if isinstance(value, WireModel) else to_jsonable_python(value, by_alias=True)
            value = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        except ValueError as exc:
            raise ContentsError(f"what it returned has no JSON form: {exc}") from exc
    # File names and captured output may hold lone surrogates, which UTF-8 can't carry.
    text = value.encode("utf-8", "backslashreplace").decode()
    return TextResourceContents(uri=uri, mime_type=mime_type, text=text)


def safe_join(directory: str | Path, path: str) -> Path:
    """Join what ``{+path}`` matched to a directory, without leaving the directory.

    It looks at the file system, so call it from a sync function, or in a thread. Whoever can change the directory
    meanwhile can still lead the path astray.

    Args:
        directory: The directory that everything must lie in.
        path: A relative path, which a client has chosen.

    Returns:
        The absolute path, free of ``..`` and symbolic links. Nothing need be there.

    Raises:
        ResourceNotFound: The path is absolute, leads out of the directory (also by a symbolic link), or can't be
            looked at.
    """
    root = Path(directory).resolve()
    try:
        joined = (root / path).resolve()
        joined.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
        raise ResourceNotFound("no such path") from None
    if Path(path).is_absolute() or not joined.is_relative_to(root):
        raise ResourceNotFound("no such path")
    return joined
