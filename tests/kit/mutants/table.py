"""All mutants of servers."""

from tests.kit.mutants import extension_skills, extension_tasks, features, http, lifecycle, messages, notices, tasks  # noqa: F401 - they list themselves
from tests.kit.mutants.model import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]
