"""The facts that differ by revision."""

import pytest

from trio_mcp.eras.client_negotiation import ModernClientEra
from trio_mcp.eras.rules import rules_of
from trio_mcp.eras.server_negotiation import LegacyServerEra, ModernServerEra
from trio_mcp.types.versions import MODERN_REVISIONS, REVISIONS


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_revision_has_rules(revision: str) -> None:
    rules = rules_of(revision)
    assert rules.revision == revision
    assert rules.modern is (revision in MODERN_REVISIONS)
    eras = (
        [ModernClientEra(revision, {}, {}), ModernServerEra(revision, {})]
        if rules.modern
        else [LegacyServerEra(revision)]
    )
    assert all(era.rules is rules for era in eras)


def test_nothing_is_assumed_of_a_revision_that_is_not_known() -> None:
    with pytest.raises(KeyError):
        rules_of("1999-01-01")
