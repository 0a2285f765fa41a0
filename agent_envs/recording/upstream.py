"""The model's server behind the proxy: passes requests on and asks for tokens if the server can report them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agent_envs.errors import BackendReplyError, needs_extra
from agent_envs.http.addresses import bare_address, server_address
from agent_envs.policies.openai.fields import refused_fields
from agent_envs.policies.openai.reply import TOKEN_REQUEST
from agent_envs.policies.openai.stream import limited

with needs_extra("serve"):
    import aiohttp
    import yarl

UPSTREAM_ERRORS = (aiohttp.ClientError, BackendReplyError, TimeoutError)
"""What a request to the model's server raises."""

_log = logging.getLogger(__name__)

# Headers of a single connection, and those by which servers are told that another path is meant.
_NOT_PASSED_ON = frozenset({
    "accept-encoding", "connection", "content-encoding", "content-length", "host", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "x-http-method-override", "x-original-url",
    "x-rewrite-url",
})  # fmt: skip


class Upstream:
    """A chat-completions server that is asked for tokens and log-probabilities as far as it reports them.

    Args:
        base_url: The server's address, with its ``/v1``; a ConfigError if it is none.
        timeout: Seconds without a byte after which a call fails.
        api_key: Sent instead of the agent's own key, or None.
    """

    def __init__(self, base_url: str, timeout: float = 600.0, api_key: str | None = None) -> None:
        server_address("upstream (its key comes from --upstream-key-env or from the agent)", base_url)
        self.base_url = yarl.URL(base_url.rstrip("/"))
        self._timeout = aiohttp.ClientTimeout(total=None, connect=30, sock_read=timeout)
        self._api_key = api_key
        self.keys = frozenset[str]() if api_key is None else frozenset({api_key})
        """Keys that no agent is told, though the server repeat them."""
        self._refused: dict[tuple[str, bool], frozenset[str]] = {}
        self._session: aiohttp.ClientSession  # from `open` on

    async def open(self) -> None:
        """Create the client, on the loop that uses it."""
        self._session = aiohttp.ClientSession(
            timeout=self._timeout, connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    @asynccontextmanager
    async def request(
        self, method: str, path: str, headers: Mapping[str, str], **kwargs: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Pass a request on, but not to where the server redirects (no key must go there); see `UPSTREAM_ERRORS`."""
        sent = {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}
        if self._api_key is not None:
            sent = {name: value for name, value in sent.items() if name.lower() != "authorization"}
            sent["Authorization"] = f"Bearer {self._api_key}"
        sent["Accept-Encoding"] = "identity"
        url = self.base_url.joinpath(*path.split("/"))
        async with self._session.request(method, url, headers=sent, allow_redirects=False, **kwargs) as response:
            if 300 <= response.status < 400 and "Location" in response.headers:
                to = bare_address(response.headers["Location"])
                raise aiohttp.ClientError(f"the server redirects to {to!r:.200}: start the recorder with that address")
            yield response

    @asynccontextmanager
    async def chat(
        self, body: Mapping[str, Any], headers: Mapping[str, str], query: Mapping[str, str]
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, bytes | None]]:
        """Ask for a completion, and for its tokens. A server that refuses the fields for these is asked without them.

        Yields the response, and its body if that has already been read. Raises what `request` raises.
        """
        kind = (str(body.get("model")), bool(body.get("stream")))
        own = {name for name in TOKEN_REQUEST if not body.get(name)}
        known = left_out = self._refused.get(kind, frozenset[str]())
        while True:
            sent = {**body, **{name: TOKEN_REQUEST[name] for name in own - left_out}}
            async with self.request("POST", "chat/completions", headers, json=sent, params=query) as response:
                data = None
                if response.status >= 400:
                    data = b"".join([part async for part in limited(response.content.iter_any())])
                    refused = refused_fields(response.status, data.decode("utf-8", "replace"), own - left_out)
                    if refused:
                        left_out |= refused
                        continue
                elif left_out != known:
                    _log.warning("the server refuses %s, and is no longer asked for it", ", ".join(sorted(left_out)))
                    self._refused[kind] = left_out
                yield response, data
                return
