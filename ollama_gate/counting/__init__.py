"""Counts of prompts: from the request to the number of tokens that the model will see."""
