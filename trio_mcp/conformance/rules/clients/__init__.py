"""Rules for clients: what they send, in which order, and what they make of what a server sends."""
