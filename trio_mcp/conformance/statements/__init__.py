"""Every statement of the specification with MUST, MUST NOT, SHOULD or SHOULD NOT, and the rules that check it."""
