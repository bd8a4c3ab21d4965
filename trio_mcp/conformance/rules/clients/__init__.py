"""Rules for clients: what they send, in which order, and how they handle what a server sends."""
