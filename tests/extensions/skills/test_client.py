"""The skills that a client loads are what their entries describe, whatever the server sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.skills.folders import skill_text, write_skill
from tests.extensions.skills.hostile import GOOD, HostileServer, digest_of, entry_of, hostile
from tests.tables import each_of
from trio_mcp import CapabilityError, Client, ClientGroup, LocalProtocolError, McpError, ResponseCache, Server
from trio_mcp.errors import RemoteProtocolError, TransportError
from trio_mcp.extensions import SkillEntry, SkillError, SkillMismatch, SkillRefused, Skills
from trio_mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents

MODES = each_of("mode", "auto | legacy")


def changed(**fields: Any) -> dict[str, Any]:
    return {**HostileServer().entries[0], **fields}


def files(*resources: Any) -> dict[str, Any]:
    return changed(resources=[*HostileServer().entries[0]["resources"], *resources])


def file(uri: str, **fields: Any) -> dict[str, Any]:
    return {"uri": uri, "digest": "sha256:" + "0" * 64, "size": 1, **fields}


# --- entries ------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[Any, str]] = [
    (None, "must be an object"),
    ([], "must be an object"),
    ({}, "must be an object with a uri"),
    (changed(uri=1), "must be an object with a uri"),
    (changed(uri="skill://good"), "must be that of a SKILL.md"),
    (changed(uri="SKILL.md"), "must be that of a SKILL.md"),
    (changed(uri="skill://good/skill.md"), "must be that of a SKILL.md"),
    (changed(uri="skill://good//SKILL.md"), "must be that of a SKILL.md"),
    (changed(uri="skill://other/SKILL.md"), "differs from that of the directory"),
    (changed(uri="skill://good/../evil/SKILL.md"), "differs from that of the directory"),
    (changed(uri="skill://" + "x" * 10_000 + "/good/SKILL.md"), "must be that of a SKILL.md"),
    (changed(frontmatter=None), "no frontmatter"),
    (changed(frontmatter=[]), "no frontmatter"),
    (changed(frontmatter={"name": "good"}), "has no description"),
    (changed(frontmatter={"description": "x"}), "has no name"),
    (changed(frontmatter={"name": "Good", "description": "x"}), "lower-case"),
    (changed(frontmatter={"name": "good", "description": ""}), "description is empty"),
    (changed(frontmatter={"name": "good", "description": "x" * 1025}), "1025 characters"),
    (changed(frontmatter={"name": 1, "description": "x"}), "must be a string"),
    (changed(resources=None), "must be an array"),
    (changed(resources="static"), "must be an array"),
    (changed(resources={}), "must be an array"),
    (changed(resources=[]), "SKILL.md is not among the files"),
    (changed(resources=[file("skill://good/a.md")]), "SKILL.md is not among the files"),
    (files(1), "must be an object with a uri"),
    (files({}), "must be an object with a uri"),
    (files(file(GOOD)), "listed twice"),
    (files(file("skill://good/%61.md")), "listed twice"),
    (files(file("skill://other/a.md")), "not in the directory"),
    (files(file("skill://goodness/a.md")), "not in the directory"),
    (files(file("skill://good")), "not in the directory"),
    (files(file("skill://good/")), "not in the directory"),
    (files(file("skill://good/../evil/a.md")), "not in the directory"),
    (files(file("skill://good/%2e%2e/a.md")), "not in the directory"),
    (files(file("skill://good/a%2Fb.md")), "not in the directory"),
    (files(file("skill://good/a%5C..%5Cb.md")), "not in the directory"),
    (files(file("skill://good/a\\b.md")), "not in the directory"),
    (files(file("skill://good/./a.md")), "not in the directory"),
    (files(file("skill://good//a.md")), "not in the directory"),
    (files(file("skill://good/a%00.md")), "not in the directory"),
    (files(file("skill://good/a%ff.md")), "not in the directory"),
    (files(file("skill://good/a%zz.md")), "not in the directory"),
    (files(file("skill://good/a.md?x=1")), "not in the directory"),
    (files(file("skill://good/a.md#x")), "not in the directory"),
    (files(file("https://good/a.md")), "not in the directory"),
    (files(file("skill://good/b", digest=None)), "no digest"),
    (files(file("skill://good/b", digest="sha256:" + "A" * 64)), "no digest"),
    (files(file("skill://good/b", digest="sha256:" + "0" * 63)), "no digest"),
    (files(file("skill://good/b", digest="sha256:" + "0" * 64 + "\n")), "no digest"),
    (files(file("skill://good/b", digest="md5:" + "0" * 32)), "no digest"),
    (files(file("skill://good/b", size=None)), "no size"),
    (files(file("skill://good/b", size=-1)), "no size"),
    (files(file("skill://good/b", size=True)), "no size"),
    (files(file("skill://good/b", size=1.0)), "no size"),
    (files(file("skill://good/b", size="1")), "no size"),
    (files(*[file(f"skill://good/{n}") for n in range(511)]), "513 files; 512 is the limit"),
    (files(file("skill://good/b", size=16 * 1024 * 1024)), "16777216 is the limit"),
]


@pytest.mark.parametrize(("entry", "reason"), REFUSED, ids=range(len(REFUSED)))
async def test_an_entry_that_breaks_a_rule_does_not_lose_the_others(entry: Any, reason: str) -> None:
    """Skill Entries, Limits: a host MUST NOT load an invalid entry, and says why; the other entries stand."""
    good = entry_of("skill://fine/SKILL.md", {"skill://fine/SKILL.md": b"x"})
    server = HostileServer(entries=[good, entry, good | {"uri": "skill://a/fine/SKILL.md", "resources": "dynamic"}])
    async with hostile(server) as skills:
        found = await skills.entries()
        assert [each.uri for each in found] == ["skill://fine/SKILL.md", "skill://a/fine/SKILL.md"]
        [refused] = found.refused
        assert reason in refused.reason
        uri = entry.get("uri") if isinstance(entry, dict) else None
        assert refused.uri == (uri if isinstance(uri, str) else None)
        if isinstance(uri, str):
            with pytest.raises(SkillRefused) as caught:
                await skills.load(uri)
            assert reason in caught.value.reason
        assert "resources/read" not in [method for method, _ in server.asked]


async def test_the_limits_are_inclusive() -> None:
    """Limits: hosts MUST support skills up to and including these limits."""
    most = [file(f"skill://good/{n}", size=0) for n in range(509)]
    used = sum(each["size"] for each in HostileServer().entries[0]["resources"])
    server = HostileServer(entries=[files(*most, file("skill://good/big", size=16 * 1024 * 1024 - used))])
    async with hostile(server) as skills:
        [entry] = await skills.entries()
        assert entry.resources is not None
        assert (len(entry.resources), entry.size) == (512, 16 * 1024 * 1024)


async def test_a_skill_that_is_listed_twice_is_reported() -> None:
    async with hostile(HostileServer(entries=[changed(), changed()])) as skills:
        found = await skills.entries()
        assert (len(found), [each.reason for each in found.refused]) == (1, ["the skill is listed twice"])


@pytest.mark.parametrize(
    "result", [{}, {"skills": None}, {"skills": {}}, {"skills": [], "nextCursor": 1}], ids=lambda result: str(result)
)
async def test_a_malformed_page_is_a_fault_of_the_server(result: dict[str, Any]) -> None:
    server = Server("x", extensions={"io.modelcontextprotocol/skills": {}})
    server.add_method("skills/list", lambda params, ctx: result)
    async with Client(server, extensions=[Skills()]) as client:
        with pytest.raises(RemoteProtocolError):
            await Skills.of(client).entries()


async def test_a_list_without_an_end_ends() -> None:
    server = Server("x", extensions={"io.modelcontextprotocol/skills": {}})
    server.add_method("skills/list", lambda params, ctx: {"skills": [], "nextCursor": "again"})
    async with Client(server, extensions=[Skills()]) as client:
        with pytest.raises(RemoteProtocolError, match="more than 1000 pages"):
            await Skills.of(client).entries()


async def test_another_skill_than_asked_for_is_refused() -> None:
    server = Server("x", extensions={"io.modelcontextprotocol/skills": {}})
    server.add_method("skills/get", lambda params, ctx: {"skill": changed()})
    async with Client(server, extensions=[Skills()]) as client:
        with pytest.raises(SkillRefused, match="instead"):
            await Skills.of(client).get("skill://other/good/SKILL.md")


# --- loading ------------------------------------------------------------------------------------------------------


@MODES
async def test_a_true_skill_is_loaded(mode: str) -> None:
    """The control of all the attacks below."""
    server = HostileServer()
    async with hostile(server, mode) as skills:
        [entry] = await skills.entries()
        skill = await skills.load(entry)
        assert skill.text == skill_text("good")
        assert skill.body == "\nDo it.\n"
        assert await skill.read("a.md") == b"A"
        assert await skill.read_text("./a.md") == "A"
        assert skill.files() == ["SKILL.md", "a.md"]
        assert (await skills.load(GOOD)).entry == entry


TEXT = skill_text("good")


def content(*contents: Any) -> ReadResourceResult:
    return ReadResourceResult(contents=list(contents))


def text(value: str, uri: str = GOOD) -> TextResourceContents:
    return TextResourceContents(uri=uri, text=value)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (TEXT.replace("Do it", "Do so").encode(), "digest"),
        (TEXT.encode() + b"\n", "bytes instead of"),
        (TEXT.encode()[:-1], "bytes instead of"),
        (b"", "0 bytes instead of"),
        (TEXT.replace("\n", "\r\n").encode(), "bytes instead of"),
        (b"\xff" * len(TEXT), "digest"),
        (content(), "exactly this file"),
        (content(text(TEXT), text(TEXT)), "exactly this file"),
        (content(text(TEXT, "skill://good/a.md")), "exactly this file"),
        (content(text(TEXT, GOOD.upper())), "exactly this file"),
        (content(BlobResourceContents(uri=GOOD, blob="!!!!")), "neither text nor Base64"),
        (content(BlobResourceContents(uri=GOOD, blob="QQ")), "neither text nor Base64"),
    ],
)
async def test_content_that_is_not_what_was_listed_is_not_used(sent: Any, reason: str) -> None:
    """Verification on Read: hosts MUST verify digest and size, and MUST NOT use unverified content."""
    server = HostileServer()
    server.files[GOOD] = sent
    async with hostile(server) as skills:
        with pytest.raises(SkillMismatch, match=reason):
            await skills.load(GOOD)
    server = HostileServer()
    original, server.files["skill://good/a.md"] = server.files["skill://good/a.md"], sent
    if isinstance(sent, ReadResourceResult):
        return
    async with hostile(server) as skills:
        skill = await skills.load(GOOD)
        for _ in range(2):
            with pytest.raises(SkillMismatch):
                await skill.read("a.md")
        server.files["skill://good/a.md"] = original
        assert await skill.read("a.md") == original


@pytest.mark.parametrize(
    ("frontmatter", "extra", "where"),
    [
        ({}, "license: MIT\n", "license"),
        ({"license": "MIT"}, "", "license"),
        ({"license": "MIT"}, "license: mit\n", "license"),
        ({"v": 1}, "v: true\n", "v"),
        ({"v": 1}, "v: '1'\n", "v"),
        ({"v": True}, "v: yes\n", "v"),
        ({"v": "yes"}, "v: true\n", "v"),
        ({"v": "2024-01-02T00:00:00"}, "v: 2024-01-02\n", "v"),
        ({"v": 1000}, "v: 1_000\n", "v"),
        ({"v": "0o7"}, "v: 0o7\n", "v"),
        ({"v": 31}, "v: '0x1f'\n", "v"),
        ({"v": None}, "v: ''\n", "v"),
        ({"metadata": {"a": {"b": 1}}}, "metadata: {a: {b: 2}}\n", "metadata.a.b"),
        ({"description": "About good "}, "", "description"),
        ({"allowed-tools": "Read"}, "allowed-tools: Bash\n", "allowed-tools"),
    ],
)
async def test_a_frontmatter_that_differs_in_one_field_is_refused(
    frontmatter: dict[str, Any], extra: str, where: str
) -> None:
    """Frontmatter Verification: field by field, although size and digest are true."""
    data = skill_text("good", extra).encode()
    server = HostileServer(files={GOOD: data}, entries=[entry_of(GOOD, {GOOD: data}, **frontmatter)])
    async with hostile(server) as skills:
        with pytest.raises(SkillMismatch, match=f"the field '{where}'"):
            await skills.load(GOOD)


@pytest.mark.parametrize(
    ("frontmatter", "extra"),
    [
        ({"v": "yes"}, "v: yes\n"),
        ({"v": "on"}, "v: on\n"),
        ({"v": "2024-01-02"}, "v: 2024-01-02\n"),
        ({"v": "1_000"}, "v: 1_000\n"),
        ({"v": 7}, "v: 0o7\n"),
        ({"v": 31}, "v: 0x1f\n"),
        ({"v": None}, "v: ~\n"),
        ({"v": 1}, "v: 1.0\n"),
        ({"v": 1.5, "w": [True, {"x": "y"}]}, "v: 1.5\nw: [true, {x: y}]\n"),
    ],
)
async def test_a_frontmatter_is_compared_as_yaml_1_2(frontmatter: dict[str, Any], extra: str) -> None:
    data = skill_text("good", extra).encode()
    server = HostileServer(files={GOOD: data}, entries=[entry_of(GOOD, {GOOD: data}, **frontmatter)])
    async with hostile(server) as skills:
        assert (await skills.load(GOOD)).entry.frontmatter == {**server.entries[0]["frontmatter"]}


BOMBS = {
    "aliases": "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
    "depth": "a: " + "[" * 30_000 + "\n",
    "length": "a: " + "x" * 70_000 + "\n",
    "digits": "a: " + "9" * 60_000 + "\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_bomb_in_yaml_is_a_mismatch(bomb: str) -> None:
    data = skill_text("good", BOMBS[bomb]).encode()
    server = HostileServer(files={GOOD: data}, entries=[entry_of(GOOD, {GOOD: data})])
    async with hostile(server) as skills:
        with pytest.raises(SkillMismatch, match="can't be compared"):
            await skills.load(GOOD)


async def test_nothing_is_fetched_ahead_of_need() -> None:
    """Lazy Retrieval: not on connection, on listing, or at approval; a supporting file only when it is read."""
    server = HostileServer()
    async with hostile(server) as skills:
        entry = (await skills.entries())[0]
        assert entry.fingerprint
        assert (await skills.get(GOOD)).fingerprint == entry.fingerprint
        assert [method for method, _ in server.asked] == ["skills/list", "skills/get"]
        skill = await skills.load(entry)
        assert skill.files()
        assert server.asked[2:] == [("resources/read", GOOD)]
        await skill.read("a.md")
        await skill.read("a.md")
        await skill.read("SKILL.md")
        assert server.asked[3:] == [("resources/read", "skill://good/a.md")], "what is verified is not fetched again"


@each_of(
    "path",
    "b.md | ../evil/SKILL.md | ../good/a.md | a/../../x | /a.md | skill://good/a.md | https://example.com/a.md"
    " | a.md/x | A.md | %61.md |  | .. | file:///etc/passwd",
)
async def test_only_listed_files_are_read(path: str) -> None:
    """The Acting Window: a read of an unlisted file is a verification failure. Nothing is sent for it."""
    server = HostileServer()
    server.files |= {"skill://good/b.md": b"B", "skill://evil/SKILL.md": b"E"}
    async with hostile(server) as skills:
        skill = await skills.load(GOOD)
        before = list(server.asked)
        with pytest.raises(SkillMismatch):
            await skill.read(path)
        with pytest.raises(SkillMismatch):
            skill.resolve(path)
        assert server.asked == before


async def test_references_are_paths_from_the_root_of_the_skill() -> None:
    """Relative References: as a filesystem path would resolve, against the directory of `SKILL.md`."""
    uri = "skill://acme/billing/good/SKILL.md"
    root = "skill://acme/billing/good"
    data = {uri: TEXT.encode(), f"{root}/references/GUIDE.md": b"G", f"{root}/a%20b/caf%C3%A9.md": b"C"}
    async with hostile(HostileServer(files=dict(data), entries=[entry_of(uri, data)])) as skills:
        skill = await skills.load(uri)
        assert skill.resolve("references/GUIDE.md") == f"{root}/references/GUIDE.md"
        assert skill.resolve("./references/../references//GUIDE.md") == f"{root}/references/GUIDE.md"
        assert await skill.read("a b/caf\u00e9.md") == b"C"
        assert skill.files("references") == skill.files("references/") == ["references/GUIDE.md"]
        for directory in ("none", "refer", "references/GUIDE.md", ".."):
            with pytest.raises(SkillMismatch):
                skill.files(directory)


async def test_the_held_entry_stands_whatever_the_server_lists_later() -> None:
    """Directory Reads and the Held Entry: a new file is not a file of the skill until its entry is got again."""
    server = HostileServer(settings={"directoryRead": True})
    async with hostile(server) as skills:
        skill = await skills.load(GOOD)
        server.files |= {"skill://good/new.md": b"N", "skill://good/a.md": b"changed"}
        server.entries = [entry_of(GOOD, server.files)]
        server.directories["skill://good"] = list(server.files)
        assert len(await skills.directory("skill://good")) == 3
        assert skill.files() == ["SKILL.md", "a.md"]
        for path in ("new.md", "a.md"):
            with pytest.raises(SkillMismatch):
                await skill.read(path)
        fresh = await skills.get(GOOD)
        assert fresh.fingerprint != skill.entry.fingerprint, "an approval is revoked"
        again = await skills.load(fresh)
        assert (await again.read("new.md"), await again.read("a.md")) == (b"N", b"changed")


async def test_a_cache_of_the_client_does_not_hide_a_change() -> None:
    """Verification on Read: after the entry is got again, the content must be fetched again."""
    server = HostileServer()
    stale = content(text(TEXT))
    stale.ttl_ms, stale.cache_scope = 1_000_000, "public"
    server.files[GOOD] = stale
    async with Client(server.server(), extensions=[Skills()], cache=ResponseCache()) as client:
        await client.read_resource(GOOD)
        new = skill_text("good", body="New.\n").encode()
        server.files[GOOD] = new
        server.entries = [entry_of(GOOD, {GOOD: new})]
        assert (await Skills.of(client).load(GOOD)).body == "\nNew.\n"


async def test_allowed_tools_is_only_a_field() -> None:
    """No implicit permission grants: `allowed-tools` MUST be ignored; it is there to be shown, and nowhere else."""
    data = skill_text("good", "allowed-tools: Bash(*) Write\n").encode()
    server = HostileServer(
        files={GOOD: data}, entries=[entry_of(GOOD, {GOOD: data}, **{"allowed-tools": "Bash(*) Write"})]
    )
    async with hostile(server) as skills:
        skill = await skills.load(GOOD)
        assert skill.entry.frontmatter["allowed-tools"] == "Bash(*) Write"
        granted = [name for name in (*dir(skill), *dir(skill.entry)) if "tool" in name or "allow" in name]
        assert granted == []


# --- fingerprints -------------------------------------------------------------------------------------------------


def reordered(entry: dict[str, Any]) -> None:
    entry["resources"].reverse()
    entry["frontmatter"] = dict(reversed(entry["frontmatter"].items()))


def another_digest(entry: dict[str, Any]) -> None:
    entry["resources"][1]["digest"] = digest_of(b"B")


def another_size(entry: dict[str, Any]) -> None:
    entry["resources"][1]["size"] += 1


def one_more(entry: dict[str, Any]) -> None:
    entry["resources"].append(file("skill://good/b.md"))


def one_less(entry: dict[str, Any]) -> None:
    entry["resources"].pop()


def another_field(entry: dict[str, Any]) -> None:
    entry["frontmatter"]["license"] = "MIT"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (reordered, True),
        (another_digest, False),
        (another_size, False),
        (one_more, False),
        (one_less, False),
        (another_field, False),
    ],
)
async def test_a_fingerprint_binds_an_approval(change: Callable[[dict[str, Any]], None], same: bool) -> None:
    """Content-bound approval: it is revoked if a file was rotated, added or removed."""
    server = HostileServer()
    async with hostile(server) as skills:
        before = (await skills.get(GOOD)).fingerprint
        entry = json.loads(json.dumps(server.entries[0]))
        change(entry)
        server.entries = [entry]
        assert ((await skills.get(GOOD)).fingerprint == before) is same


# --- dynamic skills -----------------------------------------------------------------------------------------------


async def test_a_dynamic_skill_is_loaded_only_if_that_is_allowed() -> None:
    """Resources, Content-bound approval: nothing of it can be verified, so it has no fingerprint."""
    server = HostileServer(entries=[changed(resources="dynamic")])
    server.files["skild"] = b""
    async with hostile(server) as skills:
        [entry] = await skills.entries()
        assert (entry.is_dynamic, entry.fingerprint, entry.size) == (True, None, None)
        with pytest.raises(SkillRefused, match="allow_dynamic=True"):
            await skills.load(entry)
        assert "resources/read" not in [method for method, _ in server.asked]
        skill = await skills.load(entry, allow_dynamic=True)
        assert await skill.read("a.md") == b"A"
        with pytest.raises(SkillRefused, match="lists no files"):
            skill.files()
        for path in ("../evil/SKILL.md", "/x", ""):
            with pytest.raises(SkillMismatch):
                await skill.read(path)
        server.files[GOOD] = skill_text("good", "license: MIT\n").encode()
        with pytest.raises(SkillMismatch, match="license"):  # its frontmatter is still compared
            await skills.load(entry, allow_dynamic=True)


async def test_a_dynamic_skill_may_not_grow_without_end() -> None:
    """Limits: a host applies the total-size limit to what it actually retrieves."""
    server = HostileServer(entries=[changed(resources="dynamic")])
    server.files["skill://good/big"] = b"x" * (9 * 1024 * 1024)
    async with hostile(server) as skills:
        skill = await skills.load(GOOD, allow_dynamic=True)
        await skill.read("big")
        with pytest.raises(SkillMismatch, match="which is the limit"):
            await skill.read("big")


# --- capabilities -------------------------------------------------------------------------------------------------


async def test_nothing_is_sent_to_a_server_without_skills() -> None:
    async with Client(Server("plain"), extensions=[Skills()]) as client:
        skills = Skills.of(client)
        assert list(await skills.entries()) == []
        for call in (skills.get(GOOD), skills.load(GOOD), skills.directory("skill://good")):
            with pytest.raises(CapabilityError, match="skills"):
                await call


async def test_directories_are_not_read_unless_declared() -> None:
    """Capability Negotiation: clients MUST NOT call `resources/directory/read` without `directoryRead: true`."""
    for settings in ({}, {"directoryRead": False}, {"directoryRead": 1}, {"directoryRead": "true"}):
        server = HostileServer(settings=settings)
        async with hostile(server) as skills:
            with pytest.raises(CapabilityError, match="directoryRead"):
                await skills.directory("skill://good")
            assert server.asked == []


async def test_a_client_without_the_extension_says_so() -> None:
    async with Client(HostileServer().server()) as client:
        with pytest.raises(LocalProtocolError, match=r"extensions=\["):
            Skills.of(client)


async def test_wrong_arguments_are_refused() -> None:
    async with hostile(HostileServer()) as skills:
        for call in (skills.get(1), skills.load(1), skills.directory(None), skills.load(GOOD, allow_dynamic=1)):  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await call
        skill = await skills.load(GOOD)
        with pytest.raises(TypeError):
            await skill.read(1)  # type: ignore[arg-type]


async def test_an_unknown_skill_raises_what_the_server_says() -> None:
    async with hostile(HostileServer()) as skills:
        with pytest.raises(McpError, match="no such skill"):
            await skills.load("skill://none/SKILL.md")


# --- groups -------------------------------------------------------------------------------------------------------


async def test_in_a_group_a_skill_is_identified_by_its_server_too() -> None:
    """Skill URIs: two servers may serve one URI, and those are unrelated skills. Reads are bound to the origin."""
    one, two = HostileServer(), HostileServer()
    two.files = {GOOD: skill_text("good", body="Other.\n").encode()}
    two.entries = [entry_of(GOOD, two.files)]
    servers = {"one": one.server(), "two": two.server(), "plain": Server("plain")}
    async with ClientGroup(servers, extensions=[Skills()]) as group:
        skills = Skills.of(group)
        found = await skills.entries()
        assert [(each.server, each.uri) for each in found] == [("one", GOOD), ("two", GOOD)]
        assert found.errors == {}
        for entry, server, other, body in ((found[0], one, two, "\nDo it.\n"), (found[1], two, one, "\nOther.\n")):
            before = list(other.asked)
            skill = await skills.load(entry)
            assert (skill.server, skill.body) == (entry.server, body)
            assert server.asked[-1] == ("resources/read", GOOD)
            assert (await skills.load(GOOD, server=entry.server or "")).entry == entry
            assert other.asked == before, "the other server is not asked"
        with pytest.raises(SkillMismatch):  # the file is the other server's
            await (await skills.load(found[1])).read("a.md")
        for call in (skills.load(GOOD), skills.load(found[0], server="two"), skills.load(1)):  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await call
        with pytest.raises(ValueError, match="of a group"):
            await Skills.of(group.clients["two"]).load(found[0])
        with pytest.raises(LocalProtocolError):
            await skills.get(GOOD, server="none")
        with pytest.raises(CapabilityError) as caught:
            await skills.get(GOOD, server="plain")
        assert caught.value.server == "plain"


async def test_one_server_of_a_group_that_fails_does_not_lose_the_others() -> None:
    broken = Server("broken", extensions={"io.modelcontextprotocol/skills": {}})
    broken.add_method("skills/list", lambda params, ctx: {"skills": 1})
    async with ClientGroup({"one": HostileServer().server(), "broken": broken}, extensions=[Skills()]) as group:
        found = await Skills.of(group).entries()
        assert [each.server for each in found] == ["one"]
        assert isinstance(found.errors["broken"], RemoteProtocolError)
        assert "server 'broken'" in str(found.errors["broken"])
    with pytest.raises((LocalProtocolError, TransportError)):
        await Skills.of(group).get(GOOD, server="one")


async def test_entries_are_values() -> None:
    async with hostile(HostileServer()) as skills:
        one, two = await skills.get(GOOD), await skills.get(GOOD)
        assert isinstance(one, SkillEntry)
        assert one == two
        assert (one.name, one.description, one.root) == ("good", "About good", "skill://good")


async def test_both_sides_together(tmp_path: Path) -> None:
    """All that our server serves, our client loads."""
    data = {"bin": bytes(range(256)), "bom.txt": b"\xef\xbb\xbfa\r\n", "a/b c#d.md": "\u00e9".encode(), "empty": b""}
    write_skill(tmp_path, "acme/tools", dict(data), extra="when: 2024-01-02\nn: 0o17\non: yes\n")
    (tmp_path / "acme" / "tools" / "SKILL.md").write_bytes(
        b"\xef\xbb\xbf" + (tmp_path / "acme" / "tools" / "SKILL.md").read_bytes().replace(b"\n", b"\r\n")
    )
    async with Client(Server("x", extensions=[Skills(tmp_path)]), extensions=[Skills()]) as client:
        [entry] = await Skills.of(client).entries()
        skill = await Skills.of(client).load(entry)
        assert entry.frontmatter == {
            "name": "tools",
            "description": "About tools",
            "when": "2024-01-02",
            "n": 15,
            "on": "yes",
        }
        assert {path: await skill.read(path) for path in skill.files() if path != "SKILL.md"} == data


def test_errors_have_one_base() -> None:
    assert issubclass(SkillMismatch, SkillError)
    assert issubclass(SkillRefused, SkillError)
    assert str(SkillMismatch("skill://a/SKILL.md", "no")) == "skill://a/SKILL.md: no"
