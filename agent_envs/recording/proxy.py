"""The recording proxy: an OpenAI-compatible server in front of another, for agents that are written elsewhere."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Any

from agent_envs.checks import integer, number
from agent_envs.episodes.record import StopReason
from agent_envs.episodes.verdict import EpisodeVerdict
from agent_envs.errors import ConfigError, DataError, needs_extra
from agent_envs.policies.openai.fields import request_keys
from agent_envs.recording.calls import CallRecorder
from agent_envs.recording.replies import error_reply
from agent_envs.recording.store import EpisodeStore, FinishedError, OpenEpisode
from agent_envs.recording.upstream import Upstream
from agent_envs.serving.access import holds_token
from agent_envs.serving.listener import BackgroundServer, Listener, read_object

with needs_extra("serve"):
    from aiohttp import web

_log = logging.getLogger(__name__)
_VERDICT_WAIT = 60.0  # seconds that a verdict waits for running calls
_CLOSE_WAIT = 5.0


class RecordingServer(BackgroundServer):
    """Passes chat completions on to a server and records each as a step of the episode that the request names.

    It runs in a thread from ``start`` (or ``with``) to ``close``.

    Args:
        upstream: Address of the model's server, with its ``/v1``.
        folder: Where the episodes go: ``episodes.jsonl``, and ``open/`` for unfinished ones.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        token: What clients have to send as their API key or as ``X-Record-Token``. With None, only requests from this
            machine are answered, and none from web pages of others.
        judge_token: What a verdict has to bring as ``X-Judge-Token``, so that no agent sets its own reward. With None,
            which needs ``token=None``, everything on this machine may judge.
        upstream_key: API key for the model's server, instead of the one that clients send.
        env_id: The episodes' ``env_id``.
        episode_timeout: Seconds without a call after which an episode ends as ``episode_timeout``; None for no limit.
        call_timeout: Seconds without a byte from the model's server after which a call fails.
        max_request: Bytes of the largest request.
        keep_open: Whether unfinished episodes stay open for the next start when the server closes; otherwise they end
            as ``error``.

    Raises:
        MissingExtraError: aiohttp is not installed.
        ConfigError: An argument does not fit, such as an address beyond this machine without a token.
    """

    def __init__(
        self,
        upstream: str,
        folder: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        judge_token: str | None = None,
        upstream_key: str | None = None,
        env_id: str = "recorded",
        episode_timeout: float | None = 3600.0,
        call_timeout: float = 600.0,
        max_request: int = 64 << 20,
        keep_open: bool = False,
    ) -> None:
        for name, seconds in (("episode_timeout", episode_timeout), ("call_timeout", call_timeout)):
            if seconds not in (None, math.inf):
                number(name, seconds, above=0)
        integer("max_request", max_request, minimum=1)
        if token is not None and judge_token in (None, token):
            raise ConfigError("agents hold the token, so verdicts need another one: pass judge_token=")
        self.listener = Listener(
            host,
            port,
            token,
            _refusal,
            max_body=max_request,
            token_header="X-Record-Token",
            stalled_seconds=600.0,
            statuses={FinishedError: 409, ConfigError: 400, RecursionError: 400, DataError: 500, OSError: 507},
            paths="/v1/..., /episodes/ID/v1/..., /episodes, /episodes/ID, /episodes/ID/reward and /health",
        )
        self._judge_token = judge_token
        self._timeout, self._keep_open = episode_timeout, keep_open
        self._upstream = Upstream(upstream, call_timeout, upstream_key)
        self.store = EpisodeStore(folder, env_id)
        self._calls = CallRecorder(self._upstream, self.store, token)
        self._flushing: asyncio.Task[None]

    @property
    def url(self) -> str:
        """The address of the server, with its ``/v1``."""
        return f"{self.listener.url}/v1"

    def close(self, grace: float = 5.0) -> None:
        """Give running calls some seconds, finish the open episodes (or keep them open), and stop."""
        super().close(grace)
        self.store.close()

    async def open(self) -> None:
        routes = [web.get("/health", self._health), web.get("/episodes", self._list)]
        routes += [web.get("/episodes/{episode}", self._show), web.post("/episodes/{episode}/reward", self._reward)]
        for prefix in ("", "/episodes/{episode}"):
            routes.append(web.route("*", prefix + "/v1/{tail:.*}", self._calls.answer))
        await self._upstream.open()
        try:
            # A client that leaves cancels its call, and with it the one to the model's server.
            await self.listener.open(routes, handler_cancellation=True, shutdown_timeout=_CLOSE_WAIT)
        except BaseException:
            await self._upstream.close()
            self.store.close()
            raise
        self._flushing = asyncio.create_task(self._finish_idle())

    async def shut_down(self, grace: float = _CLOSE_WAIT) -> None:
        """Stop, and finish the open episodes unless they stay open."""
        self._flushing.cancel()
        await self.listener.close()
        await self._upstream.close()
        if not self._keep_open:
            error = "the recorder was stopped before the episode's reward came"
            for episode in list(self.store.open.values()):
                self._give_up(episode, EpisodeVerdict(stop_reason=StopReason.ERROR, error=error))

    async def _finish_idle(self) -> None:
        if self._timeout is None:
            return
        error = f"no call and no reward within {self._timeout:g} seconds"
        verdict = EpisodeVerdict(stop_reason=StopReason.EPISODE_TIMEOUT, error=error)
        while True:
            await asyncio.sleep(min(5.0, self._timeout / 4))
            for episode in list(self.store.open.values()):
                if not episode.running and time.monotonic() - episode.touched >= self._timeout:
                    await asyncio.to_thread(self._give_up, episode, verdict)

    def _give_up(self, episode: OpenEpisode, verdict: EpisodeVerdict) -> None:
        """Finish an episode without a verdict. If it cannot be written, it stays open for the next start."""
        try:
            self.store.finish(episode, verdict)
        except FinishedError:
            pass  # its reward came at this moment
        except (OSError, DataError) as e:
            _log.error("episode %r stays open because it cannot be written: %s", episode.episode_id, e)

    async def _health(self, request: Any) -> Any:
        return web.json_response({"status": "ok", "open": len(self.store.open), "ended": len(self.store.finished)})

    async def _list(self, request: Any) -> Any:
        return web.json_response({"open": sorted(self.store.open), "ended": len(self.store.finished)})

    async def _show(self, request: Any) -> Any:
        name = request.match_info["episode"]
        episode = self.store.open.get(name)
        if episode is None:
            if name in self.store.finished:
                return web.json_response({"episode_id": name, "ended": True})
            return error_reply(404, f"there is no episode {name!r}")
        numbers = {"steps": episode.steps, "failed": episode.failed, "running": episode.running}
        return web.json_response({"episode_id": name, "ended": False, "group_id": episode.group_id, **numbers})

    async def _reward(self, request: Any) -> Any:
        name = request.match_info["episode"]
        judge = f"Bearer {request.headers.get('X-Judge-Token', '')}"
        if self._judge_token is not None and not holds_token(judge, self._judge_token):
            return error_reply(403, "a verdict needs the judge's token: X-Judge-Token: TOKEN")
        verdict = EpisodeVerdict.from_dict(await read_object(request))
        if self.store.finished.get(name) == verdict.digest:  # a repeated request gets its answer
            return web.json_response({"episode_id": name, "ended": True, "again": True})
        episode = self.store.open.get(name)
        if episode is None and name not in self.store.finished:
            return error_reply(404, f"there is no episode {name!r}: the recorder has seen no call of it")
        if episode is None:
            raise FinishedError(f"episode {name!r} has already been finished, with another verdict")
        episode.keys |= request_keys(request.headers, request.query)
        if not await self._calls.settled(episode, _VERDICT_WAIT):
            return error_reply(409, f"{episode.running} calls of episode {name!r} are still running")
        if not episode.steps and not episode.failed:
            return error_reply(404, f"no call of episode {name!r} has been answered")
        record = await asyncio.shield(asyncio.to_thread(self.store.finish, episode, verdict))
        result = {"reward": record.reward, "stop_reason": record.stop_reason.value}
        return web.json_response({"episode_id": name, "ended": True, "steps": len(record.steps), **result})


def _refusal(status: int, message: str, error: Exception) -> web.StreamResponse:
    if status == 401:
        message = f"{message} (or X-Record-Token: TOKEN)"
    elif isinstance(error, RecursionError):
        message = "the request or its answer is nested too deeply"
    elif status == 507:
        message = f"the episode cannot be written: {message}"
    return error_reply(status, message)
