"""What only the legacy era needs of an HTTP client."""
