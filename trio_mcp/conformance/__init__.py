"""The conformance kit: it checks any MCP server or client against the rules of the specification.

The kit needs Hypothesis, which the extra ``trio-mcp[testing]`` installs. The modules of the kit are imported on first
use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.conformance.clients import (
        StreamClient as StreamClient,
        check_client as check_client,
        preview_client as preview_client,
    )
    from trio_mcp.conformance.credentials import Authority as Authority
    from trio_mcp.conformance.engine import check_server as check_server, preview_server as preview_server
    from trio_mcp.conformance.issuers import check_issuers as check_issuers
    from trio_mcp.conformance.options import (
        CheckOptions as CheckOptions,
        ClientCheckOptions as ClientCheckOptions,
        IssuerCheckOptions as IssuerCheckOptions,
        ServerCheckOptions as ServerCheckOptions,
    )
    from trio_mcp.conformance.outcomes import (
        CheckReport as CheckReport,
        Failure as Failure,
        Outcome as Outcome,
        Preview as Preview,
        Progress as Progress,
        Reached as Reached,
    )
    from trio_mcp.conformance.plugin import conformance_tests as conformance_tests
    from trio_mcp.conformance.recorded_server.serving import RecordedServer as RecordedServer, recorded as recorded
    from trio_mcp.conformance.rules.history import (
        Connection as Connection,
        Exchange as Exchange,
        History as History,
        RecordedRequest as RecordedRequest,
    )
    from trio_mcp.conformance.rules.model import (
        Rule as Rule,
        Verdict as Verdict,
        broken as broken,
        held as held,
        judged as judged,
        rule as rule,
    )
    from trio_mcp.conformance.transcript.events import Event as Event
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
