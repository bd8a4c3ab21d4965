"""Failover for real: three processes of one server, ways that break, a load, and a ledger kept outside."""
