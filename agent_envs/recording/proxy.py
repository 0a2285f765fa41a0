"""The recording proxy: an OpenAI-compatible server before another one, for agents that are written elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError, DataError, check_release
from agent_envs.recording.calls import CallRecorder
from agent_envs.recording.http_errors import error_reply
from agent_envs.recording.store import EpisodeStore, FinishedError, OpenEpisode
from agent_envs.recording.upstream import Upstream
from agent_envs.recording.verdict import EpisodeEnd
from agent_envs.serving.access import AccessError, check_access, check_binding

__all__ = ["RecordingServer"]

_log = logging.getLogger(__name__)
_END_WAIT = 60.0
_CLOSE_WAIT = 5.0


class RecordingServer:
    """Passes chat completions on to a server and records each as a step of the episode that the request names.

    It runs in a thread of its own from ``start`` (or ``with``) to ``close``.

    Args:
        upstream: Address of the server behind it, with its ``/v1``.
        folder: Where the episodes go: ``episodes.jsonl``, and ``open/`` for those that have not ended.
        host: Address to listen on.
        port: Port to listen on, 0 for any.
        token: What clients have to send as their API key or as ``X-Record-Token``. None for none: then only requests
            from this machine are answered, and none from web pages of others.
        upstream_key: API key for the server behind, instead of the one that clients send.
        tokenizer: Makes the tokens of calls whose server does not tell them.
        env_id: What the episodes' ``env_id`` says.
        episode_timeout: Seconds without a call after which an episode ends as ``episode_timeout``; None for never.
        call_timeout: Seconds without a byte from upstream after which a call is given up.
        max_request: Bytes that a request may have.
        keep_open: Whether episodes that have not ended when the server closes stay open for the next one; otherwise
            they end as ``error``.

    Raises:
        MissingExtraError: aiohttp is not installed.
        ConfigError: Arguments do not fit, an address beyond this machine without a token among them.
    """

    def __init__(
        self,
        upstream: str,
        folder: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        upstream_key: str | None = None,
        tokenizer: str | None = None,
        env_id: str = "recorded",
        episode_timeout: float | None = 3600.0,
        call_timeout: float = 600.0,
        max_request: int = 64 << 20,
        keep_open: bool = False,
    ) -> None:
        check_release("aiohttp", "3.11", "4", "record")
        check_binding(host, token)
        for name, seconds in (("episode_timeout", episode_timeout), ("call_timeout", call_timeout)):
            if seconds is not None and not seconds > 0:
                raise ConfigError(f"{name} must be above 0 seconds, got {seconds!r}")
        if max_request < 1:
            raise ConfigError(f"max_request must be at least a byte, got {max_request!r}")
        self._host, self._port, self._token, self._max_request = host, port, token, max_request
        self._timeout, self._keep_open = episode_timeout, keep_open
        self._upstream = Upstream(upstream, call_timeout, upstream_key)
        retokenizer = None
        if tokenizer is not None:
            from agent_envs.recording.tokens import Retokenizer

            retokenizer = Retokenizer(tokenizer)
        self.store = EpisodeStore(folder, env_id)
        self._calls = CallRecorder(self._upstream, self.store, token, retokenizer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name="recording")
        self._started = threading.Event()
        self._done = threading.Event()  # a join that a signal interrupts takes the thread for ended
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self.url = ""
        """Address with its ``/v1``, once the server runs."""

    def start(self) -> RecordingServer:
        """Begin to listen.

        Raises:
            ConfigError: The address cannot be used.
        """
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self.store.close()
            raise self._failure
        return self

    def wait(self) -> None:
        """Wait until the server is closed."""
        while not self._done.wait(0.5):
            pass

    def stop(self) -> None:
        """Ask it to close; a signal's handler may do so too. `wait` returns when it has."""
        if self._started.is_set() and not self._done.is_set():
            self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        """Let calls under way come to their end for some seconds, end or keep the open episodes, and stop."""
        self.stop()
        if self._started.is_set():
            self._done.wait()
        self.store.close()

    def __enter__(self) -> RecordingServer:
        return self.start()

    def __exit__(self, *args: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as e:  # raised again where start() was called
            if self._started.is_set():
                raise
            self._failure = e
        finally:
            self._loop.close()
            self._done.set()
            self._started.set()

    async def _serve(self) -> None:
        from aiohttp import web

        @web.middleware
        async def checked(request: Any, handler: Any) -> Any:
            return await self._checked(request, handler)

        app = web.Application(client_max_size=self._max_request, middlewares=[checked])
        route = app.router
        route.add_get("/health", self._health)
        route.add_get("/episodes", self._list)
        route.add_get("/episodes/{episode}", self._show)
        route.add_post("/episodes/{episode}/reward", self._reward)
        for prefix in ("", "/episodes/{episode}"):
            route.add_post(prefix + "/v1/chat/completions", self._calls.chat)
            route.add_route("*", prefix + "/v1/{tail:.*}", self._calls.other)
        await self._upstream.open()
        # A client that goes away cancels its call, and with it the one upstream.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_CLOSE_WAIT)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, self._host, self._port, backlog=1024).start()
            except (OSError, OverflowError) as e:
                raise ConfigError(f"cannot listen on {self._host}:{self._port}: {e}") from e
            port = runner.addresses[0][1]
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.url = f"http://{host}:{port}/v1"
            self._started.set()
            flushing = asyncio.create_task(self._flush_idle())
            await self._stop.wait()
            flushing.cancel()
        finally:
            await runner.cleanup()
            await self._upstream.close()
        if not self._keep_open:
            said = "the recorder was stopped before the episode's reward came"
            for episode in list(self.store.open.values()):
                self._give_up(episode, EpisodeEnd(stop_reason=StopReason.ERROR, error=said))

    async def _flush_idle(self) -> None:
        """End the episodes that nobody ends."""
        if self._timeout is None:
            return
        said = f"no call and no reward within {self._timeout:g} seconds"
        end = EpisodeEnd(stop_reason=StopReason.EPISODE_TIMEOUT, error=said)
        while True:
            await asyncio.sleep(min(5.0, self._timeout / 4))
            for episode in self.store.idle(self._timeout):
                await asyncio.to_thread(self._give_up, episode, end)

    def _give_up(self, episode: OpenEpisode, end: EpisodeEnd) -> None:
        """End an episode that nobody ends. One that cannot be written stays open, on disk, for the next time."""
        try:
            self.store.finish(episode, end)
        except FinishedError:
            pass  # its reward came in this moment
        except (OSError, DataError) as e:
            _log.error("episode %r stays open, it cannot be written: %s", episode.episode_id, e)

    async def _checked(self, request: Any, handler: Any) -> Any:
        """Every request: the token, and errors in the form that OpenAI's clients read."""
        from aiohttp import web

        try:
            headers = request.headers
            if self._token is not None and "X-Record-Token" in headers:
                headers = {"Authorization": f"Bearer {headers['X-Record-Token']}"}
            if request.path != "/health":
                check_access(headers, self._token)
            return await handler(request)
        except AccessError as e:
            return error_reply(e.status, f"{e} (or X-Record-Token: TOKEN)" if e.status == 401 else str(e))
        except web.HTTPRequestEntityTooLarge:
            return error_reply(413, f"the request has more than {self._max_request} bytes")
        except web.HTTPException as e:
            known = "/v1/..., /episodes/ID/v1/..., /episodes, /episodes/ID, /episodes/ID/reward and /health"
            return error_reply(e.status, f"{request.method} {request.path}: {e.reason}; there are {known}")
        except FinishedError as e:
            return error_reply(409, str(e))
        except ConfigError as e:
            return error_reply(400, str(e))
        except RecursionError:
            return error_reply(400, "the request or its answer is nested too deeply")
        except DataError as e:
            return error_reply(500, str(e))
        except OSError as e:
            if isinstance(e, ConnectionError):
                raise
            return error_reply(507, f"the episode cannot be written: {e}")

    async def _health(self, request: Any) -> Any:
        return _json({"status": "ok", "open": len(self.store.open), "ended": self.store.ended})

    async def _list(self, request: Any) -> Any:
        return _json({"open": sorted(self.store.open), "ended": self.store.ended})

    async def _show(self, request: Any) -> Any:
        name = request.match_info["episode"]
        episode = self.store.open.get(name)
        if episode is None:
            if self.store.has_ended(name):
                return _json({"episode_id": name, "ended": True})
            return error_reply(404, f"there is no episode {name!r}")
        numbers = {"steps": episode.steps, "failed": episode.failed, "running": episode.running}
        return _json({"episode_id": name, "ended": False, "group_id": episode.group_id, **numbers})

    async def _reward(self, request: Any) -> Any:
        name = request.match_info["episode"]
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError) as e:
            raise ConfigError(f"the request is not JSON: {e}") from e
        end = EpisodeEnd.from_dict(body)
        if self.store.ended_by(name, end):
            return _json({"episode_id": name, "ended": True, "again": True})
        episode = self.store.open.get(name)
        if episode is None and not self.store.has_ended(name):
            return error_reply(404, f"there is no episode {name!r}: none of its calls has come here")
        if episode is None:
            raise FinishedError(f"episode {name!r} has ended before, with something else")
        if not await self._calls.settled(episode, _END_WAIT):
            return error_reply(409, f"{episode.running} calls of episode {name!r} are still under way")
        if not episode.steps and not episode.failed:
            return error_reply(404, f"no call of episode {name!r} has come to an answer")
        record = await asyncio.shield(asyncio.to_thread(self.store.finish, episode, end))
        said = {"reward": record.reward, "stop_reason": record.stop_reason.value}
        return _json({"episode_id": name, "ended": True, "steps": len(record.steps), **said})


def _json(content: Any) -> Any:
    from aiohttp import web

    return web.json_response(content)
