"""The tools of mcp-server-git, on trio_mcp and the git command.

$ python examples/ports/git_server.py --repository .
"""

import argparse
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from os import environ
from pathlib import Path
from typing import Annotated

import trio
from pydantic import Field

from trio_mcp import FunctionOptions, Server, ToolError
from trio_mcp.types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
CREATES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
STAGES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
DISCARDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

DATES = (
    "Accepts: ISO 8601 format (e.g., '2024-01-15T14:30:25'), relative dates (e.g., '2 weeks ago', 'yesterday'), "
    "or absolute dates (e.g., '2024-01-15', 'Jan 15 2024')"
)
WITHOUT = "Do not pass anything to this param if no commit sha is specified"


class Repository:
    """A repository on disk, and the git commands that the tools run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Run git, and return what it prints.

        Raises:
            ToolError: It failed.
        """
        code, out, err = await self.run(*arguments, stdin=stdin)
        if code:
            line = " ".join(("git", *arguments))
            raise ToolError(
                f"Cmd('git') failed due to: exit code({code})\n  cmdline: {line}\n  stderr: '{err.strip()}'"
            )
        return out.removesuffix("\n")

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Run git, and return its status, and what it prints; a cancelled call kills it."""
        done: subprocess.CompletedProcess[bytes] = await trio.run_process(
            ["git", *arguments],
            cwd=self.path,
            env=environ | {"LC_ALL": "C"},
            stdin=stdin.encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    async def says_yes(self, *arguments: str) -> bool:
        return (await self.run(*arguments))[0] == 0

    async def object(self, revision: str) -> str:
        """Return the id of the object that a revision names."""
        code, out, _ = await self.run("rev-parse", "--verify", "--quiet", "--end-of-options", revision)
        if code:
            raise ToolError(f"Ref '{revision}' did not resolve to an object")
        return out.splitlines()[-1]

    async def branch(self) -> str | None:
        """Return the name of the branch that is checked out, or None."""
        code, out, _ = await self.run("symbolic-ref", "--quiet", "--short", "HEAD")
        return None if code else out.strip()

    async def message(self, commit: str) -> str:
        """Return the message of a commit, to the last byte."""
        _, raw, _ = await self.run("cat-file", "commit", commit)
        return raw.partition("\n\n")[2]


def no_option(what: str, value: str | None) -> None:
    """Refuse a value that git would take for an option."""
    if value is not None and value.startswith("-"):
        raise ToolError(f"Invalid {what}: '{value}' - cannot start with '-'")


def repository_at(repo_path: str, allowed: Path | None) -> Repository:
    """Return the repository at a path.

    Raises:
        ToolError: There is no repository, or it is outside the allowed one.
    """
    path = Path(repo_path)
    if allowed is not None and not path.resolve().is_relative_to(allowed.resolve()):
        raise ToolError(f"Repository path '{path}' is outside the allowed repository '{allowed}'")
    if not (path / ".git").exists():
        raise ToolError(str(path.absolute()))
    return Repository(path)


def check_inside(root: Path, files: list[str]) -> None:
    """Refuse files that are not below a folder; links are followed."""
    root = root.resolve()
    for file in files:
        if not (root / file).resolve().is_relative_to(root):
            raise ToolError(f"Path '{file}' is outside the repository '{root}'")


# The results are texts for a model, so no tool has an output schema.
server = Server("mcp-git", version="1.0.0", functions=FunctionOptions(structured_output=False))
settings = argparse.Namespace(repository=None)
alone = trio.Lock()  # a check and the change after it belong together


@asynccontextmanager
async def opened(repo_path: str) -> AsyncIterator[Repository]:
    repository = repository_at(repo_path, settings.repository)
    async with alone:
        yield repository


@server.tool(annotations=READS)
async def git_status(repo_path: str) -> str:
    """Shows the working tree status"""
    async with opened(repo_path) as git:
        return f"Repository status:\n{await git('status')}"


@server.tool(annotations=READS)
async def git_diff_unstaged(repo_path: str, context_lines: int = 3) -> str:
    """Shows changes in the working directory that are not yet staged"""
    async with opened(repo_path) as git:
        return f"Unstaged changes:\n{await git('diff', f'--unified={context_lines}')}"


@server.tool(annotations=READS)
async def git_diff_staged(repo_path: str, context_lines: int = 3) -> str:
    """Shows changes that are staged for commit"""
    async with opened(repo_path) as git:
        return f"Staged changes:\n{await git('diff', f'--unified={context_lines}', '--cached')}"


@server.tool(annotations=READS)
async def git_diff(repo_path: str, target: str, context_lines: int = 3) -> str:
    """Shows differences between branches or commits"""
    async with opened(repo_path) as git:
        no_option("target", target)
        await git.object(target)
        return f"Diff with {target}:\n{await git('diff', f'--unified={context_lines}', target)}"


@server.tool(annotations=CREATES)
async def git_commit(repo_path: str, message: str) -> str:
    """Records changes to the repository"""
    async with opened(repo_path) as git:
        merging = await git.says_yes("rev-parse", "--verify", "--quiet", "MERGE_HEAD")
        if not merging and await git.says_yes("diff", "--cached", "--quiet"):
            raise ToolError(
                "No changes staged for commit. Use git_add to stage changes first; "
                "git_status shows what is currently staged."
            )
        _, _, noted = await git.run("commit", "--quiet", "--cleanup=verbatim", "--file=-", stdin=message)
        hash_ = await git("rev-parse", "HEAD")
        return "\n".join([f"Changes committed successfully with hash {hash_}", *noted.splitlines()])


@server.tool(annotations=STAGES)
async def git_add(repo_path: str, files: Annotated[list[str], Field(min_length=1)]) -> str:
    """Adds file contents to the staging area"""
    async with opened(repo_path) as git:
        check_inside(git.path, files)
        before = await git("ls-files", "--stage", "--", *files)
        await git("add", "--", *files)
        if await git("ls-files", "--stage", "--", *files) == before:
            return (
                "No changes were staged: the given paths had nothing new to stage. "
                "git_status shows what is modified or untracked."
            )
        return "Files staged successfully"


@server.tool(annotations=DISCARDS)
async def git_reset(repo_path: str) -> str:
    """Unstages all staged changes"""
    async with opened(repo_path) as git:
        await git("reset", "--quiet")
        return "All staged changes reset"


@server.tool(annotations=READS)
async def git_log(
    repo_path: str,
    max_count: int = 10,
    start_timestamp: Annotated[str | None, Field(description=f"Start timestamp for filtering commits. {DATES}")] = None,
    end_timestamp: Annotated[str | None, Field(description=f"End timestamp for filtering commits. {DATES}")] = None,
) -> str:
    """Shows the commit logs"""
    async with opened(repo_path) as git:
        no_option("start_timestamp", start_timestamp)
        no_option("end_timestamp", end_timestamp)
        limits = [f"--since={start_timestamp}"] if start_timestamp else []
        limits += [f"--until={end_timestamp}"] if end_timestamp else []
        listed = await git("log", f"--max-count={max_count}", "--format=%H%x00%an%x00%aI", *limits)
        entries = []
        for line in listed.splitlines():
            commit, author, date = line.split("\0")
            message = await git.message(commit)
            entries.append(
                f"Commit: {commit}\nAuthor: {author}\nDate: {datetime.fromisoformat(date)}\nMessage: {message}\n"
            )
        return "Commit history:\n" + "\n".join(entries)


@server.tool(annotations=CREATES)
async def git_create_branch(repo_path: str, branch_name: str, base_branch: str | None = None) -> str:
    """Creates a new branch from an optional base branch"""
    async with opened(repo_path) as git:
        no_option("branch name", branch_name)
        no_option("base branch", base_branch)
        base = base_branch or await git.branch()
        if base is None:
            raise ToolError("HEAD is detached, so there is no current branch to branch from; pass base_branch")
        if base not in (await git("for-each-ref", "--format=%(refname:short)")).splitlines():
            raise ToolError(f"No item found with id {base}")
        if await git.says_yes("show-ref", "--verify", "--quiet", f"refs/heads/{branch_name}"):
            raise ToolError(f"Cannot create branch '{branch_name}': refs/heads/{branch_name} already exists")
        await git("branch", branch_name, base)
        return f"Created branch '{branch_name}' from '{base}'"


@server.tool(annotations=CREATES)
async def git_checkout(repo_path: str, branch_name: str) -> str:
    """Switches branches"""
    async with opened(repo_path) as git:
        no_option("branch name", branch_name)
        await git.object(branch_name)
        await git("checkout", branch_name)
        branch = await git.branch()
        if branch is None:
            return f"HEAD is now detached at {(await git('rev-parse', 'HEAD'))[:7]}"
        return f"Switched to branch '{branch}'"


@server.tool(annotations=READS)
async def git_show(repo_path: str, revision: str) -> str:
    """Shows the contents of a commit, or of a file or directory given as <revision>:<path>"""
    async with opened(repo_path) as git:
        no_option("revision", revision)
        found = await git.object(revision)
        match await git("cat-file", "-t", found):
            case "blob":
                return (await git.run("cat-file", "blob", found))[1]
            case "tree":
                entries = (entry.split(maxsplit=3) for entry in (await git("ls-tree", "-z", found)).split("\0")[:-1])
                return "\n".join(f"{name}/" if kind == "tree" else name for _, kind, _, name in entries)
        return await show_commit(git, f"{found}^{{commit}}")


@server.tool(annotations=READS)
async def git_branch(
    repo_path: Annotated[str, Field(description="The path to the Git repository.")],
    branch_type: Annotated[
        str,
        Field(
            description="Whether to list local branches ('local'), remote branches ('remote') or all branches('all')."
        ),
    ],
    contains: Annotated[str | None, Field(description=f"The commit sha that branch should contain. {WITHOUT}")] = None,
    not_contains: Annotated[
        str | None, Field(description=f"The commit sha that branch should NOT contain. {WITHOUT}")
    ] = None,
) -> str:
    """List Git branches"""
    async with opened(repo_path) as git:
        no_option("contains value", contains)
        no_option("not_contains value", not_contains)
        kinds: dict[str, list[str]] = {"local": [], "remote": ["-r"], "all": ["-a"]}
        if branch_type not in kinds:
            raise ToolError(f"Invalid branch type: {branch_type}")
        which = ["--contains", contains] if contains is not None else []
        which += ["--no-contains", not_contains] if not_contains is not None else []
        return await git("branch", *kinds[branch_type], *which)


async def show_commit(git: Repository, commit: str) -> str:
    """Return a commit as text: its head, its message, and what it changed."""
    head = await git("show", "--no-patch", "--format=commit %H%nAuthor: %an <%ae>%nDate:   %ai", commit)
    message = (await git.message(commit)).rstrip("\n")
    shown = [head + "\n\n" + "".join(f"    {line}\n" for line in message.split("\n"))]

    is_first, parent, _ = await git.run("rev-parse", "--verify", "--quiet", f"{commit}^1")
    ends = ["--root", "--no-commit-id", commit] if is_first else [parent.strip(), commit]
    changes = iter((await git("diff-tree", "-r", "-M", "-z", "--name-status", *ends)).split("\0")[:-1])
    _, patch, _ = await git.run("diff-tree", "-r", "-M", "-p", "--full-index", "--no-ext-diff", *ends)
    for status, of_file in zip(changes, re.split(r"^diff --git .*\n", patch, flags=re.MULTILINE)[1:], strict=False):
        before = next(changes)
        after = next(changes) if status[0] in "RC" else before
        a = "/dev/null" if status == "A" else f"a/{before}"
        b = "/dev/null" if status == "D" else f"b/{after}"
        hunks = re.search(r"^(@@|Binary files ).*", of_file, re.MULTILINE | re.DOTALL)
        shown.append(f"\n--- {a}\n+++ {b}\n{hunks[0] if hunks else ''}")
    return "".join(shown)


def configured(arguments: list[str] | None = None) -> Server:
    """Return the server, set up by the arguments of a command line."""
    parser = argparse.ArgumentParser(description="Serve tools that use git.")
    parser.add_argument("--repository", "-r", type=Path, help="the only repository that may be used")
    parser.parse_args(arguments, settings)
    return server


if __name__ == "__main__":
    configured().run()
