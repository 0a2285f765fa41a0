"""Sandboxes that other software is: services over HTTP, containers, and pydantic-monty."""
