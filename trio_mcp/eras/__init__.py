"""The two eras of the protocol, and how each side finds out which one is spoken. Sans-IO."""
