"""The project that a server belongs to, as its ``pyproject.toml`` and its README describe it; and its faults."""

from __future__ import annotations

import ast
import itertools
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trio_mcp import _attrs as attrs
from trio_mcp.cli.exits import FAILED, Exit
from trio_mcp.client.config.text import read_regular

__all__ = ["MARK", "Project", "find_project", "owner_of", "package_version", "project_problems", "read_project"]

LARGEST: Final = 1_000_000
"""The largest size of a ``pyproject.toml`` or a README, in bytes (arbitrary)."""

MARK: Final = "mcp-name: "
"""The words before a server's name in the README of its package, which prove who owns the package."""

# PyPI's rule for names, and the form in which it shows a version (PEP 508, PEP 440). A version with + is local.
_PACKAGE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_RELEASE: Final = re.compile(r"(?:\d+!)?\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?")
_SCRIPT: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*)*(?:\s*\[.*\])?")
_GITHUB: Final = re.compile(r"https?://(?:www\.)?github\.com/([\w-]+)/([\w.-]+?)(?:\.git)?/?", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9._/-]")
_SOURCES: Final = ("repository", "source", "sourcecode", "code", "github", "homepage")
"""The labels of ``[project.urls]`` that may stand for the repository, the likeliest first; compared without spaces."""


@attrs.frozen(kw_only=True)
class Project:
    """A project with a ``pyproject.toml``.

    Attributes:
        folder: Its folder.
        table: The table ``[project]`` of the ``pyproject.toml``.
        readme: The path of its README; None without one.
        readme_text: The text of the README.
    """

    folder: Path
    table: Mapping[str, Any]
    readme: Path | None
    readme_text: str

    def text(self, key: str) -> str:
        """Return a string of the table, or an empty one without such a string."""
        value = self.table.get(key)
        return value if isinstance(value, str) else ""

    def mapping(self, key: str) -> Mapping[str, str]:
        """Return a table of strings, or an empty one; whatever is not a string is left out."""
        value = self.table.get(key)
        return {name: each for name, each in value.items() if isinstance(each, str)} if isinstance(value, dict) else {}

    def strings(self, key: str) -> Sequence[str]:
        """Return a list of strings, or an empty one; whatever is not a string is left out."""
        value = self.table.get(key)
        return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

    @property
    def name(self) -> str:
        """The name of the package."""
        return self.text("name")

    @property
    def repository(self) -> tuple[str, str] | None:
        """The owner and the name of the repository on GitHub; None if no URL of the project leads to one."""
        urls = {re.sub(r"[\s_-]", "", label).lower(): url for label, url in self.mapping("urls").items()}
        found = (_GITHUB.fullmatch(urls[label]) for label in _SOURCES if label in urls)
        return next(((match[1], match[2]) for match in found if match), None)

    def marks(self) -> list[str]:
        """Return the names that the README's marks state."""
        return [
            name
            for part in self.readme_text.split(MARK)[1:]
            if (name := "".join(itertools.takewhile(_NAME.match, part)))
        ]

    def entry(self) -> tuple[Path, str] | None:
        """Return the file and the function of the script named like the package; None if there is no such file."""
        match = _SCRIPT.fullmatch(self.mapping("scripts").get(self.name, ""))
        file = None if match is None else self.module(match[1])
        return None if match is None or file is None else (file, match[2])

    def module(self, name: str) -> Path | None:
        """Return the file of a module of the project; None if it has no such module."""
        steps = name.split(".")
        for base in (self.folder / "src", self.folder):
            for file in (base.joinpath(*steps, "__init__.py"), base.joinpath(*steps[:-1], f"{steps[-1]}.py")):
                if file.is_file():
                    return file
        return None


def find_project(file: Path) -> Path:
    """Return the nearest folder around a file that has a ``pyproject.toml``.

    Raises:
        Exit: If no folder around the file has one.
    """
    for folder in Path(os.path.abspath(file)).parents:
        if (folder / "pyproject.toml").is_file():
            return folder
    raise Exit(
        f"there is no pyproject.toml beside {file.name} or in a folder above it, so it can't be"
        " published: `trio-mcp new` makes a project that is one",
        FAILED,
    )


def read_project(folder: Path) -> Project:
    """Read the ``pyproject.toml`` of a folder, and the README that it names.

    Raises:
        Exit: If one of them can't be read.
    """
    path = folder / "pyproject.toml"
    try:
        table = tomllib.loads(_read(path)).get("project")
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise Exit(f"{path.name} is not valid TOML: {str(exc) or 'it is nested too deeply'}", FAILED) from None
    if not isinstance(table, dict):
        raise Exit(f"{path.name} has no table [project], so it describes no package", FAILED)
    named = table.get("readme")
    if isinstance(named, dict):
        if isinstance(named.get("text"), str):
            return Project(folder=folder, table=table, readme=path, readme_text=named["text"])
        named = named.get("file")
    if not isinstance(named, str):
        # A build backend may choose the README itself.
        named = "README.md" if "readme" in (table.get("dynamic") or ()) else None
    if named is None:
        return Project(folder=folder, table=table, readme=None, readme_text="")
    readme = folder / named
    if not readme.exists():
        raise Exit(f"pyproject.toml names {named!r:.100} as its readme, but there is no such file", FAILED)
    return Project(folder=folder, table=table, readme=readme, readme_text=_read(readme))


def _read(path: Path) -> str:
    try:
        return read_regular(path, LARGEST).decode()
    except OSError as exc:
        raise Exit(f"can't read {path.name}: {exc.strerror or exc}", FAILED) from None
    except UnicodeDecodeError:
        raise Exit(f"{path.name} is not valid UTF-8", FAILED) from None
    except ValueError as exc:
        raise Exit(f"{path.name} {exc}", FAILED) from None


def owner_of(name: str) -> str | None:
    """Return the owner on GitHub whom a server's name belongs to; None if it belongs to a domain."""
    namespace = name.partition("/")[0]
    return namespace.removeprefix("io.github.") if namespace.startswith("io.github.") else None


def package_version(project: Project) -> str:
    """Return the version of the package.

    Raises:
        Exit: If the package, or the version, could not be released.
    """
    if not _PACKAGE.fullmatch(project.name):
        raise Exit(f"pyproject.toml: {project.name!r:.100} can't be the name of a package", FAILED)
    version = project.text("version")
    if "version" in project.strings("dynamic"):
        from importlib import metadata  # imported late: few projects have a dynamic version

        try:
            version = metadata.version(project.name)
        except metadata.PackageNotFoundError:
            raise Exit(
                f"the version of {project.name!r:.100} is dynamic, and the package is not installed here: install it,"
                " with `pip install -e .`",
                FAILED,
            ) from None
    if not _RELEASE.fullmatch(version):
        raise Exit(
            f"pyproject.toml: the version {version!r:.100} is not one that can be released: write it as PyPI does, such"
            " as 1.2.0 or 1.2.0rc1",
            FAILED,
        )
    return version


def project_problems(project: Project, name: str) -> Iterator[str]:
    """Yield what would keep the package from being published, proven as ours, or started; one line each.

    Args:
        project: The project.
        name: The name of the server in the registry.
    """
    yield from _of_mark(project, name)
    yield from _of_script(project)
    if any(each.startswith("Private ::") for each in project.strings("classifiers")):
        yield "pyproject.toml: PyPI refuses packages with a classifier that begins with 'Private ::'"
    for each in project.strings("dependencies"):
        if "@" in each.partition(";")[0]:
            yield f"pyproject.toml: PyPI refuses packages that depend on a URL: {each!r:.100}"
    owner, repository = owner_of(name), project.repository
    if owner is not None and repository is not None and owner != repository[0]:
        spelling = ", as GitHub spells it" if owner.lower() == repository[0].lower() else ""
        yield (
            f"the name {name!r:.220} belongs to {owner!r}, but the repository in pyproject.toml to"
            f" {repository[0]!r}: the registry lets a repository publish only names of its own owner{spelling}"
        )


def _of_mark(project: Project, name: str) -> Iterator[str]:
    if project.readme is None:
        yield (
            "pyproject.toml: there is no readme, but the README is where the registry looks for the line"
            f" '{MARK}{name}': add one, and readme = \"README.md\""
        )
        return
    marks = project.marks()
    if name in marks:
        return
    line = f"<!-- {MARK}{name} -->"
    if not marks:
        yield f"{project.readme.name}: lacks the mark that proves to the registry that it is yours; add the line {line}"
    elif marks[0].rstrip(".-_/") == name:
        yield f"{project.readme.name}: nothing may follow the name in '{MARK}{marks[0]:.200}'; write {line}"
    else:
        yield f"{project.readme.name}: says '{MARK}{marks[0]:.200}', but the name is {name}; write {line}"


def _of_script(project: Project) -> Iterator[str]:
    scripts, name = project.mapping("scripts"), project.name
    if name not in scripts:
        has = f"only {', '.join(map(repr, scripts))}"[:200] if scripts else "none"
        yield (
            f"pyproject.toml: `uvx {name}` would start nothing, because [project.scripts] has no {name!r}, {has}: add"
            f' {name} = "package.module:main"'
        )
        return
    match = _SCRIPT.fullmatch(scripts[name])
    if match is None:
        yield f"pyproject.toml: the script {name} = {scripts[name]!r:.100} is not of the form package.module:function"
        return
    file = project.module(match[1])
    if file is None:
        yield f"pyproject.toml: the script {name} is in the module {match[1]}, but the project has no such module"
        return
    try:
        bound = dict(_bound(ast.parse(_read(file)).body))
    except (SyntaxError, ValueError, RecursionError):
        yield f"{file.name}: is not valid Python, so the script {name} can't start"
        return
    if match[2] not in bound and "*" not in bound:
        yield f"pyproject.toml: the script {name} is the function {match[2]} of {match[1]}, which has none of that name"
    elif bound.get(match[2]) is ast.AsyncFunctionDef:
        yield f"{file.name}: {match[2]} is async, but a script calls it without await: make it a function with `def`"


def _bound(statements: Sequence[ast.stmt]) -> Iterator[tuple[str, type[ast.AST]]]:
    """Yield the names that statements bind in their module, each with the kind of the statement."""
    for each in statements:
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, type(each)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name.partition(".")[0], type(each)) for alias in names)
            case ast.Assign(targets=targets):
                yield from (
                    (node.id, type(each)) for to in targets for node in ast.walk(to) if isinstance(node, ast.Name)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name, type(each)
            case ast.If(body=body, orelse=other) | ast.Try(body=body, orelse=other):
                yield from _bound([*body, *other])
            case _:
                continue
