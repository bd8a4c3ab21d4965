"""A long mixed load over every transport, with what tears, delays and restarts: see docs/explanation/reliability.md."""
