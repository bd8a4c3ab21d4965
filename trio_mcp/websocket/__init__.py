"""The WebSocket transport: a full-duplex link, with one text frame for each message."""
