"""What a server offers, kept as a file, and what has changed since."""
