"""Raw connections to a target, which send what no library would send, and record everything that arrives."""
