"""Pictures, sounds, files and plain bytes, returned by tools, resources and prompts."""

import base64
import os
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.server.harness import call, client_of, tool_of
from trio_mcp import Audio, File, Image, McpError, Server, types
from trio_mcp.server.media import MAX_FILE

PNG, JPEG, WAV = b"\x89PNG\r\n\x1a\nrest", b"\xff\xd8\xff\xe0rest", b"RIFF1234WAVErest"
BINARY = b"\x00\xff"


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes, kind: str) -> types.ImageContent:
    return types.ImageContent(data=coded(data), mime_type=kind)


def audio(data: bytes, kind: str) -> types.AudioContent:
    return types.AudioContent(data=coded(data), mime_type=kind)


def blob(data: bytes, kind: str, name: str = "resource") -> types.EmbeddedResource:
    contents = types.BlobResourceContents(uri=f"file:///{name}", mime_type=kind, blob=coded(data))
    return types.EmbeddedResource(resource=contents)


def text(words: str, kind: str, name: str = "resource") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=f"file:///{name}", mime_type=kind, text=words)
    return types.EmbeddedResource(resource=contents)


WORDS = types.TextContent(text="words")
BLOCKS: list[tuple[Any, Any]] = [
    (Image(data=PNG), image(PNG, "image/png")),
    (Image(data=JPEG), image(JPEG, "image/jpeg")),
    (Image(data=b"RIFF1234WEBP"), image(b"RIFF1234WEBP", "image/webp")),
    (Image(data=b"any", format="PNG"), image(b"any", "image/png")),
    (Image(data=b"any", format="jpg"), image(b"any", "image/jpeg")),
    (Image(data=b"any", format="svg"), image(b"any", "image/svg+xml")),
    (Image(data=b"any", format="x-mine"), image(b"any", "image/x-mine")),
    (Image(data=PNG, format="image/jpeg"), image(PNG, "image/jpeg")),
    (Audio(data=WAV), audio(WAV, "audio/wav")),
    (Audio(data=b"any", format="mp3"), audio(b"any", "audio/mpeg")),
    (Audio(data=bytearray(b"any"), format="webm"), audio(b"any", "audio/webm")),  # type: ignore[arg-type]
    (File(data=b"%PDF-1"), blob(b"%PDF-1", "application/pdf")),
    (File(data=BINARY), blob(BINARY, "application/octet-stream")),
    (File(data=b"words"), text("words", "text/plain")),
    (File(data=b"a,b", format="csv"), text("a,b", "text/csv", "resource.csv")),
    (File(data=b"{}", name="a b.json"), text("{}", "application/json", "a%20b.json")),
    (File(data=BINARY, name="a.txt"), blob(BINARY, "text/plain", "a.txt")),
    (File(data=b"%PDF-1", format="application/x-mine"), blob(b"%PDF-1", "application/x-mine")),
    (PNG, image(PNG, "image/png")),
    (WAV, audio(WAV, "audio/wav")),
    (b"%PDF-1", blob(b"%PDF-1", "application/pdf")),
    (b"words", WORDS),
    (BINARY, blob(BINARY, "application/octet-stream")),
]


@pytest.mark.parametrize(("value", "block"), BLOCKS, ids=lambda each: repr(each)[:40])
async def test_a_value_becomes_a_block(value: Any, block: types.ContentBlock) -> None:
    kind = type(value)
    cases: list[tuple[Any, Any, list[Any]]] = [
        (kind, value, [block]),
        (Annotated[kind, "a note"], value, [block]),
        (kind | None, value, [block]),
        (list[kind], [value, value], [block, block]),  # type: ignore[valid-type]
        (tuple[str, kind], ("words", value), [WORDS, block]),
        (Any, value, [block]),
        (Any, ["words", value], [WORDS, block]),
    ]
    for annotation, returned, content in cases:

        def give(returned: Any = returned) -> Any:
            return returned

        give.__annotations__ = {"return": annotation}
        assert tool_of(give).output_schema is None
        result = await call(give, {})
        assert (result.content, result.is_error or False) == (content, False)
        assert "structured_content" not in result.model_fields_set


@pytest.mark.parametrize(
    ("make", "name", "data", "block"),
    [
        (Image, "a.png", PNG, image(PNG, "image/png")),
        (Image, "a.png", JPEG, image(JPEG, "image/jpeg")),  # the bytes know better than the name
        (Image, "a.WEBP", b"any", image(b"any", "image/webp")),
        (Audio, "a.flac", b"any", audio(b"any", "audio/flac")),
        (Audio, "a.m4a", b"any", audio(b"any", "audio/mp4")),
        (File, "a.md", b"words", text("words", "text/markdown", "a.md")),
        (File, "a.zip", BINARY, blob(BINARY, "application/zip", "a.zip")),
        (File, "Makefile", b"words", text("words", "text/plain", "Makefile")),
    ],
)
def test_a_path_is_read_where_it_is_given(tmp_path: Path, make: Any, name: str, data: bytes, block: Any) -> None:
    """In the thread of a sync function, which may clean up before it returns. The client sees no directory."""
    path = tmp_path / name
    path.write_bytes(data)
    made = [make(path), make(path=str(path))]
    path.unlink()
    for each in made:
        content = getattr(each, {Image: "to_image_content", Audio: "to_audio_content"}.get(make, "to_resource_content"))
        assert content() == block
    assert str(len(data)) in repr(made[0])
    assert "words" not in repr(made[0])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda path: Image(), TypeError, "Image needs either a path or data"),
        (lambda path: Audio(path, b"any"), TypeError, "Audio needs either a path or data"),
        (lambda path: File(data="words"), TypeError, "the data of File must be bytes, got str"),  # type: ignore[arg-type]
        (lambda path: Image(data=b"any"), ValueError, "can't determine the format of the image; pass format="),
        (lambda path: Image(data=WAV), ValueError, "can't determine the format"),
        (lambda path: Audio(path), ValueError, "can't determine the format of the audio"),
        (lambda path: File(path / "a"), OSError, "Not a directory"),
    ],
)
def test_what_cannot_be_sent_is_refused_where_it_is_made(tmp_path: Path, make: Any, error: Any, words: str) -> None:
    path = tmp_path / "a.xyz"
    path.write_bytes(b"any")
    with pytest.raises(error, match=words):
        make(path)


def test_a_file_that_no_message_can_carry_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(MAX_FILE + 1)  # a hole, which takes no room on the disk
    with pytest.raises(ValueError, match=r"large\.bin' is larger than 33554432 bytes"):
        File(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ValueError, match=r"pipe\.png' is not a regular file"):
        Image(tmp_path / "pipe.png")


def test_media_inside_of_data_are_refused_when_registered() -> None:
    """Data is JSON, and has no place for them."""

    def tool() -> dict[str, Image]: ...

    def parameter(x: Image) -> None: ...

    for function in (tool, parameter):
        with pytest.raises(TypeError, match="has no JSON Schema"):
            Server("test").add_tool(function)


async def test_resources_and_prompts_return_them_too() -> None:
    server = Server("test")

    @server.resource("x://one", mime_type="image/gif")
    def one() -> Image:
        return Image(data=PNG)

    @server.resource("x://many")
    def many() -> list[Audio | File | str]:
        return [Audio(data=WAV), File(data=b"words"), File(data=BINARY), "words"]

    @server.prompt
    def ask() -> list[str | Image | Audio | File]:
        return ["words", Image(data=PNG), Audio(data=WAV), File(data=b"words")]

    @server.prompt
    def wrong() -> bytes:
        return PNG

    async with client_of(server) as client:
        (contents,) = (await client.read_resource("x://one")).contents
        assert contents == types.BlobResourceContents(uri="x://one", mime_type="image/png", blob=coded(PNG))
        found = (await client.read_resource("x://many")).contents
        assert [(each.uri, each.mime_type) for each in found] == [
            ("x://many", "audio/wav"),
            ("x://many", "text/plain"),
            ("x://many", "application/octet-stream"),
            ("x://many", None),
        ]
        messages = (await client.get_prompt("ask")).messages
        assert [message.content for message in messages] == [
            WORDS,
            image(PNG, "image/png"),
            audio(WAV, "audio/wav"),
            text("words", "text/plain"),
        ]
        with pytest.raises(McpError, match="the prompt 'wrong' failed"):
            await client.get_prompt("wrong")
