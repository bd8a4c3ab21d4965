"""The scripts that complete commands and options."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.running import run
from trio_mcp.cli.parser import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command_and_option(tmp_path: Path, shell: str) -> None:
    script = run(tmp_path, "completion", shell).stdout
    for word in (*COMMANDS, "json", "output", "log-level", "transport"):
        assert word in script


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["trio-mcp", "li"], {"list"}),
        (["trio-mcp", "call", "--to"], {"--total-timeout"}),
        (["trio-mcp", "completion", ""], {"--help", "bash", "fish", "zsh"}),
        (["trio-mcp", "list", "--mode", "leg"], {"legacy"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], completed: set[str]) -> None:
    (tmp_path / "script").write_text(run(tmp_path, "completion", "bash").stdout)
    asking = 'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trio_mcp; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", asking, "bash", *words], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert (set(done.stdout.split()), done.stderr) == (completed, "")
