"""Skills with other libraries, both ways: what each serves, the other verifies."""

from __future__ import annotations

import base64
import json
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.extensions.skills.folders import write_skill
from tests.extensions.skills.yaml_corpus import READ
from trio_mcp import Client, Server
from trio_mcp.conformance.engine import check_server
from trio_mcp.extensions import ClientSkills, SkillMismatch, Skills

from . import python_peers
from .conftest import installed_peers
from .support import DEADLINE, PEERS, Launch

if TYPE_CHECKING:
    from .node_peers import NodePeers

pytestmark = pytest.mark.interop

MODERN = "2026-07-28"

FILES: dict[str, bytes | str] = {
    "references/RULES.md": "# Rules\r\n",
    "templates/regional/eu.md": "\u00e9e\u0301\u2028\U0001f600",
    "bom.txt": b"\xef\xbb\xbfmark",
    "data.bin": bytes(range(256)),
    "a b.md": "space",
    "empty.txt": "",
}
DYNAMIC = "skill://daily/SKILL.md"


def corpus() -> str:
    """Return lines of frontmatter with every value of the corpus that has one line."""
    values = [text for text in READ if "\n" not in text and text not in ("", "'it''s'")]
    return "".join(f"v{number}: {text}\n" for number, text in enumerate(values))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of skills."""
    write_skill(tmp_path, "values", extra=corpus())
    write_skill(tmp_path, "pdf", dict(FILES), body="# Caf\u00e9\r\n")
    return tmp_path


async def check_loading(skills: ClientSkills, folder: Path, uris: set[str], missing: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Load each skill of a server that serves a folder, and read each file of it."""
    found = await skills.entries()
    assert (found.refused, {each.uri for each in found}) == ((), uris)
    for entry in found:
        skill = await skills.load(entry)
        read = {path: await skill.read(path) for path in skill.files()}
        where = folder / entry.name
        on_disk = {str(path.relative_to(where)): path.read_bytes() for path in where.rglob("*") if path.is_file()}
        assert read == {path: data for path, data in on_disk.items() if path not in missing}


# --- TypeScript -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [MODERN, pytest.param("legacy", marks=pytest.mark.legacy)])
async def test_its_client_verifies_what_we_serve(
    npm: NodePeers, nursery: trio.Nursery, folder: Path, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    write_skill(folder, "hidden")
    skills = Skills(folder, unlisted=["hidden"])
    skills.dynamic(DYNAMIC, description='Say "hello": caf\u00e9', frontmatter={"v": [1, 1.5, None]})(lambda: "now\n")
    server = Server("ours", extensions=[skills])
    url: str = await nursery.start(partial(server.serve_http, port=0))
    request = {
        "modules": str(npm.modules),
        "url": url,
        "mode": mode,
        "directory": "skill://pdf",
        "unlisted": "skill://hidden/SKILL.md",
    }
    with trio.fail_after(DEADLINE):
        done = await trio.run_process(
            [str(npm.node), str(PEERS / "ts_skills.mjs"), json.dumps(request)],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["invalid"] == []
    assert [each["uri"] for each in report["entries"]] == [DYNAMIC, "skill://pdf/SKILL.md", "skill://values/SKILL.md"]
    files = {uri: (base64.b64decode(each["base64"]), each["verified"]) for uri, each in report["files"].items()}
    assert files["skill://pdf/data.bin"] == (bytes(range(256)), True)
    assert files["skill://pdf/bom.txt"] == (b"\xef\xbb\xbfmark", True)
    assert files["skill://pdf/a%20b.md"] == (b"space", True)
    assert files[DYNAMIC][0].endswith(b"now\n")
    assert [uri for uri, (_, verified) in files.items() if not verified] == [DYNAMIC]
    assert len(report["refused"]) == 2
    assert ["skill://pdf/references", "inode/directory"] in report["children"]
    assert (report["unlisted"], report["unknown"]) == ("skill://hidden/SKILL.md", -32602)
    nursery.cancel_scope.cancel()


async def not_held(launch: Launch) -> dict[str, str]:
    """Return what came of the rules of the conformance kit about skills that a server does not hold."""
    report = await check_server(launch.for_us(), rules=["ext-skill-*"], revisions=[MODERN], examples=60, seed=1)
    return {outcome.rule.id: outcome.status for outcome in report.outcomes if outcome.status != "held"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_we_verify_what_its_server_serves(
    npm: NodePeers, environment: dict[str, str], folder: Path, mode: Any
) -> None:
    arguments = json.dumps({"modules": str(npm.modules), "folder": str(folder)})
    launch = Launch(str(npm.node), [str(PEERS / "ts_skills.mjs"), arguments], environment)
    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode=mode, extensions=[Skills()]) as client:
            skills = Skills.of(client)
            await check_loading(skills, folder, {"skill://pdf/SKILL.md", "skill://values/SKILL.md"})
            found = await skills.directory("skill://pdf/templates")
            assert [(each.uri, each.mime_type) for each in found] == [
                ("skill://pdf/templates/regional", "inode/directory")
            ]
        if mode == "auto":
            assert await not_held(launch) == {}


# --- FastMCP --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fastmcp_skills(request: pytest.FixtureRequest) -> Path:
    """Return the interpreter that has FastMCP with its skills."""
    return installed_peers(request, lambda say: python_peers.install(say, "fastmcp_skills"))


@pytest.mark.again
async def test_fastmcp_verifies_what_we_serve(fastmcp_skills: Path, nursery: trio.Nursery, tmp_path: Path) -> None:
    """It reads all files of a skill at once, and knows the modern era only."""
    write_skill(tmp_path, "pdf", dict(FILES), extra='license: MIT\nmetadata:\n  version: "1.0"\n')
    write_skill(tmp_path, "hidden")
    skills = Skills(tmp_path, unlisted=["hidden"])
    skills.dynamic(DYNAMIC, description="x")(lambda: "now\n")
    url: str = await nursery.start(partial(Server("ours", extensions=[skills]).serve_http, port=0))
    with trio.fail_after(DEADLINE):
        done = await trio.run_process(
            [str(fastmcp_skills), str(PEERS / "fastmcp_skills_client.py"), url, "skill://hidden/SKILL.md"],
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert "no static manifest" in report["skills"][DYNAMIC]["error"]
    files = {path: base64.b64decode(data) for path, data in report["skills"]["skill://pdf/SKILL.md"].items()}
    expected = {path: data.encode() if isinstance(data, str) else data for path, data in FILES.items()}
    assert files == {**expected, "SKILL.md": (tmp_path / "pdf" / "SKILL.md").read_bytes()}
    assert report["unlisted"] == "skill://hidden/SKILL.md"
    nursery.cancel_scope.cancel()


@pytest.mark.again
async def test_we_verify_what_fastmcp_serves(fastmcp_skills: Path, environment: dict[str, str], tmp_path: Path) -> None:
    """Its reader knows YAML 1.1, where `yes` is true: such a skill is not what its entry says, and is not loaded."""
    write_skill(tmp_path, "pdf", dict(FILES), extra='license: MIT\nmetadata:\n  version: "1.0"\n')
    write_skill(tmp_path, "acme/certain", extra="sure: yes\n")
    launch = Launch(str(fastmcp_skills), [str(PEERS / "fastmcp_skills_server.py"), str(tmp_path)], environment)
    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode=MODERN, extensions=[Skills()]) as client:
            skills = Skills.of(client)
            entry, pdf = sorted(await skills.entries(), key=lambda entry: entry.uri)
            assert entry.frontmatter["sure"] is True
            with pytest.raises(SkillMismatch, match="'sure'"):
                await skills.load(entry)
            skill = await skills.load(pdf)
            for path, data in FILES.items():
                assert await skill.read(path) == (data.encode() if isinstance(data, str) else data)
        assert await not_held(launch) == {  # it reads no directories
            "ext-skill-directory": "not checkable",
            "ext-skill-no-directory": "not exercised",
            "ext-skill-children": "not checkable",
        }
