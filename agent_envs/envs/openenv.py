"""Anybody's OpenEnv server as an environment here: with tools if it has any, else by text or JSON actions.

    ask     {"type": "step", "data": {"type": "call_tool", "tool_name": "add", "arguments": {"a": 1, "b": 2}}}
    reply   {"type": "observation", "data": {"observation": {...}, "reward": 0.0, "done": false}}

The protocol is that of https://github.com/meta-pytorch/OpenEnv (BSD 3-Clause); its own client speaks it.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple

from agent_envs.checks import integer, number, option_mapping, shown, string
from agent_envs.envs.foreign import SeededTask, SeededTasks, require_generated
from agent_envs.envs.replayed import ReplayedEnv, Trail
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
    DataError,
    ToolError,
    check_release,
    first_line,
)
from agent_envs.http.addresses import server_address
from agent_envs.pictures.picture import IMAGE, Picture, Pictured
from agent_envs.pictures.png import LARGEST_SIDE, shown_pictures
from agent_envs.text import clean_text
from agent_envs.text_env import Outcome
from agent_envs.threads import background_loop
from agent_envs.tool_env import ToolEnv
from agent_envs.tools.listed import ListedTool, OfferedTool, checked_tools

_CODE = re.compile(r"\(code: (\w+)\)\s*$")
_REFUSALS = ("VALIDATION_ERROR", "INVALID_JSON")
_LARGEST_MB = 32.0
_ASIDE = ("done", "metadata", "reward")  # of an observation: not for the policy


class _Reply(NamedTuple):
    observation: dict[str, Any]
    reward: float = 0.0
    done: bool = False
    refused: str = ""
    """The server's words, if it does not take the action."""

    def flag(self, name: str) -> bool | None:
        """Return what the observation, its info or its metadata says under a name; None if none is a truth value."""
        for place in (self.observation, self.observation.get("info"), self.observation.get("metadata")):
            if isinstance(place, dict) and isinstance(place.get(name), bool):
                return bool(place[name])
        return None

    @property
    def truncated(self) -> bool:
        return bool(self.flag("truncated"))


class _Session:
    """An episode on the server, over a connection of its own."""

    def __init__(self, url: str, start: Mapping[str, Any] | None, timeout: float, connect_timeout: float) -> None:
        from openenv.core.generic_client import GenericEnvClient

        self._url, self._timeout = url, timeout
        self._client = GenericEnvClient(
            url, connect_timeout, message_timeout_s=timeout, max_message_size_mb=_LARGEST_MB, mode="simulation"
        )
        self._loop = background_loop()
        self._wait(self._client.connect(), connect_timeout)
        try:
            self.first = _Reply({}) if start is None else self._asked(self._client.reset(**start))
            if self.first.refused:
                raise ConfigError(f"{url} refuses to begin with {shown(start)}: {self.first.refused}")
        except BaseException:
            self.close()
            raise

    def act(self, action: dict[str, Any]) -> _Reply:
        return self._asked(self._client.step(action))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._client.disconnect(), self._loop)

    def _asked(self, request: Coroutine[Any, Any, Any]) -> _Reply:
        try:
            result = self._wait(request, self._timeout)
        except ToolError as e:
            return _Reply({}, refused=str(e))
        reward = 0.0 if result.reward is None else result.reward
        fits = isinstance(reward, (int, float)) and isinstance(result.done, bool)
        if not fits or not isinstance(result.observation, dict) or not math.isfinite(reward):
            raise BackendReplyError(
                f"{self._url}: expected an observation, a reward and whether the episode is done, got {shown(result)}"
            )
        return _Reply(result.observation, float(reward), result.done)

    def _wait(self, request: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """Return what a request returns; a ToolError if the server refuses it, else a typed error."""
        from websockets.exceptions import ConnectionClosed

        future = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            return future.result(seconds + 1.0)
        except (ConnectionClosed, OSError) as e:
            future.cancel()
            if isinstance(e, TimeoutError) or isinstance(e.__cause__, TimeoutError):
                raise BackendSlowError(f"{self._url} did not answer in {seconds:g} seconds") from e
            raise BackendDownError(f"{self._url} cannot be reached or has ended: {first_line(e)[:500]}") from e
        except RuntimeError as e:
            said = clean_text(str(e))[:2000]
            code = found[1] if (found := _CODE.search(said)) else ""
            if code in _REFUSALS:
                raise ToolError(said) from e
            kind = BackendBusyError if code == "CAPACITY_REACHED" else BackendReplyError
            raise kind(f"{self._url}: {said}") from e
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
            raise BackendReplyError(f"{self._url} answered what is not the protocol: {first_line(e)[:500]}") from e


class OpenEnvEnv(ReplayedEnv, ToolEnv):
    """Play the environment of any OpenEnv server, including one with MCP tools.

    ## Description
    The server decides the task, its rewards and its end. If it lists tools, actions call them; else an action is a
    text, or a JSON object of the server's own fields. For `agentr1 serve`, which tells more, use `AgentR1/Remote-v0`.

    ## Action Space
    Text: calls of the tools; without tools, what is sent in the action's field `field`, or a JSON object.

    ## Observation Space
    Text: the observation's field `show`, or the whole observation as JSON; the results of calls. With `pictures`, text
    and pictures: those of that field, in the place of `<image>` in the text if it has as many of these, else after it.

    ## Starting State
    What the server begins with the seed of a task drawn from the split, or of `options={"index": i}`, over a connection
    of its own. A server that takes no seed begins as it likes.

    ## Rewards
    The server's own. Rewards of several calls in one action add up.

    ## Episode End
    Terminates when the server says that the episode is done, or truncates if its observation says `truncated`. A server
    that ends, does not answer in time or breaks the protocol raises a `BackendError`: it is never the policy's failure.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the last observation), `invalid_action` (the server does not take
    the action, or says so), `tool_results`, `score` (the last reward), `success` (what the observation, its `info` or
    its `metadata` says; else whether the last reward is 1), `reward_components` (`server`).

    ## Arguments
    `gym.make("AgentR1/OpenEnv-v0", url="http://127.0.0.1:8000", field="text", show="text")`
    - `url`: the server's address; a path chooses one of several environments.
    - `field`: the field of an action that takes the text; "" for actions as JSON objects.
    - `show`: the field of an observation that is shown; "" for all of it as JSON.
    - `pictures`: the field of an observation with its pictures, "" for none: a PNG or JPEG in base64 or as a `data:`
      URL, rows of pixels [height, width, 3], or a list of either. Red, green and blue of 8 bits, at most `max_side`
      pixels a side, and at most `max_pictures` in a reply.
    - `reset`: more arguments of the server's `reset`.
    - `split`: "train" (100,000 seeds), "validation" or "test" (1,000 each).
    - `timeout`, `connect_timeout`: seconds to wait.

    A snapshot is the actions so far. If another episode has been played since, they are sent again over a new
    connection; if the server answers differently, it is a `BackendReplyError`.

    ## Data
    The server's.
    """

    settled_arguments = ("tools", "tool_timeout")
    harmless_arguments = ("timeout", "connect_timeout")

    def __init__(
        self,
        *,
        url: str,
        field: str = "",
        show: str = "",
        pictures: str = "",
        max_pictures: int = 8,
        max_side: int = 1024,
        reset: Mapping[str, Any] | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 10.0,
        **kwargs: Any,
    ) -> None:
        check_release("openenv-core", "suites")
        server_address("url", url, schemes=("http", "https", "ws", "wss"), query=True)
        self.url = self.live_name = url.rstrip("/")
        self._field, self._show = string("field", field), string("show", show)
        self._pictures, self._most = string("pictures", pictures), integer("max_pictures", max_pictures, minimum=1)
        self.max_image_side = integer("max_side", max_side, minimum=1, maximum=LARGEST_SIDE)
        self.max_images = self._most if pictures else 0
        self._reset_arguments = option_mapping(reset)
        self._waits = (
            number("timeout", timeout, above=0, maximum=1e6),
            number("connect_timeout", connect_timeout, above=0, maximum=1e6),
        )
        self._replies: list[_Reply] = []  # of this step
        super().__init__(tools=[OfferedTool(tool, self._ask) for tool in self._listed()], **kwargs)
        require_generated(self.data)
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split
        if not len(self.registry):
            how = "Your whole text is the action." if field else "Write each action as one JSON object of its fields."
            self.instructions = f"Act in the environment that is shown. {how}"

    instructions = "Act in the environment that is shown, by calling its tools."

    def open_tasks(self) -> SeededTasks:
        return SeededTasks("openenv", self.split)

    def open_live(self, start: Mapping[str, Any] | None) -> _Session:
        return _Session(self.url, start, *self._waits)

    def begin(self, task: SeededTask) -> tuple[str | Pictured, Trail]:
        trail = self.replayed.begin({**self._reset_arguments, "seed": task.seed})
        return self._shown(trail.first), trail

    def act(self, action: str) -> Outcome:
        self._replies = []
        if not len(self.registry):
            return self.answer(action)
        outcome = ToolEnv.act(self, action)
        return self._outcome(outcome.observation, outcome) if self._replies else outcome

    def answer(self, text: str) -> Outcome:
        if self._field:
            payload: Any = {self._field: text}
        elif len(self.registry):
            return Outcome(self._reminder(), invalid_action=True)
        else:
            try:
                payload = json.loads(text)
            except (ValueError, RecursionError):
                payload = None
            if not isinstance(payload, dict):
                return Outcome('Expected one JSON object such as {"field": "value"}.', invalid_action=True)
        reply = self._sent(payload)
        if reply.refused:
            return Outcome(reply.refused, invalid_action=True)
        return self._outcome(self._shown(reply), Outcome(""))

    def anchor(self) -> str:
        said = self._shown(self.state.last)
        if isinstance(said, str):
            return said
        return "\n".join([said.text, *(f"picture {Picture(image).digest[:16]}" for image in said.images)])

    # -- the server ----------------------------------------------------------------------------------------------

    def _listed(self) -> list[ListedTool]:
        """Return the server's tools, none if it does not know the question."""
        session = self.open_live(None)
        try:
            reply = session.act({"type": "list_tools"})
        except BackendReplyError:
            return []
        finally:
            session.close()
        return checked_tools(reply.observation.get("tools") or [], self.url)

    def _sent(self, payload: dict[str, Any]) -> _Reply:
        reply: _Reply = self.replayed.act(self.state, payload)
        self._replies.append(reply)
        return reply

    def _ask(self, name: str, arguments: dict[str, Any]) -> str | Pictured:
        if self._replies and self._replies[-1].done:
            raise ToolError("not run: the episode has ended")
        reply = self._sent({"type": "call_tool", "tool_name": name, "arguments": arguments})
        if problem := reply.refused or reply.observation.get("error"):
            raise ToolError(_text(problem.get("message", problem) if isinstance(problem, dict) else problem))
        if "result" not in reply.observation:
            return self._shown(reply)
        return self._with_pictures(_text(reply.observation["result"]), reply)

    def _shown(self, reply: _Reply) -> str | Pictured:
        said = {key: value for key, value in reply.observation.items() if key not in (*_ASIDE, self._pictures)}
        if reply.refused:
            return reply.refused
        if not self._show:
            return self._with_pictures(_text(said), reply)
        if self._show not in reply.observation:
            raise BackendReplyError(
                f"{self.url}: the observation has no field {self._show!r} (show=), only {shown(sorted(said))}"
            )
        return self._with_pictures(_text(reply.observation[self._show]), reply)

    def _with_pictures(self, text: str, reply: _Reply) -> str | Pictured:
        """Return a text with the pictures of a reply, if they are asked for."""
        if not self.max_images:
            return text
        where = f"{self.url}: {self._pictures!r}"
        value = reply.observation.get(self._pictures) or []
        try:
            pictures = shown_pictures(value, where, self._most, self.max_image_side)
        except DataError as e:
            raise BackendReplyError(str(e)) from e
        pieces = text.split(IMAGE)
        if len(pieces) != len(pictures) + 1:
            pieces = [f"{text}\n" if text and pictures else text, *[""] * len(pictures)]
        return Pictured(pieces[0], *(part for pair in zip(pictures, pieces[1:], strict=True) for part in pair))

    def _outcome(self, said: str | Pictured, outcome: Outcome) -> Outcome:
        last = self._replies[-1]
        reward = math.fsum(reply.reward for reply in self._replies)
        success = last.flag("success")
        return Outcome(
            said,
            reward=reward,
            terminated=last.done,
            invalid_action=outcome.invalid_action or bool(last.flag("invalid_action")),
            score=last.reward,
            success=last.done and (last.reward >= 1.0 if success is None else success),
            components={"server": reward},
            extra=outcome.extra,
        )


def _text(value: Any) -> str:
    """Return a value of a server as text."""
    if isinstance(value, dict) and "data" in value and "content" in value:  # of FastMCP, as its client unpacks it
        value = value["data"]
    return clean_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))
