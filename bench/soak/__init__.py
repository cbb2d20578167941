"""A long load on one gate: whether it leaks, forgets a lease, breaks an answer or is late."""
