"""The tools of mcp-server-time, on trio_mcp.

$ python examples/ports/time_server.py --local-timezone Europe/Oslo
"""

import argparse
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel, Field

from trio_mcp import Server, ToolError
from trio_mcp.types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
EXAMPLES = "(e.g., 'America/New_York', 'Europe/London')"


class TimeResult(BaseModel):
    timezone: str
    datetime: str
    day_of_week: str
    is_dst: bool


class TimeConversionResult(BaseModel):
    source: TimeResult
    target: TimeResult
    time_difference: str


def require(**arguments: str) -> None:
    """Refuse arguments that are empty."""
    for name, value in arguments.items():
        if not value:
            raise ToolError(f"Missing required argument: {name}")


def zone(name: str) -> ZoneInfo:
    """Return a time zone by its exact IANA name.

    Raises:
        ToolError: There is no such zone.
    """
    try:
        found = ZoneInfo(name)
    except Exception as exc:
        raise ToolError(f"Invalid timezone: {exc}") from exc
    if name not in available_timezones():  # on a file system that ignores case, more names find a file
        raise ToolError(f"Invalid timezone: 'No time zone found with key {name}'")
    return found


def describe(moment: datetime, timezone: str) -> TimeResult:
    return TimeResult(
        timezone=timezone,
        datetime=moment.isoformat(timespec="seconds"),
        day_of_week=f"{moment:%A}",
        is_dst=bool(moment.dst()),
    )


def local_zone() -> str:
    """Return the name of this machine's time zone, as far as its /etc/localtime tells."""
    _, _, name = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")
    return name or "UTC"


def make_server(local: str) -> Server:
    """Make the server.

    Args:
        local: The name of the time zone that the descriptions call local.
    """
    server = Server("mcp-time", version="1.0.0")
    as_local = f"Use '{local}' as local timezone if no"

    @server.tool(annotations=READS)
    async def get_current_time(
        timezone: Annotated[
            str, Field(description=f"IANA timezone name {EXAMPLES}. {as_local} timezone provided by the user.")
        ],
    ) -> TimeResult:
        """Get current time in a specific timezone"""
        require(timezone=timezone)
        return describe(datetime.now(zone(timezone)), timezone)

    @server.tool(annotations=READS)
    async def convert_time(
        source_timezone: Annotated[
            str,
            Field(
                description=f"Source IANA timezone name {EXAMPLES}. {as_local} source timezone provided by the user."
            ),
        ],
        time: Annotated[str, Field(description="Time to convert in 24-hour format (HH:MM)")],
        target_timezone: Annotated[
            str,
            Field(
                description="Target IANA timezone name (e.g., 'Asia/Tokyo', 'America/San_Francisco'). "
                f"{as_local} target timezone provided by the user."
            ),
        ],
    ) -> TimeConversionResult:
        """Convert time between timezones"""
        require(source_timezone=source_timezone, target_timezone=target_timezone)
        here, there = zone(source_timezone), zone(target_timezone)
        try:
            clock = datetime.strptime(time, "%H:%M").time()
        except ValueError:
            raise ToolError("Invalid time format. Expected HH:MM [24-hour format]") from None
        today = datetime.now(here).date()
        source = datetime.combine(today, clock, here)
        if datetime.fromtimestamp(source.timestamp(), here).time() != clock:
            raise ToolError(
                f"Invalid time: {time} does not exist in {source_timezone} on {today} (skipped by a clock change)"
            )
        target = source.astimezone(there)
        hours = ((target.utcoffset() or timedelta()) - (source.utcoffset() or timedelta())) / timedelta(hours=1)
        # +1.0h, but +5.75h
        difference = f"{hours:+.1f}" if hours.is_integer() else f"{hours:+.2f}".rstrip("0")
        return TimeConversionResult(
            source=describe(source, source_timezone),
            target=describe(target, target_timezone),
            time_difference=f"{difference}h",
        )

    return server


def configured(arguments: list[str] | None = None) -> Server:
    """Return the server, set up by the arguments of a command line."""
    parser = argparse.ArgumentParser(description="Serve tools that tell and convert times.")
    parser.add_argument(
        "--local-timezone", default=local_zone(), help="what to call local instead of the zone of this machine"
    )
    return make_server(parser.parse_args(arguments).local_timezone)


if __name__ == "__main__":
    configured().run()
