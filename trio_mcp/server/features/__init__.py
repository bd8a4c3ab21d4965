"""What a server offers; each feature can be read alone."""
