"""Compaction: a chat that is over its budget, made shorter without losing what a model needs to go on."""
