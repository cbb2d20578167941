"""Hypothesis on a machine that others use too: how long an example takes says nothing."""

from hypothesis import HealthCheck, settings

unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
