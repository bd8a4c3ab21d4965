"""All mutants of servers."""

from tests.kit.mutants import (  # noqa: F401 - they list themselves
    expected,
    extension_skills,
    extension_tasks,
    features,
    handshake,
    http,
    lifecycle,
    messages,
    notices,
    protected,
    tasks,
)
from tests.kit.mutants.model import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]
