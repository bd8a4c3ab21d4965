"""The traffic between a client and a server as data: events, the tape that records them, and files of them."""

from __future__ import annotations

from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.files import Transcript, TranscriptError, read_transcript, write_transcript

__all__ = ["Event", "Transcript", "TranscriptError", "read_transcript", "write_transcript"]
