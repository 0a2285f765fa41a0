"""Clients of sandboxes that run elsewhere: services over HTTP, containers, and cloud interpreters."""
