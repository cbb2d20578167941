"""Which models there are, and what the gate must know of each."""
