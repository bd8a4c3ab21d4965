"""The parts of an HTTP client that only the legacy era needs."""
