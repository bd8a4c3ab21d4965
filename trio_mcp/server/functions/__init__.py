"""What a user's function becomes: its signature, schemas, arguments, output and dependencies."""
