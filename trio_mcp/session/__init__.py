"""Sessions, each of which handles both directions of one link, and runs its tasks in a nursery."""
