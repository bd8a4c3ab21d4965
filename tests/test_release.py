"""What a release says of the project."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_a_release_says_where_the_project_lives_and_no_other_build_guesses_it() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert "urls" not in tomllib.loads(project)["project"]
    where = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "us/trio_mcp"}
    script = [ROOT / ".ci" / "urls", "v1.2.3"]
    added = subprocess.run(script, env=os.environ | where, capture_output=True, text=True, check=True).stdout
    urls = tomllib.loads(project + added)["project"]["urls"]
    assert urls == {
        "Source": "https://github.example/us/trio_mcp",
        "Documentation": "https://github.example/us/trio_mcp/tree/v1.2.3/docs",
        "Changelog": "https://github.example/us/trio_mcp/blob/v1.2.3/CHANGELOG.md",
        "Issues": "https://github.example/us/trio_mcp/issues",
    }
    for name in where:
        lacking = {each: value for each, value in (os.environ | where).items() if each != name}
        assert subprocess.run(script, env=lacking, capture_output=True, check=False).returncode != 0
