"""The skills of a server: its methods in both eras, its resources, and what it does when the folder changes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.extensions.skills.folders import IDENTIFIER, write_skill
from tests.peer import settle
from tests.tables import each_of
from trio_mcp import CacheHint, Client, Context, ListOptions, McpError, Server
from trio_mcp.extensions import SkillFolderError, Skills
from trio_mcp.types import BlobResourceContents, TextResourceContents

MODES = each_of("mode", "auto | legacy")
PDF = "skill://pdf/SKILL.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a few skills."""
    folder = tmp_path / "skills"
    files = {"templates/a.md": "A", "templates/regional/eu.md": "EU", "data.bin": bytes(range(256))}
    (write_skill(folder, "pdf", files) / "empty").mkdir()
    write_skill(folder, "acme/billing/refunds")
    return folder


@contextlib.asynccontextmanager
async def served(skills: Skills, mode: Any = "auto", **options: Any) -> AsyncIterator[Client]:
    """Connect a client that does not know the extension: no client has to."""
    async with Client(Server("desk", extensions=[skills], **options), mode=mode) as client:
        yield client


async def refused(call: Awaitable[object]) -> int:
    with pytest.raises(McpError) as caught:
        await call
    return caught.value.code


# --- the methods --------------------------------------------------------------------------------------------------


@MODES
async def test_declares_the_extension_and_resources(mode: str, folder: Path) -> None:
    """Capability Negotiation: the extension with `directoryRead`, and `resources`, even without a skill."""
    (folder.parent / "none").mkdir()
    for each in (folder, folder.parent / "none"):
        async with served(Skills(each), mode) as client:
            assert client.extensions == {IDENTIFIER: {"directoryRead": True}}
            assert client.capabilities.resources is not None
            assert isinstance((await client.request("skills/list"))["skills"], list)


@MODES
async def test_entries_state_every_file_with_its_digest(mode: str, folder: Path) -> None:
    """Resources: complete, each file once, `SKILL.md` included; digests and sizes of the raw bytes."""
    async with served(Skills(folder), mode) as client:
        listed = (await client.request("skills/list"))["skills"]
        assert [each["uri"] for each in listed] == ["skill://acme/billing/refunds/SKILL.md", PDF]
        entry = listed[1]
        assert entry["frontmatter"] == {"name": "pdf", "description": "About pdf"}
        on_disk = {
            f"skill://{path.relative_to(folder)}": path.read_bytes()
            for path in (folder / "pdf").rglob("*")
            if path.is_file()
        }
        assert {each["uri"]: (each["digest"], each["size"]) for each in entry["resources"]} == {
            uri: (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) for uri, data in on_disk.items()
        }
        assert len(entry["resources"]) == len(on_disk)
        for each in listed:
            got = await client.request("skills/get", {"uri": each["uri"]})
            assert got["skill"] == each
            assert "nextCursor" not in got


@MODES
@each_of("uri", "skill://none/SKILL.md | skill://pdf | skill://pdf/templates/a.md | SKILL.md |  | " + "x" * 10_000)
async def test_an_unknown_skill_is_an_invalid_parameter(mode: str, uri: str, folder: Path) -> None:
    """Getting a Skill: -32602 if the URI does not identify a skill that the server serves."""
    async with served(Skills(folder), mode) as client:
        assert await refused(client.request("skills/get", {"uri": uri})) == -32602


@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": None}])
@each_of("method", "skills/get | resources/directory/read")
async def test_a_missing_uri_is_an_invalid_parameter(method: str, params: dict[str, Any], folder: Path) -> None:
    async with served(Skills(folder)) as client:
        assert await refused(client.request(method, params)) == -32602


@each_of("cursor", "x |  | bm90IG91cnM | " + "x" * 50_000, 1, ["a"])
async def test_a_cursor_that_is_not_ours_is_refused(cursor: object, folder: Path) -> None:
    async with served(Skills(folder)) as client:
        assert await refused(client.request("skills/list", {"cursor": cursor})) == -32602
        params = {"uri": "skill://pdf", "cursor": cursor}
        assert await refused(client.request("resources/directory/read", params)) == -32602


async def pages(client: Client, method: str, key: str, **params: Any) -> list[list[Any]]:
    found = []
    cursor = None
    while True:
        result = await client.request(method, params if cursor is None else {**params, "cursor": cursor})
        found.append(result[key])
        cursor = result.get("nextCursor")
        if cursor is None:
            return found


@MODES
async def test_pages_have_whole_entries(mode: str, tmp_path: Path) -> None:
    """Listing Skills: an entry is atomic. Together, the pages have each skill once."""
    for number in range(7):
        write_skill(tmp_path, f"skill-{number}", {"a": "a", "b": "b"})
    async with served(Skills(tmp_path), mode, lists=ListOptions(page_size=3)) as client:
        found = await pages(client, "skills/list", "skills")
        assert [len(page) for page in found] == [3, 3, 1]
        assert [each["frontmatter"]["name"] for page in found for each in page] == [f"skill-{n}" for n in range(7)]
        assert all(len(each["resources"]) == 3 for page in found for each in page)
        assert await pages(client, "resources/directory/read", "resources", uri="skill://skill-1") == [
            [
                {"uri": "skill://skill-1/SKILL.md", "name": "skill-1", "description": "About skill-1"}
                | {"mimeType": "text/markdown", "size": 57},
                {"uri": "skill://skill-1/a", "name": "a", "mimeType": "text/plain", "size": 1},
                {"uri": "skill://skill-1/b", "name": "b", "mimeType": "text/plain", "size": 1},
            ]
        ]


async def test_a_cursor_outlives_the_skill_that_it_names(tmp_path: Path) -> None:
    """Between two pages, skills come and go: none of the others is missed or repeated."""
    for number in range(6):
        write_skill(tmp_path, f"skill-{number}")
    skills = Skills(tmp_path)
    async with served(skills, lists=ListOptions(page_size=2)) as client:
        first = await client.request("skills/list")
        (tmp_path / "skill-1" / "SKILL.md").unlink()
        write_skill(tmp_path, "skill-0a")
        await skills.rescan()
        rest = await client.request("skills/list", {"cursor": first["nextCursor"]})
        assert [each["frontmatter"]["name"] for each in rest["skills"]] == ["skill-2", "skill-3"]


@MODES
async def test_directories(mode: str, folder: Path) -> None:
    """Reading Directories: direct children only, subdirectories as `inode/directory`, an empty one is empty."""
    async with served(Skills(folder), mode) as client:

        async def children(uri: str) -> dict[str, str]:
            result = await client.request("resources/directory/read", {"uri": uri})
            return {each["uri"]: each["mimeType"] for each in result["resources"]}

        directory = "inode/directory"
        assert await children("skill://pdf") == {
            PDF: "text/markdown",
            "skill://pdf/data.bin": "application/octet-stream",
            "skill://pdf/empty": directory,
            "skill://pdf/templates": directory,
        }
        assert await children("skill://pdf/templates") == {
            "skill://pdf/templates/a.md": "text/markdown",
            "skill://pdf/templates/regional": directory,
        }
        assert await children("skill://pdf/empty") == {}
        assert await children("skill://acme") == {"skill://acme/billing": directory}
        for uri in ("skill://none", PDF, "skill://pdf/", "skill://pdf/templates/..", "skill://", ""):
            assert await refused(client.request("resources/directory/read", {"uri": uri})) == -32602, uri


async def test_cache_hints_are_those_of_resources(folder: Path) -> None:
    """Listing Skills, Getting a Skill: `ttlMs` and `cacheScope` are REQUIRED from 2026-07-28, and absent before."""
    hints = {"resources/list": CacheHint(ttl=5, scope="public"), "resources/read": CacheHint(ttl=7)}

    async def told(skills: Skills, mode: str, **options: Any) -> list[tuple[Any, Any]]:
        async with served(skills, mode, **options) as client:
            results = [
                await client.request("skills/list"),
                await client.request("resources/directory/read", {"uri": "skill://pdf"}),
                await client.request("skills/get", {"uri": PDF}),
                await client.request("resources/read", {"uri": PDF}),
            ]
            return [(each.get("ttlMs"), each.get("cacheScope")) for each in results]

    assert await told(Skills(folder), "auto") == [(0, "private")] * 4
    own = {"lists": ListOptions(cache_hints=hints)}
    assert await told(Skills(folder), "auto", **own) == [
        *[(5000, "public")] * 2,
        *[(7000, "private")] * 2,
    ]
    cached = Skills(folder, cache=CacheHint(ttl=9, scope="public"))
    assert await told(cached, "auto", **own) == [(9000, "public")] * 4
    assert await told(cached, "legacy", **own) == [(None, None)] * 4


async def test_older_revisions_have_no_such_methods(folder: Path) -> None:
    async with served(Skills(folder), "legacy", revisions=["2025-06-18"]) as client:
        assert client.protocol_version == "2025-06-18"
        assert client.extensions == {}
        assert await refused(client.request("skills/list")) == -32601


# --- the resources ------------------------------------------------------------------------------------------------


@MODES
async def test_every_file_is_a_resource(mode: str, folder: Path) -> None:
    """Resource Mapping, Resource Metadata: MIME type, name and description of `SKILL.md` from its frontmatter."""
    async with served(Skills(folder), mode) as client:
        told = {each.uri: each async for each in client.iter_resources()}
        listed = (await client.request("skills/list"))["skills"]
        assert set(told) == {each["uri"] for entry in listed for each in entry["resources"]}
        skill = told[PDF]
        assert (skill.name, skill.description, skill.mime_type) == ("pdf", "About pdf", "text/markdown")
        assert skill.meta is None
        assert told["skill://pdf/data.bin"].size == 256


EXACT = {
    "bom": b"\xef\xbb\xbftext",
    "crlf": b"a\r\nb\rc\n",
    "unicode": "\u00e9e\u0301\u2028\U0001f600\ufffd".encode(),
    "escapes": b'"\\/\t\n\f',
    "nul": b"a\x00b",
    "control": b"\x1b[31m",
    "latin": b"caf\xe9",
    "surrogate": b"\xed\xa0\x80",
    "empty": b"",
}


@MODES
async def test_bytes_survive_exactly(mode: str, tmp_path: Path) -> None:
    """Integrity and Verification: the digest is that of the raw bytes, so no byte may change on the way."""
    write_skill(tmp_path, "exact", dict(EXACT))
    kinds = {}
    async with served(Skills(tmp_path), mode) as client:
        for name, data in EXACT.items():
            [content] = (await client.read_resource(f"skill://exact/{name}")).contents
            if isinstance(content, TextResourceContents):
                assert content.text.encode() == data
            else:
                assert isinstance(content, BlobResourceContents)
                assert base64.b64decode(content.blob) == data
            kinds[name] = type(content) is TextResourceContents
    assert [name for name, is_text in kinds.items() if not is_text] == ["nul", "control", "latin", "surrogate"]


async def test_a_changed_byte_on_the_disk_is_not_served(folder: Path) -> None:
    """The bytes that were hashed are served; the folder is read again only by `rescan`."""
    async with served(Skills(folder)) as client:
        before = await client.request("resources/read", {"uri": "skill://pdf/templates/a.md"})
        (folder / "pdf" / "templates" / "a.md").write_text("B")
        assert await client.request("resources/read", {"uri": "skill://pdf/templates/a.md"}) == before
        (folder / "pdf" / "templates" / "a.md").unlink()
        assert await client.request("resources/read", {"uri": "skill://pdf/templates/a.md"}) == before


@each_of(
    "uri",
    "skill://pdf/none | skill://pdf/../acme/billing/refunds/SKILL.md | skill://pdf/%2e%2e/secret | skill://../secret"
    " | skill://pdf/templates | skill://pdf/templates/%61.md | skill:///etc/passwd | skill://pdf/./SKILL.md",
)
async def test_only_the_uris_of_files_are_read(uri: str, folder: Path) -> None:
    """Error Handling: -32602 for a file that the server does not serve. URIs are compared, and never made to paths."""
    (folder.parent / "secret").write_text("secret")
    async with served(Skills(folder)) as client:
        assert await refused(client.read_resource(uri)) == -32602


async def test_a_uri_that_is_taken_stops_the_start(folder: Path) -> None:
    server = Server("desk", extensions=[Skills(folder)])
    server.add_resource(PDF, lambda: "mine", name="mine")
    with pytest.raises(ValueError, match=PDF):
        async with Client(server):
            pass


async def test_a_hidden_skill_is_hidden_everywhere(folder: Path) -> None:
    """A filter of the server's decides for each client, so no cache may share what it lists."""
    async with served(
        Skills(folder, cache=CacheHint(ttl=9, scope="public")),
        visible=lambda context, entry: not entry.name.startswith("skill://pdf/SKILL"),
    ) as client:
        result = await client.request("skills/list")
        assert [each["frontmatter"]["name"] for each in result["skills"]] == ["refunds"]
        assert result["cacheScope"] == "private"
        assert await refused(client.request("skills/get", {"uri": PDF})) == -32602
        assert await refused(client.read_resource(PDF)) == -32602
        found = await client.request("resources/directory/read", {"uri": "skill://pdf"})
        assert PDF not in [each["uri"] for each in found["resources"]]


async def test_a_disabled_skill_is_gone(folder: Path) -> None:
    skills = Skills(folder)
    server = Server("desk", extensions=[skills])
    async with Client(server) as client:
        server.disable(PDF, kind="resource")
        assert len((await client.request("skills/list"))["skills"]) == 1
        assert await refused(client.request("skills/get", {"uri": PDF})) == -32602
        write_skill(folder, "pdf", body="longer than before\n")
        assert (await skills.rescan()).changed == (PDF,)
        assert await refused(client.request("skills/get", {"uri": PDF})) == -32602, "still disabled"
        server.enable(PDF)
        assert len((await client.request("skills/list"))["skills"]) == 2
        server.remove_resource(PDF)
        (folder / "pdf" / "SKILL.md").unlink()
        assert (await skills.rescan()).removed == (PDF,)


async def test_middleware_can_not_change_what_is_served(folder: Path) -> None:
    async def spoil(context: Context, call_next: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        result = await call_next()
        for entry in result.get("skills", ()):
            entry["resources"].clear()
        return result

    skills = Skills(folder)
    async with served(skills, middleware=[spoil]) as client:
        assert (await client.request("skills/list"))["skills"][1]["resources"] == []
    async with served(skills) as client:
        assert len((await client.request("skills/list"))["skills"][1]["resources"]) == 4


# --- unlisted and dynamic skills ----------------------------------------------------------------------------------


@pytest.mark.parametrize("unlisted", [["pdf"], {"pdf", "none"}, lambda path: path == "pdf"])
async def test_an_unlisted_skill_is_answered_for(unlisted: Any, folder: Path) -> None:
    """Getting a Skill: a server MUST answer for every skill it serves, whether or not it lists it."""
    async with served(Skills(folder, unlisted=unlisted)) as client:
        listed = (await client.request("skills/list"))["skills"]
        assert [each["frontmatter"]["name"] for each in listed] == ["refunds"]
        assert (await client.request("skills/get", {"uri": PDF}))["skill"]["uri"] == PDF


async def test_a_dynamic_skill_is_made_for_each_reading(folder: Path) -> None:
    """Resources: `"dynamic"` where no stable digests can be published."""
    skills = Skills(folder)
    calls = 0

    @skills.dynamic("skill://reports/daily/SKILL.md", description='Say "hi": é', frontmatter={"metadata": {"v": "1"}})
    async def daily(ctx: Context) -> str:
        nonlocal calls
        calls += 1
        return f"call {calls} of {ctx.method}\n"

    @skills.dynamic("skill://hidden/SKILL.md", description="x", listed=False)
    def hidden() -> str:
        return "in a thread"

    entry = {
        "uri": "skill://reports/daily/SKILL.md",
        "frontmatter": {"name": "daily", "description": 'Say "hi": é', "metadata": {"v": "1"}},
        "resources": "dynamic",
    }
    async with served(skills) as client:
        assert entry in (await client.request("skills/list"))["skills"]
        assert len((await client.request("skills/list"))["skills"]) == 3
        assert (await client.request("skills/get", {"uri": entry["uri"]}))["skill"] == entry
        for number in (1, 2):
            [content] = (await client.read_resource(entry["uri"])).contents
            assert content.text.endswith(f"---\n\ncall {number} of resources/read\n")
        [content] = (await client.read_resource("skill://hidden/SKILL.md")).contents
        assert content.text.endswith("in a thread")
        children = await client.request("resources/directory/read", {"uri": "skill://reports/daily"})
        assert [each["uri"] for each in children["resources"]] == [entry["uri"]]


@pytest.mark.parametrize(
    ("uri", "options", "reason"),
    [
        ("skill://x", {}, "must end with a name and /SKILL.md"),
        ("x/SKILL.md", {}, "scheme"),
        ("skill://X/SKILL.md", {}, "lower-case"),
        ("skill://x/SKILL.md", {"description": " "}, "empty"),
        ("skill://x/SKILL.md", {"frontmatter": {"name": "y"}}, "the name comes from the URI"),
        ("skill://x/SKILL.md", {"frontmatter": {"a": float("nan")}}, "JSON data"),
        ("skill://x/SKILL.md", {"frontmatter": {"a": object()}}, "JSON data"),
        ("skill://x/SKILL.md", {"frontmatter": {"metadata": {"v": 1}}}, "map names to strings"),
        ("skill://x/SKILL.md", {"listed": 1}, "listed"),
        ("skill://taken/SKILL.md", {}, "already a skill"),
    ],
)
def test_a_dynamic_skill_keeps_the_rules(uri: str, options: dict[str, Any], reason: str) -> None:
    skills = Skills()
    skills.dynamic("skill://taken/SKILL.md", description="x")(lambda: "")
    with pytest.raises((TypeError, ValueError), match=reason):
        skills.dynamic(uri, **{"description": "x", **options})(lambda: "")


async def test_a_dynamic_skill_may_be_added_while_the_server_runs(folder: Path) -> None:
    skills = Skills(folder)
    async with served(skills) as client, client.listen(resources_list_changed=True) as events:
        skills.dynamic("skill://late/SKILL.md", description="x")(lambda: "late")
        await anext(events)
        assert "late" in str(await client.read_resource("skill://late/SKILL.md"))
        with pytest.raises(ValueError, match="already"):
            skills.dynamic(PDF, description="x")(lambda: "")


async def test_a_dynamic_skill_that_returns_no_text_fails(caplog: pytest.LogCaptureFixture) -> None:
    """Error Handling: internal errors are -32603."""
    skills = Skills()
    skills.dynamic("skill://bad/SKILL.md", description="x")(lambda: 1)
    async with served(skills) as client:
        assert await refused(client.read_resource("skill://bad/SKILL.md")) == -32603


# --- the folder changes -------------------------------------------------------------------------------------------


async def test_a_rescan_replaces_what_has_changed_and_tells_listeners(folder: Path) -> None:
    skills = Skills(folder)
    heard: list[tuple[str, str]] = []
    async with served(skills) as client, trio.open_nursery() as nursery:

        async def listen(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            watched = [PDF, "skill://pdf/templates/a.md", "skill://pdf/data.bin"]
            async with client.listen(resources_list_changed=True, resources=watched) as events:
                task_status.started()
                async for event in events:
                    heard.append((type(event).__name__, getattr(event, "uri", "")))

        await nursery.start(listen)
        before = (await client.request("skills/get", {"uri": PDF}))["skill"]
        (folder / "pdf" / "templates" / "a.md").write_text("changed")
        write_skill(folder, "new")
        (folder / "acme" / "billing" / "refunds" / "SKILL.md").unlink()
        found = await skills.rescan()
        assert found.added == ("skill://new/SKILL.md",)
        assert found.changed == (PDF,)
        assert found.removed == ("skill://acme/billing/refunds/SKILL.md",)
        assert found.problems == ()
        await settle()
        assert len(heard) == 2
        assert any(uri == "skill://pdf/templates/a.md" for _, uri in heard)
        after = (await client.request("skills/get", {"uri": PDF}))["skill"]
        assert {each["uri"] for each in before["resources"] if each not in after["resources"]} == {
            "skill://pdf/templates/a.md"
        }
        [content] = (await client.read_resource("skill://pdf/templates/a.md")).contents
        assert content.text == "changed"
        assert await refused(client.read_resource("skill://acme/billing/refunds/SKILL.md")) == -32602
        heard.clear()
        again = await skills.rescan()
        assert (again.added, again.changed, again.removed) == ((), (), ())
        await settle()
        assert heard == []
        nursery.cancel_scope.cancel()


async def test_a_rescan_without_a_change_reads_no_content(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skills = Skills(folder)
    async with served(skills):
        read: list[int] = []
        real = os.read
        monkeypatch.setattr(os, "read", lambda file, most: read.append(file) or real(file, most))
        assert (await skills.rescan()).changed == ()
        assert read == []
        (folder / "pdf" / "templates" / "a.md").write_text("the control")
        assert (await skills.rescan()).changed == (PDF,)
        assert len(set(read)) == 1


async def test_a_rescan_keeps_a_skill_that_became_invalid(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    skills = Skills(folder)
    async with served(skills) as client:
        before = await client.request("skills/list")
        (folder / "pdf" / "SKILL.md").write_text("no frontmatter")
        (folder / "pdf" / "templates" / "a.md").write_text("changed")
        found = await skills.rescan()
        assert found.problems == (f"{folder}/pdf/SKILL.md: there is no frontmatter: the first line must be ---",)
        assert found.problems[0] in caplog.text
        assert await client.request("skills/list") == before
        [content] = (await client.read_resource("skill://pdf/templates/a.md")).contents
        assert content.text == "A", "of the old state, as the whole skill"


async def test_a_problem_stops_the_start(folder: Path) -> None:
    (folder / "pdf" / "link").symlink_to("/etc/hostname")
    (folder / "acme" / "billing" / "refunds" / "SKILL.md").write_text("")
    with pytest.raises(SkillFolderError) as caught:
        async with served(Skills(folder)):
            pass
    assert len(caught.value.problems) == 2
    assert f"{folder}/pdf/link: it is a symbolic link" in str(caught.value)
    with pytest.raises(SkillFolderError, match="can't be opened as a directory"):
        async with served(Skills(folder / "none")):
            pass


async def test_a_cancelled_rescan_leaves_everything_consistent(folder: Path) -> None:
    skills = Skills(folder)
    async with served(skills) as client:
        for number in range(20):
            (folder / "pdf" / "templates" / "a.md").write_text(f"{number}")
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(skills.rescan)
                    for _ in range(number):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            entry = (await client.request("skills/get", {"uri": PDF}))["skill"]
            [content] = (await client.read_resource("skill://pdf/templates/a.md")).contents
            digest = f"sha256:{hashlib.sha256(content.text.encode()).hexdigest()}"
            assert digest in [each["digest"] for each in entry["resources"]]


async def test_one_object_may_serve_several_servers_and_runs(folder: Path) -> None:
    skills = Skills(folder)
    one, two = (Server(name, extensions=[skills]) for name in ("one", "two"))
    for _ in range(2):
        async with Client(one) as first, Client(two) as second, Client(two) as third:
            (folder / "pdf" / "templates" / "a.md").write_text("changed")
            await skills.rescan()
            for client in (first, second, third):
                assert len((await client.request("skills/list"))["skills"]) == 2
                [content] = (await client.read_resource("skill://pdf/templates/a.md")).contents
                assert content.text == "changed"


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        ((1,), {}, "str, bytes or os.PathLike"),
        ((b"skills",), {}, "folder must be a path"),
        ((), {"base": 1}, "base must be a string"),
        ((), {"base": "skill:"}, "base must be a scheme"),
        ((), {"base": "skill://acme"}, "ends with '/'"),
        ((), {"base": "skill://a b/"}, "ends with '/'"),
        ((), {"unlisted": "pdf"}, "unlisted must be"),
        ((), {"unlisted": 1}, "unlisted must be"),
        ((), {"max_size": 0}, "max_size"),
        ((), {"cache": 5}, "CacheHint"),
    ],
)
def test_invalid_arguments_are_refused(arguments: Any, options: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError), match=reason):
        Skills(*arguments, **options)


async def test_another_scheme(folder: Path) -> None:
    """Resource Mapping: no scheme is privileged."""
    async with served(Skills(folder, base="github://owner/repo/skills/")) as client:
        uris = [each["uri"] for each in (await client.request("skills/list"))["skills"]]
        assert uris == [
            "github://owner/repo/skills/acme/billing/refunds/SKILL.md",
            "github://owner/repo/skills/pdf/SKILL.md",
        ]
        found = await client.request("resources/directory/read", {"uri": "github://owner/repo/skills/pdf/templates"})
        assert len(found["resources"]) == 2


async def test_an_older_scan_does_not_replace_a_newer_one(folder: Path) -> None:
    """Two tasks that rescan at the same time may go on in any order once their threads have ended."""
    source = Skills(folder).server_side.source
    older = source.scan()
    (folder / "pdf" / "templates" / "a.md").write_text("changed")
    newer = source.scan()
    source.adopt(newer, strict=True)
    source.adopt(older, strict=True)
    assert source.catalog.files["skill://pdf/templates/a.md"].data == b"changed"


async def test_each_request_sees_one_state(folder: Path) -> None:
    """While the folder is read again and again, whatever an entry lists can be read, with its digest."""
    skills = Skills(folder)
    async with served(skills) as client, trio.open_nursery() as nursery:

        async def change() -> None:
            for number in range(30):
                (folder / "pdf" / f"{number}.md").write_text(f"{number}")
                write_skill(folder, "pdf", body=f"{number}\n" * number)
                await skills.rescan()
            nursery.cancel_scope.cancel()

        nursery.start_soon(change)
        while True:
            result = await client.request("skills/get", {"uri": PDF})
            [content] = (await client.read_resource(PDF)).contents
            listed = {each["uri"]: each["digest"] for each in result["skill"]["resources"]}
            digest = f"sha256:{hashlib.sha256(content.text.encode()).hexdigest()}"
            if digest != listed[PDF]:  # it changed between the two requests
                now = (await client.request("skills/get", {"uri": PDF}))["skill"]["resources"]
                assert listed[PDF] != {each["uri"]: each["digest"] for each in now}[PDF]
