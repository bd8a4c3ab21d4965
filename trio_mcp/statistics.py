"""The types of the objects that `statistics()` and `status` return, for annotations."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.client.cache import CacheStatistics as CacheStatistics
    from trio_mcp.client.client import ClientStatistics as ClientStatistics
    from trio_mcp.client.failover.parameters import TransportStatus as TransportStatus, WayStatus as WayStatus
    from trio_mcp.client.group.members import ServerStatus as ServerStatus
    from trio_mcp.http.server.statistics import HttpStatistics as HttpStatistics
    from trio_mcp.server.statistics import ServerStatistics as ServerStatistics
    from trio_mcp.session.statistics import RequestRecord as RequestRecord, SessionStatistics as SessionStatistics
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
