"""The client: `Client`, `ClientGroup`."""
