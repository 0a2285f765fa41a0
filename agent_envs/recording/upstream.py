"""The model's server behind the proxy: passes requests on and asks for tokens if the server can report them."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.policies.openai.token_fields import TOKEN_REQUEST

try:
    import aiohttp
    import yarl
except ImportError as e:
    raise MissingExtraError("aiohttp", extra="record") from e

__all__ = ["HOP_BY_HOP", "Upstream"]

_log = logging.getLogger(__name__)

HOP_BY_HOP = frozenset({
    "accept-encoding", "connection", "content-encoding", "content-length", "host", "keep-alive", "proxy-authenticate",
    "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""Headers of a single connection, which are not passed on."""

# Fields added to a request, most first; what a server refuses is not asked of it again.
_STAGES: tuple[Mapping[str, Any], ...] = (TOKEN_REQUEST, {"logprobs": True}, {})
_REFUSED = re.compile(
    r"return_token_ids|logprob|unrecognized|unknown|unexpected|unsupported|not supported|extra|permitted|additional",
    re.IGNORECASE,
)


class Upstream:
    """A chat-completions server that is asked for tokens and log-probabilities as far as it reports them.

    Args:
        base_url: The server's address, with its ``/v1``; a ConfigError if it is none.
        timeout: Seconds without a byte after which a call fails.
        api_key: Sent instead of the agent's own key, or None.
    """

    def __init__(self, base_url: str, timeout: float = 600.0, api_key: str | None = None) -> None:
        expected = "the model's server needs an address such as http://localhost:8000/v1"
        try:
            url = yarl.URL(base_url.rstrip("/"))
        except ValueError as e:
            raise ConfigError(f"{expected}, got {base_url!r:.200}: {e}") from e
        if url.user is not None or url.password is not None:
            raise ConfigError(f"{expected}, without a login: its key comes from --upstream-key-env, or from the agent")
        if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
            raise ConfigError(f"{expected}, got {base_url!r:.200}")
        self.base_url = url
        self._timeout = aiohttp.ClientTimeout(total=None, connect=30, sock_read=timeout)
        self._api_key = api_key
        self._stage: dict[tuple[str, bool], int] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Create the client, on the loop that uses it."""
        self._session = aiohttp.ClientSession(
            timeout=self._timeout, connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def request(
        self, method: str, path: str, headers: Mapping[str, str], **kwargs: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Pass a request on.

        Raises:
            aiohttp.ClientError: Nothing answers, the answer breaks off, or the server redirects elsewhere (to where no
                key must be sent).
            TimeoutError: No byte came in time.
        """
        if self._session is None:
            raise ConfigError("the connection to the model's server is not open")
        sent = {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
        if self._api_key is not None:
            sent = {name: value for name, value in sent.items() if name.lower() != "authorization"}
            sent["Authorization"] = f"Bearer {self._api_key}"
        sent["Accept-Encoding"] = "identity"
        url = self.base_url.joinpath(*path.split("/")) if path else self.base_url
        async with self._session.request(method, url, headers=sent, allow_redirects=False, **kwargs) as response:
            if 300 <= response.status < 400 and "Location" in response.headers:
                to = response.headers["Location"]
                raise aiohttp.ClientError(f"the server redirects to {to!r:.200}: start the recorder with that address")
            yield response

    @asynccontextmanager
    async def chat(
        self, body: Mapping[str, Any], headers: Mapping[str, str], query: Mapping[str, str]
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, bytes | None]]:
        """Ask for a completion. A server that refuses the added fields is asked again with fewer.

        Yields the response, and its body if that has already been read. Raises what `request` raises.
        """
        kind = (str(body.get("model")), bool(body.get("stream")))
        refusal = ""
        for stage in range(self._stage.get(kind, 0), len(_STAGES)):
            sent = {"json": {**body, **_STAGES[stage]}, "params": query}
            async with self.request("POST", "chat/completions", headers, **sent) as response:
                data = None
                if stage + 1 < len(_STAGES) and response.status in (400, 422, 501):
                    data = await response.read()
                    refusal = data.decode("utf-8", "replace")
                    if _REFUSED.search(refusal):
                        continue
                elif response.status < 400:
                    if refusal:
                        fields = ", ".join(name for name in TOKEN_REQUEST if name not in _STAGES[stage])
                        _log.warning("the server is no longer asked for %s: %s", fields, refusal[:500])
                    self._stage[kind] = stage
                yield response, data
                return
