"""Statements of the extension that concern both sides, or neither alone: see `test_musts`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.skills.folders import IDENTIFIER, skill_text, write_skill
from tests.extensions.skills.hostile import HostileServer, entry_of, hostile
from tests.peer import client_peer
from trio_mcp import Client, Server
from trio_mcp.extensions import Skills


async def test_results_are_complete(tmp_path: Path) -> None:
    """Listing Skills, Getting a Skill, Reading Directories: `resultType` MUST be "complete"."""
    write_skill(tmp_path, "good")
    async with client_peer(Server("x", extensions=[Skills(tmp_path)]), capabilities={}) as peer:
        for method, params in (
            ("skills/list", {}),
            ("skills/get", {"uri": "skill://good/SKILL.md"}),
            ("resources/directory/read", {"uri": "skill://good"}),
        ):
            result: dict[str, Any] = await peer.result(method, params)
            assert result["resultType"] == "complete", method


async def test_no_name_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resource Mapping: clients MUST NOT attempt DNS or network resolution of the authority."""

    def resolve(*arguments: object) -> None:
        raise AssertionError("something was resolved")

    write_skill(tmp_path, "example.com/good", {"a.md": "A"})
    async with Client(Server("x", extensions=[Skills(tmp_path)]), extensions=[Skills()]) as client:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(socket.socket, "connect", resolve)
        skill = await Skills.of(client).load("skill://example.com/good/SKILL.md")
        assert await skill.read("a.md") == b"A"


async def test_a_scheme_makes_no_skill() -> None:
    """Resource Mapping: a host MUST NOT conclude from its scheme that a resource is a skill; no other is privileged."""
    server = HostileServer()
    uri = "other+scheme://host/path/good/SKILL.md"
    server.files = {uri: skill_text("good").encode(), "skill://looks/like/one/SKILL.md": b""}
    server.entries = [entry_of(uri, {uri: server.files[uri]})]
    async with hostile(server) as skills:
        assert [each.uri for each in await skills.entries()] == [uri]
        assert (await skills.load(uri)).body == "\nDo it.\n"


async def test_a_nested_skill_is_only_files(tmp_path: Path) -> None:
    """Nested Skills: to the enclosing skill it is supporting content. It is published, and loaded, by itself."""
    write_skill(tmp_path, "outer")
    write_skill(tmp_path, "outer/inner", extra="allowed-tools: Bash\n")
    async with Client(Server("x", extensions=[Skills(tmp_path)]), extensions=[Skills()]) as client:
        skills = Skills.of(client)
        outer = await skills.load("skill://outer/SKILL.md")
        assert (await outer.read_text("inner/SKILL.md")).startswith("---\nname: inner\n")
        assert "allowed-tools" not in outer.entry.frontmatter
        inner = await skills.get("skill://outer/inner/SKILL.md")
        assert inner.fingerprint != outer.entry.fingerprint
        before = outer.entry.fingerprint
    # A change to a nested skill is a change to the enclosing skill (Resources).
    write_skill(tmp_path, "outer/inner", body="Changed.\n")
    async with Client(Server("x", extensions=[Skills(tmp_path)]), extensions=[Skills()]) as client:
        assert (await Skills.of(client).get("skill://outer/SKILL.md")).fingerprint != before


async def test_names_need_not_be_unique(tmp_path: Path) -> None:
    """Names: hosts MUST NOT assume that names are unique, nor discard one of two skills."""
    write_skill(tmp_path, "acme/billing/refunds")
    write_skill(tmp_path, "acme/support/refunds", body="Other.\n")
    async with Client(Server("x", extensions=[Skills(tmp_path)]), extensions=[Skills()]) as client:
        found = await Skills.of(client).entries()
        assert [each.name for each in found] == ["refunds", "refunds"]
        assert len({each.fingerprint for each in found}) == 2


async def test_an_unlisted_skill_is_loaded_by_its_uri(tmp_path: Path) -> None:
    """Listing Skills: hosts MUST support loading a skill given only its URI."""
    write_skill(tmp_path, "hidden")
    async with Client(Server("x", extensions=[Skills(tmp_path, unlisted=["hidden"])]), extensions=[Skills()]) as client:
        assert len(await Skills.of(client).entries()) == 0
        assert (await Skills.of(client).load("skill://hidden/SKILL.md")).entry.name == "hidden"


async def test_a_server_without_the_settings_of_the_extension_declares_them_in_two_revisions(tmp_path: Path) -> None:
    """Protocol Revision: the extension is specified for 2026-07-28; we also declare it in 2025-11-25."""
    server = Server("x", extensions=[Skills(tmp_path)])
    for mode, declared in (("2026-07-28", True), ("2025-11-25", True), ("2025-06-18", False), ("2024-11-05", False)):
        async with Client(server, mode=mode, extensions=[Skills()]) as client:
            assert (IDENTIFIER in client.extensions) is declared
            assert list(await Skills.of(client).entries()) == []
