"""Rewards as pure functions, one module per task."""
