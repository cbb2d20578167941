"""Who may call the gate, and from where."""
