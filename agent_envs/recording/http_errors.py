"""Errors of the proxy in the form that clients of OpenAI's API read."""

from __future__ import annotations

from typing import Any

__all__ = ["error_reply"]


def error_reply(status: int, message: str) -> Any:
    """A reply that says what is wrong (an ``aiohttp.web.Response``)."""
    from aiohttp import web

    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": f"agentr1 record: {message}", "type": kind, "param": None, "code": f"record_{status}"}
    return web.json_response({"error": error}, status=status)
