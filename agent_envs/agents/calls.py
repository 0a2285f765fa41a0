"""The record of what an agent did in one episode, its calls of the model and its steps, and where the agent runs."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.episodes.builder import EpisodeBuilder, token_fields
from agent_envs.episodes.plain import own_copy, recorded
from agent_envs.episodes.record import Step, StopReason
from agent_envs.episodes.verdict import EpisodeVerdict
from agent_envs.errors import CallLimitReached, EmptyGeneration, EpisodeStop, PolicyError, first_line
from agent_envs.messages import Message, Observation, ToolCall, ToolSpec, content_text, observation_messages
from agent_envs.parsers.detect import parse_recorded
from agent_envs.policies.model import EpisodeModel
from agent_envs.policies.policy import Response

MAX_CALLS = 200
"""Most calls of the model in an episode."""


class BlockingHost:
    """Runs an agent in the thread that plays an `EpisodeRun`, where the environment lives."""

    def __init__(self, episode: Any) -> None:
        self.episode = episode

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run what blocks."""
        return function(*arguments)

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await a coroutine on the episode's loop, and return its result."""
        return self.episode.wait(coroutine)

    def play(self, agent: Callable[..., Any], env: Any, model: Any) -> None:
        """Run the agent to its end."""
        agent(env, model)


class AsyncHost(BlockingHost):
    """Runs an agent on the event loop; the thread that plays does what blocks."""

    def __init__(self, episode: Any) -> None:
        super().__init__(episode)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Return a future of what the function returns in the thread that plays."""
        loop = self.episode.loop
        done = loop.create_future()

        def settle(take: Callable[[Any], None], value: Any) -> None:
            if not done.done():  # it was cancelled
                take(value)

        def job() -> None:
            try:
                settled = done.set_result, function(*arguments)
            except BaseException as e:  # noqa: BLE001  it is raised in the agent
                settled = done.set_exception, e
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, *settled)

        self._jobs.put(job)
        return done

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine, which the agent awaits."""
        return coroutine

    def play(self, agent: Callable[..., Any], env: Any, model: Any) -> None:
        """Run the agent to its end, and meanwhile what it hands over."""
        self.episode.wait(agent(env, model), self._jobs)


@dataclass
class _Call:
    """A call of the model, or an action without one."""

    number: int
    prompt: list[Message]
    role: str
    trained: bool
    time: int
    """Environment steps taken before it began."""
    anchor: str
    """The state before it began."""
    response: Response | None = None
    error: str = "CancelledError: the episode ended before the answer"
    """Why it has no response."""
    after: int | None = None
    """Number of the call whose conversation it continues."""
    rewards: list[float] = field(default_factory=list)
    components: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    """What is known of the call itself."""
    infos: list[dict[str, Any]] = field(default_factory=list)
    """Infos of the environment steps that it took."""
    used: list[ToolCall | None] = field(default_factory=list)
    """The tool calls that these steps were, None for an action."""

    def says(self, text: str, tool_call: ToolCall | None) -> bool:
        """Return whether the reply holds this very action or call, and it has not been carried out yet."""
        assert self.response is not None
        if tool_call is None:
            return not self.infos and self.response.text == text
        parsed = parse_recorded(self.response.text)
        calls = [call for call in (parsed.calls if parsed else ()) if isinstance(call, ToolCall)]
        named = [call for call in calls if f"__{call.name}".endswith(f"__{tool_call.name}")]  # mcp__SERVER__name
        return sum(call.arguments == tool_call.arguments for call in named) > self.used.count(tool_call)


class CallLog:
    """The calls and environment steps of one episode, which begins with what a reset returned."""

    def __init__(
        self, env: gym.Env[Any, str], observation: Observation, info: dict[str, Any], host: BlockingHost
    ) -> None:
        self.env, self.observation, self.info, self.host = env, observation, info, host
        self.terminated = self.truncated = False
        self.failure: BaseException | None = None
        """What the environment or the model raised last."""
        self.roles: dict[str, str] = {}
        """Groups of roles that are compared within another group than the episode's."""
        self.key = secrets.token_hex(16)
        """The only key that reaches the episode's model from outside: 128 random bits."""
        self.on_end: list[Callable[[], object]] = []
        """What is to be done when the agent has returned."""
        self.score: Callable[..., float | EpisodeVerdict] | None = None
        """What judges the episode when nothing of the agent runs any more: see `run_episode`."""
        self.last_prompt: Sequence[int] = ()
        """The tokens of the prompt after a truncated episode, if the agent told them."""
        self.record: EpisodeBuilder | None = None
        """What it is shown."""
        self._calls: list[_Call] = []
        self._steps = 0
        self._numbers: dict[tuple[EpisodeModel, int | None], int] = {}  # a model, the number of its call -> our number
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether the environment has ended the episode."""
        return self.terminated or self.truncated

    @property
    def replies(self) -> list[Response]:
        """The replies so far, in the order of their calls."""
        return [call.response for call in self._calls if call.response is not None]

    # -- on the loop -------------------------------------------------------------------------------------------------

    async def ask(
        self, model: EpisodeModel, messages: Sequence[Message], tools: Sequence[ToolSpec], role: str, trained: bool,
        limit: int = 0, info: Mapping[str, Any] | None = None, ordered: bool = True,
    ) -> Response:  # fmt: skip
        """Ask the model, and record the call with some info of its own."""
        if not messages or messages[-1]["role"] == "assistant":
            raise PolicyError("model.chat: the last message must be a user's, a tool's or the system's")
        if len(self._calls) >= MAX_CALLS:
            raise CallLimitReached(f"the episode has used its {MAX_CALLS} calls of the model")
        call = self._begin(list(messages), role, trained and not self.over)
        call.info = {**(info or {}), "call": call.number}
        self.host.episode.begin_step()
        try:
            with self.host.episode.untimed():
                task = str(self.info.get("task_id", ""))
                response = await model.ask(messages, tools, task_id=task, limit=limit, ordered=ordered)
            if response.empty:
                raise EmptyGeneration(f"the model returned no text or no token at call {call.number}")
        except BaseException as e:
            call.error = f"{type(e).__name__}: {first_line(e)}"
            if isinstance(e, Exception) and not isinstance(e, EpisodeStop):
                self.failure = e
            raise
        with self._lock:
            call.response = response
            self._numbers[model, response.number] = call.number
            call.after = self._numbers.get((model, response.after))
        return response

    # -- in the thread that plays ------------------------------------------------------------------------------------

    def take(
        self, action: str | Response, by: Response | None, tool_call: ToolCall | None = None
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the environment; the step belongs to the reply that it carries out."""
        if self.over:
            raise PolicyError("env.step: the episode is over (env.over is True)")
        text = action.text if isinstance(action, Response) else action
        call = self._acting(by if by is not None else action, text, tool_call)
        self.host.episode.begin_step()
        try:
            observation, reward, terminated, truncated, info = self.env.step(text)
        except Exception as e:
            self.failure = e
            raise
        with self._lock:
            self._steps += 1
            self.observation, self.info = observation, info
            self.terminated, self.truncated = bool(terminated), bool(truncated and not terminated)
            call.rewards.append(float(reward))
            call.infos.append(info)
            call.used.append(tool_call)
            for player, theirs in others.items() if isinstance(others := info.get("rewards"), Mapping) else ():
                for other in [c for c in self._calls if c.role == player and c.response is not None][-1:]:
                    other.rewards.append(float(theirs))
        return observation, float(reward), self.terminated, self.truncated, info

    def pay(self, reward: float, to: Response | None, name: str, role: str) -> None:
        """Add a reward to a reply, or to the role's latest."""
        reward = checks.number("reward", reward)
        of_role = (call for call in reversed(self._calls) if call.response is not None and call.role == role)
        if (call := next(of_role, None) if to is None else self._call_of(to)) is None:
            raise PolicyError(f"model.pay: {role or 'this episode'} has no reply to pay")
        with self._lock:
            call.rewards.append(reward)
            if name:
                call.components[name] = call.components.get(name, 0.0) + reward

    def judge(self, workdir: str | None) -> None:
        """Add the score to the last reply, or a verdict's rewards to theirs; an episode that was not over is then."""
        score, self.score = self.score, None
        if score is None or self.record is None or not self.replies:
            return
        shown = replace(self.record)
        self.fill(shown)
        try:
            verdict = score(shown.end(StopReason.TERMINATED), self.env, workdir)
            if not isinstance(verdict, EpisodeVerdict):
                verdict = EpisodeVerdict(checks.number("the score", verdict), success=verdict >= 1)
            rewards = verdict.values(shown.steps)
        except Exception as e:
            self.failure = e
            raise
        with self._lock:
            answered = [call for call in self._calls if call.response is not None]
            for call, reward in zip(answered, rewards, strict=True):
                call.rewards.append(reward)
            won = sum(rewards) > 0 if verdict.success is None else verdict.success
            measured = sum(rewards) if verdict.score is None else verdict.score
            answered[-1].info |= {"score": measured, "success": won, **verdict.info}
            if verdict.stop_reason is StopReason.TERMINATED:
                self.terminated = self.terminated or not self.truncated

    def _begin(self, prompt: list[Message], role: str = "", trained: bool = True) -> _Call:
        with self._lock:
            call = _Call(len(self._calls), prompt, role, trained, self._steps, str(self.info.get("anchor", "")))
            self._calls.append(call)
        return call

    def _call_of(self, reply: Response) -> _Call | None:
        return next((call for call in self._calls if call.response is reply), None)

    def _acting(self, by: str | Response, text: str, tool_call: ToolCall | None) -> _Call:
        """Return the call that an action carries out: the one named, one that said it, the latest, or one without."""
        if isinstance(by, Response) and (call := self._call_of(by)) is not None:
            return call
        answered = [call for call in reversed(self._calls) if call.response is not None]
        unused = (call for call in answered if call.says(text, tool_call))
        if (call := next(unused, answered[0] if answered else None)) is None:
            call = self._begin(as_messages(self.observation, self.info))
            call.response = Response(text)
        return call

    # -- the record ---------------------------------------------------------------------------------------------------

    def fill(self, record: EpisodeBuilder) -> None:
        """Put the calls into a record as its steps, and the end of the episode on the last one."""
        with self._lock:
            calls = [call for call in self._calls if call.response is not None]
            steps = self._steps_of(calls)
            record.observation, record.roles = recorded(self.observation), dict(self.roles)
            if failed := [call for call in self._calls if call.response is None]:
                named = [{"call": call.number, "role": call.role, "error": call.error} for call in failed]
                record.reset_info = {**record.reset_info, "failed_calls": named}
            if not steps:
                return
            anchors = [call.anchor if call.infos else content_text(call.prompt[-1]["content"]) for call in calls]
            record.reset_info = {**record.reset_info, "anchor": anchors[0]}
            for step, anchor in zip(steps, anchors[1:], strict=False):
                step.info["anchor"] = anchor
            last = steps[-1]
            last.info.update({name: own_copy(value) for name, value in self.info.items() if name not in last.info})
            if self.last_prompt and not self.terminated:
                last.info["last_prompt"] = list(self.last_prompt)
            record.steps = [*steps[:-1], replace(last, terminated=self.terminated, truncated=not self.terminated)]

    def _steps_of(self, calls: Sequence[_Call]) -> list[Step]:
        place = {call.number: number for number, call in enumerate(calls)}
        steps = []
        for call in calls:
            response = call.response
            assert response is not None
            info: dict[str, Any] = {**(own_copy(call.infos[-1]) if call.infos else {"calls": 0}), **call.info}
            for name in {"calls", "tool_results"} & info.keys():  # of all the steps that the reply took
                info[name] = own_copy(sum((each[name] for each in call.infos if name in each), info[name] * 0))
            info["env_steps"] = len(call.infos)
            if call.components:
                info["reward_components"] = {**info.get("reward_components", {}), **call.components}
            steps.append(Step(
                recorded(call.prompt), response.text, sum(call.rewards), False, False, info, **token_fields(response),
                role=call.role, trained=call.trained, time=call.time,
                after=None if call.after is None else place.get(call.after),
            ))  # fmt: skip
        return steps


def as_messages(observation: Observation, info: Mapping[str, Any]) -> list[Message]:
    """Return an observation as messages; one that is a whole prompt unchanged."""
    return list(observation) if isinstance(observation, list) else observation_messages(observation, info)
