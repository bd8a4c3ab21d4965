"""``trio-mcp completion``: completion scripts for shells, generated from the table of commands."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence

from trio_mcp.cli.exits import OK
from trio_mcp.cli.parser import COMMANDS, Argument

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Print the script for a shell."""
    print(SCRIPTS[options.shell](), end="")
    return OK


def _options(command: str) -> Iterator[tuple[str, str, Sequence[str], bool]]:
    """Yield each long option: its name, its help, its choices, and whether it takes a value."""
    yield "--help", "show this help message and exit", (), False
    for each in _arguments(command):
        if each.name.startswith("--"):
            # An option without an action takes a value, because argparse's default action is "store".
            takes = each.settings.get("action", "store") in ("store", "append")
            # Single quotes are removed, because the zsh and fish scripts put the help inside single quotes.
            yield each.name, each.settings["help"].replace("'", ""), each.settings.get("choices", ()), takes


def _values(command: str) -> Sequence[str]:
    """Return the choices of a command's positional arguments."""
    named = (each.settings.get("choices", ()) for each in _arguments(command) if not each.name.startswith("--"))
    return [choice for choices in named for choice in choices]


def _arguments(command: str) -> Iterator[Argument]:
    return itertools.chain.from_iterable(COMMANDS[command].groups().values())


def _bash() -> str:
    # bash can offer only words, so the options' help is left out; zsh and fish show it.
    names = {command: " ".join([*(name for name, *_ in _options(command)), *_values(command)]) for command in COMMANDS}
    cases = "\n".join(f'        {command}) words="{words}" ;;' for command, words in names.items())
    choices = sorted({(name, " ".join(of)) for command in COMMANDS for name, _, of, _ in _options(command) if of})
    values = "\n".join(f'        {name}) words="{of}" ;;' for name, of in choices)
    # With `-o default`, bash offers file names if no word matches: the values of other options and arguments are
    # unknown.
    return f"""\
_trio_mcp() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words=""
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
{values}
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(COMMANDS)} --help --version"; fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _trio_mcp trio-mcp
"""


def _zsh() -> str:
    # In a single-quoted string, zsh needs an apostrophe to be written as '\''.
    helps = {name: command.help.replace("'", "'\\''") for name, command in COMMANDS.items()}
    commands = "\n".join(f"        '{name}:{help_}'" for name, help_ in helps.items())
    cases = []
    for command in COMMANDS:
        rows = []
        for name, help_, choices, takes in _options(command):
            # Brackets and colons are special characters in zsh's specifications.
            text = help_.replace("[", "(").replace("]", ")").replace(":", "\\:")
            value = f":value:({' '.join(choices)})" if choices else ":value:_files" if takes else ""
            # The star means that an option may be repeated; without it, zsh would offer the option only once.
            rows.append(f"'*{name}[{text}]{value}'")
        values = _values(command)
        rows.append(f"'*:value:({' '.join(values)})'" if values else "'*:file:_files'")
        cases.append(f"        {command}) _arguments {' '.join(rows)} ;;")
    listed = "\n".join(cases)
    return f"""\
#compdef trio-mcp
_trio_mcp() {{
    local -a commands
    commands=(
{commands}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
{listed}
    esac
}}
compdef _trio_mcp trio-mcp
"""


def _fish() -> str:
    lines = ["complete -c trio-mcp -n __fish_use_subcommand -f"]
    for name, command in COMMANDS.items():
        help_ = command.help.replace("'", "\\'")
        lines.append(f"complete -c trio-mcp -n __fish_use_subcommand -a {name} -d '{help_}'")
        here = f"-n '__fish_seen_subcommand_from {name}'"
        for option, text, choices, takes in _options(name):
            # In fish, `-x` means that the value comes from this list, and `-r` that any value is possible, for which
            # fish offers file names.
            value = f" -x -a '{' '.join(choices)}'" if choices else " -r" if takes else ""
            lines.append(f"complete -c trio-mcp {here} -l {option[2:]}{value} -d '{text}'")
        for value in _values(name):
            lines.append(f"complete -c trio-mcp {here} -f -a {value}")
    return "\n".join(lines) + "\n"


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
