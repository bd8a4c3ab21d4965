"""The mutation corpus fits the package as it is: see `tests.mutations.run`, which runs it."""

from __future__ import annotations

from tests.mutations.run import check, corpus


def test_every_patch_fits() -> None:
    """Each patch replaces one place, compiles, and has tests to catch it."""
    mutations = corpus()
    for mutation in mutations:
        check(mutation)
    assert len({mutation.id for mutation in mutations}) == len(mutations) == 106
    assert all(mutation.behaviour and mutation.tests for mutation in mutations)
