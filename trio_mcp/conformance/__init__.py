"""The conformance kit: it checks any MCP server or client by the rules of the specification.

It needs Hypothesis, and is imported on first use; the extra for it is ``trio-mcp[testing]``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.conformance.clients import StreamClient as StreamClient
    from trio_mcp.conformance.clients import check_client as check_client
    from trio_mcp.conformance.clients import preview_client as preview_client
    from trio_mcp.conformance.engine import check_server as check_server
    from trio_mcp.conformance.engine import preview_server as preview_server
    from trio_mcp.conformance.options import CheckOptions as CheckOptions
    from trio_mcp.conformance.options import ClientCheckOptions as ClientCheckOptions
    from trio_mcp.conformance.options import ServerCheckOptions as ServerCheckOptions
    from trio_mcp.conformance.outcomes import CheckReport as CheckReport
    from trio_mcp.conformance.outcomes import Failure as Failure
    from trio_mcp.conformance.outcomes import Outcome as Outcome
    from trio_mcp.conformance.outcomes import Preview as Preview
    from trio_mcp.conformance.outcomes import Progress as Progress
    from trio_mcp.conformance.plugin import conformance_tests as conformance_tests
    from trio_mcp.conformance.rules.history import Connection as Connection
    from trio_mcp.conformance.rules.history import Exchange as Exchange
    from trio_mcp.conformance.rules.history import History as History
    from trio_mcp.conformance.rules.history import RecordedRequest as RecordedRequest
    from trio_mcp.conformance.rules.model import Rule as Rule
    from trio_mcp.conformance.rules.model import Verdict as Verdict
    from trio_mcp.conformance.rules.model import broken as broken
    from trio_mcp.conformance.rules.model import held as held
    from trio_mcp.conformance.rules.model import judged as judged
    from trio_mcp.conformance.rules.model import rule as rule
    from trio_mcp.conformance.transcript.events import Event as Event
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
