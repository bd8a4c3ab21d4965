"""Turns the pictures, sounds and files that functions return into content blocks and resource contents."""

from __future__ import annotations

import base64
import functools
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pydantic_core import CoreSchema, core_schema

from trio_mcp import _attrs as attrs

if TYPE_CHECKING:  # these are loaded only when a function returns a picture, a sound or a file
    import mimetypes

    from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, TextContent
    from trio_mcp.types.resources import BlobResourceContents, TextResourceContents

__all__ = ["MAX_FILE", "MEDIA", "Audio", "File", "Image", "block_of", "contents_of"]

# The limit is an arbitrary choice: a file of this size fits into a message of the default size, even though Base64 adds
# a third to the size.
MAX_FILE: Final = 32 * 1024 * 1024
"""The maximum size of a file that is read from a path, in bytes."""

# The first bytes of files, from the specifications of the formats; `image_type` covers the common image formats.
_BEGINNINGS: Final = (
    (rb".{4}ftypavif", "image/avif"),
    (rb"II\*\0|MM\0\*", "image/tiff"),
    (rb"RIFF.{4}WAVE", "audio/wav"),
    (rb"ID3", "audio/mpeg"),
    (rb"OggS", "audio/ogg"),
    (rb"fLaC", "audio/flac"),
    (rb"%PDF-", "application/pdf"),
    (rb"PK\x03\x04", "application/zip"),
)
# This table has common names of formats that `mimetypes` lists under another name or, in some Python versions, not at
# all.
_FORMATS: Final = {
    "avif": "image/avif",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "markdown": "text/markdown",
    "md": "text/markdown",
    "plain": "text/plain",
    "text": "text/plain",
}
# The types that a model can read as text.
_TEXTUAL: Final = r"text/.*|application/(?:(?:.+\+)?(?:json|xml)|javascript|toml|yaml|x-yaml|sql)"


class _Media:
    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> CoreSchema:
        return core_schema.is_instance_schema(cls)


def _size(data: bytes) -> str:
    return f"<{len(data)} bytes>"


@attrs.frozen(init=False)
class Image(_Media):
    """A picture that a tool, a resource or a prompt returns: ``Image(data=png)`` or ``Image("map.png")``.

    The file is read at once. In a sync function, that happens in the function's thread; an async function should use
    ``await trio.to_thread.run_sync(Image, path)``. The path is opened as it is: if a client has chosen it, pass it
    through `safe_join` first.

    Args:
        path: A file to read, of 32 MiB at most.
        data: The bytes, instead of a path.
        format: The kind: ``"png"``, or a media type such as ``"image/png"``. By default it is determined from the first
            bytes, or from the name of the file.

    Attributes:
        data: The bytes of the picture.
        mime_type: The media type of the picture.

    Raises:
        TypeError: If not exactly one of path and data is given, or the one given is of the wrong type.
        ValueError: If the file is too large or not a regular file, or its kind can't be determined.
        OSError: If the file can't be read.
    """

    data: bytes = attrs.field(repr=_size)
    mime_type: str

    def __init__(
        self, path: str | os.PathLike[str] | None = None, data: bytes | None = None, format: str | None = None
    ) -> None:
        data = _bytes_of(path, data, "Image")
        self.__attrs_init__(data, _kind_within("image", path, data, format))

    def to_image_content(self) -> ImageContent:
        """Return the picture as a content block."""
        from trio_mcp.types.content import ImageContent

        return ImageContent(data=_base64(self.data), mime_type=self.mime_type)


@attrs.frozen(init=False)
class Audio(_Media):
    """A sound that a tool, a resource or a prompt returns: ``Audio("bell.wav")``. The arguments are those of `Image`.

    Attributes:
        data: The bytes of the sound.
        mime_type: The media type of the sound.
    """

    data: bytes = attrs.field(repr=_size)
    mime_type: str

    def __init__(
        self, path: str | os.PathLike[str] | None = None, data: bytes | None = None, format: str | None = None
    ) -> None:
        data = _bytes_of(path, data, "Audio")
        self.__attrs_init__(data, _kind_within("audio", path, data, format))

    def to_audio_content(self) -> AudioContent:
        """Return the sound as a content block."""
        from trio_mcp.types.content import AudioContent

        return AudioContent(data=_base64(self.data), mime_type=self.mime_type)


@attrs.frozen(init=False)
class File(_Media):
    """A file that a tool, a resource or a prompt returns: ``File("report.pdf")``. Paths are read as by `Image`.

    The file is sent as an embedded resource: as text if its media type is textual and its bytes are UTF-8, otherwise as
    a blob.

    Args:
        path: A file to read, of 32 MiB at most.
        data: The bytes, instead of a path.
        format: The kind: ``"pdf"``, or a media type such as ``"application/pdf"``. By default it is determined from
            the name, from the first bytes, or from whether the bytes are UTF-8.
        name: The name that the client sees; by default that of the file, without its directory.

    Attributes:
        data: The bytes of the file.
        mime_type: The media type of the file.
        name: The name that the client sees.

    Raises:
        TypeError, ValueError, OSError: As for `Image`, except that a file may be of an unknown kind.
    """

    data: bytes = attrs.field(repr=_size)
    mime_type: str
    name: str

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
    ) -> None:
        data = _bytes_of(path, data, "File")
        if name is None:
            plain = format is not None and "/" not in format
            name = Path(path).name if path is not None else f"resource.{format}" if plain else "resource"
        self.__attrs_init__(data, _kind_of_file(name, data, format), name)

    def to_resource_content(self) -> EmbeddedResource:
        """Return the file as a content block."""
        from trio_mcp.types.content import EmbeddedResource

        # The URI contains only the name: a client need not know where the file is.
        return EmbeddedResource(resource=contents_of(self, f"file:///{quote(self.name)}"))


MEDIA: Final = (Image, Audio, File)


def block_of(value: Image | Audio | File | bytes) -> ImageContent | AudioContent | EmbeddedResource | TextContent:
    """Return a value as a content block; the media type of plain bytes is guessed from their content."""
    if isinstance(value, bytes):
        kind = _kind_by_beginning(value) or ""
        if kind.startswith("image/"):
            value = Image(data=value, format=kind)
        elif kind.startswith("audio/"):
            value = Audio(data=value, format=kind)
        elif not kind and (text := _text_in(value)) is not None:
            from trio_mcp.types.content import TextContent

            return TextContent(text=text)
        else:
            value = File(data=value)
    if isinstance(value, Image):
        return value.to_image_content()
    return value.to_audio_content() if isinstance(value, Audio) else value.to_resource_content()


def contents_of(value: Image | Audio | File, uri: str) -> TextResourceContents | BlobResourceContents:
    """Return a picture, sound or file as the contents of a resource."""
    from trio_mcp.types.resources import BlobResourceContents, TextResourceContents

    if (
        isinstance(value, File)
        and re.fullmatch(_TEXTUAL, value.mime_type)
        and (text := _text_in(value.data)) is not None
    ):
        return TextResourceContents(uri=uri, mime_type=value.mime_type, text=text)
    return BlobResourceContents(uri=uri, mime_type=value.mime_type, blob=_base64(value.data))


def _bytes_of(path: str | os.PathLike[str] | None, data: bytes | None, what: str) -> bytes:
    if (path is None) == (data is None):
        raise TypeError(f"{what} needs either a path or data")
    if path is None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"the data of {what} must be bytes, got {type(data).__name__}")
        return bytes(data)
    # The file is checked before it is opened, because opening a pipe would wait for its other end.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{os.fspath(path)!r} is not a regular file")
    with open(path, "rb") as file:
        found = file.read(MAX_FILE + 1)
    if len(found) > MAX_FILE:
        raise ValueError(f"{os.fspath(path)!r} is larger than {MAX_FILE} bytes; offer it as a link instead")
    return found


def _kind_within(family: str, path: str | os.PathLike[str] | None, data: bytes, format: str | None) -> str:
    """Return the media type of a picture or a sound."""
    if format is not None:
        known = _FORMATS.get(format.lower()) or _kind_by_name(f"_.{format}") or ""
        return known if known.startswith(f"{family}/") else format if "/" in format else f"{family}/{format.lower()}"
    # The first bytes take precedence over the name, because a model's API refuses a picture whose declared type is
    # wrong.
    for kind in (_kind_by_beginning(data), path and _kind_by_name(path)):
        if kind and kind.startswith(f"{family}/"):
            return kind
    raise ValueError(f"can't determine the format of the {family}; pass format=…")


def _kind_of_file(name: str, data: bytes, format: str | None) -> str:
    if format is not None:
        return format if "/" in format else _kind_by_name(f"_.{format}") or f"application/{format.lower()}"
    text = "application/octet-stream" if _text_in(data) is None else "text/plain"
    return _kind_by_name(name) or _kind_by_beginning(data) or text


def _kind_by_beginning(data: bytes) -> str | None:
    from trio_mcp.types.icons import image_type

    known = (kind for pattern, kind in _BEGINNINGS if re.match(pattern, data, re.DOTALL))
    return image_type(data) or next(known, None)


@functools.cache
def _types() -> mimetypes.MimeTypes:
    import mimetypes

    return mimetypes.MimeTypes()  # without the system's table, which differs from machine to machine


def _kind_by_name(name: str | os.PathLike[str]) -> str | None:
    suffix = Path(name).suffix.lower()
    return _FORMATS.get(suffix[1:]) or _types().guess_type(f"_{suffix}", strict=False)[0]


def _text_in(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
