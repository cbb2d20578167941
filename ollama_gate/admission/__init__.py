"""Slots and memory: who may run now, who waits, and what a model may be loaded beside.

`memory` and `shapes` say what a model takes, `ledger` who holds how much, `queue` whose turn it is, `scheduler` joins
the two, and `gatekeeper` is the only part that knows an event loop.
"""
