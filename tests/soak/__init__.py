"""A long mixed load over every transport, with faults, delays and restarts: see docs/explanation/reliability.md."""
