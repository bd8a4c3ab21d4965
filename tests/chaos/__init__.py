"""Chaos for real: a supervisor with three processes, a worker and nginx, faults, a load, and a ledger kept outside."""
