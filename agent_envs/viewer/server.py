"""Serves a page and the data behind it to the browser of one person, on this machine unless told otherwise."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from agent_envs.errors import needs_extra
from agent_envs.serving.listener import BackgroundServer, Listener, read_object
from agent_envs.threads import run_in_thread
from agent_envs.viewer.write import DATA, inert_json, plain_json, template

with needs_extra("serve"):
    from aiohttp import web

_MAX_BODY = 4 << 20
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Answer = Callable[[dict[str, Any]], Any]


class PageServer(BackgroundServer):
    """Serves one of this package's pages and answers what its script asks.

    Every request needs the token, which the address that is printed holds. Answers are made one at a time, in a thread.

    Args:
        page: The page's name, as for `template`.
        meta: What the page knows from the start.
        asked: What answers ``GET /NAME?key=value...``, by name: a function of the query's parameters.
        told: What answers ``POST /NAME`` with a JSON object, by name.
        host, port: Where to listen; port 0 takes a free one.
        token: What the browser has to send; None makes one.
    """

    def __init__(
        self,
        page: str,
        meta: dict[str, Any],
        *,
        asked: Mapping[str, Answer],
        told: Mapping[str, Answer] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        self.token = secrets.token_urlsafe(24) if token is None else token
        self.listener = Listener(
            host,
            port,
            self.token,
            lambda status, message, error: _json({"error": message}, status),
            max_body=_MAX_BODY,
            max_connections=256,
        )
        self._page, self._meta = page, meta
        self._asked, self._told = asked, told or {}
        self._lock = threading.Lock()

    @property
    def link(self) -> str:
        """The address to open in a browser, token included."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://agentr1:{quote(self.token, safe='')}@{parts.netloc}/"

    async def open(self) -> None:
        """Start listening, on the running loop; a ConfigError if the address does not work."""
        routes = [web.get("/", self._send_page)]
        routes += [web.get(f"/{name}", self._answering(answer)) for name, answer in self._asked.items()]
        routes += [web.post(f"/{name}", self._answering(answer)) for name, answer in self._told.items()]
        await self.listener.open(routes)

    async def _send_page(self, request: web.Request) -> web.Response:
        before, _, after = template(self._page, sources="img-src data:; connect-src 'self'").partition(DATA)
        meta = f'<script type="application/json" id="meta">{inert_json(self._meta)}</script>\n'
        return web.Response(text=before + meta + after, content_type="text/html", headers=_HEADERS)

    def _answering(self, answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
        def one_at_a_time(given: dict[str, Any]) -> Any:
            with self._lock:
                return answer(given)

        async def handle(request: web.Request) -> web.Response:
            told = request.method == "POST"
            if told and request.content_type != "application/json":  # which a form of another page cannot send
                return _json({"error": "expected Content-Type: application/json"}, 415)
            fields = await read_object(request) if told else dict(request.query)
            return _json(await asyncio.shield(asyncio.wrap_future(run_in_thread(lambda: one_at_a_time(fields)))))

        return handle


def _json(content: Any, status: int = 200) -> web.Response:
    return web.Response(text=plain_json(content), status=status, content_type="application/json", headers=_HEADERS)
