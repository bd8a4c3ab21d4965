"""Sessions: both directions of one link, with their tasks in a nursery."""
