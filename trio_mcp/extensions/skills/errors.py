"""The exceptions of skills."""

from __future__ import annotations

from trio_mcp.errors import TrioMcpError

__all__ = ["SkillError", "SkillFolderError", "SkillMismatch", "SkillRefused"]


class SkillError(TrioMcpError):
    """A skill can't be served or used; the base class of the exceptions of skills."""


class SkillFolderError(SkillError):
    """A folder of skills can't be served.

    Attributes:
        folder: The folder.
        problems: A line for each problem, which names the file.
    """

    def __init__(self, folder: str, problems: tuple[str, ...]) -> None:
        super().__init__(folder, problems)
        self.folder = folder
        self.problems = problems

    def _text(self) -> str:
        return "\n".join(self.problems)


class _AboutOne(SkillError):
    """An error about the file or the skill at a URI.

    Attributes:
        uri: The URI.
        reason: What is wrong.
    """

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(uri, reason)
        self.uri = uri
        self.reason = reason

    def _text(self) -> str:
        return f"{self.uri[:500]}: {self.reason}"


class SkillRefused(_AboutOne):
    """The entry of a skill breaks a rule of the extension, or the caller has not allowed skills of its kind.

    Nothing of the skill was used.

    Attributes:
        uri: The URI of the skill, as the server states it.
        reason: The rule that it breaks.
    """


class SkillMismatch(_AboutOne):
    """A file of a skill is not what the skill's entry describes; its content was not used.

    The skill may have changed since its entry was fetched. Get the entry again; if its fingerprint differs, ask for a
    new approval (Integrity and Verification).

    Attributes:
        uri: The URI of the file, or the path that is not among the files of the skill.
        reason: What differs.
    """
