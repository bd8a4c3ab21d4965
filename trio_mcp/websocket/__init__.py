"""WebSocket: a full-duplex link, one text frame for each message."""
