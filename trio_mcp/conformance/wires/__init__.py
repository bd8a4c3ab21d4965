"""Raw connections to a target: they send what no library would, and see everything that arrives."""
