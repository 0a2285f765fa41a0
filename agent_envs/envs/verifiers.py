"""The environments of the package verifiers, whose rollouts drive the model: here the policy drives the rollout.

The rollout runs as the package runs it, with a client that hands every prompt over and waits for the policy's text.
Prompts, tools, stop conditions and scores are the package's (https://github.com/PrimeIntellect-ai/verifiers, MIT).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from agent_envs.checks import choice, number, option_mapping, shown, string
from agent_envs.envs.foreign import require_generated
from agent_envs.envs.replayed import ReplayedEnv, Reply, Trail
from agent_envs.errors import BackendReplyError, BackendSlowError, ConfigError, check_release, first_line
from agent_envs.messages import ToolCall
from agent_envs.per_process import PerProcess
from agent_envs.tasks import IndexedTasks
from agent_envs.text import clean_text
from agent_envs.text_env import Outcome
from agent_envs.threads import LoopThread
from agent_envs.tool_env import ToolEnv
from agent_envs.tools.listed import OfferedTool, checked_tools

# Errors of a rollout that are the policy's: it wrote what cannot be read.
_OWN_ERRORS = ("EmptyModelResponseError", "InvalidModelResponseError", "ToolCallError", "ToolParseError")


@dataclass(frozen=True, slots=True)
class _Reply(Reply):
    instructions: str = ""


class _Answer(NamedTuple):
    """The policy's text as a model's response."""

    text: str
    calls: tuple[tuple[str, str], ...] = ()
    """Names and JSON arguments."""


_Loaded = tuple[Any, LoopThread]
"""An environment of the package, and the loop that its rollouts run on."""

_environments: PerProcess[_Loaded] = PerProcess(keep=8)  # data sets are large, and clients belong to one loop


def _load(env: str, arguments: str) -> _Loaded:
    check_release("verifiers", "suites")
    import verifiers

    try:
        loaded = verifiers.load_environment(env, **json.loads(arguments))
    except Exception as e:
        raise ConfigError(f"verifiers cannot load {env!r} with {arguments:.200}: {first_line(e)}") from e
    if not isinstance(loaded, verifiers.Environment) or loaded.requires_group_rollouts:
        raise ConfigError(f"{env!r} is no environment that scores single rollouts, got {type(loaded).__name__}")
    return loaded, LoopThread("agent_envs-verifiers")


class _Rollout:
    """One rollout in progress: its client's prompts come out, texts go in."""

    def __init__(self, loaded: _Loaded, row: Mapping[str, Any], timeout: float) -> None:
        import verifiers

        env, self._thread = loaded
        self._timeout, self._single = timeout, isinstance(env, verifiers.SingleTurnEnv)
        self._asked: SimpleQueue[tuple[list[Any], asyncio.Future[_Answer]] | None] = SimpleQueue()
        self._waiting: asyncio.Future[_Answer] | None = None
        self._prompt: list[Any] = []
        self._task: Future[Any] = self._thread.submit(self._run(env, dict(row)))
        self.first = self._next()

    def act(self, answer: _Answer) -> _Reply:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            raise BackendReplyError("the rollout has ended")
        self._thread.loop.call_soon_threadsafe(waiting.set_result, answer)
        return self._next()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self, env: Any, row: dict[str, Any]) -> Any:
        try:
            return await env.run_rollout(row, _client(self._ask), "policy", {})
        finally:
            self._asked.put(None)

    async def _ask(self, prompt: list[Any]) -> _Answer:
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._asked.put((prompt, answer))
        return await answer

    def _next(self) -> _Reply:
        """Return what the rollout says next: a prompt's new messages, or its end."""
        try:
            asked = self._asked.get(timeout=self._timeout)
        except Empty as e:
            self.close()
            raise BackendSlowError(f"the rollout did not go on in {self._timeout:g} seconds") from e
        if asked is None:
            return self._ended()
        prompt, self._waiting = asked
        known, self._prompt = self._prompt, prompt
        grown = bool(known) and prompt[: len(known)] == known
        new = prompt[len(known) + 1 :] if grown else [each for each in prompt if each.role != "system"]
        system = [each for each in prompt if each.role == "system"]
        return _Reply(_text(new), instructions=_text(system))

    def _ended(self) -> _Reply:
        try:
            output = self._task.result(timeout=self._timeout)
        except Exception as e:
            raise BackendReplyError(f"the rollout failed: {type(e).__name__}: {first_line(e)[:500]}") from e
        error, reward = output.get("error"), output.get("reward")
        name = str((error or {}).get("error", "")) if isinstance(error, dict) else str(error or "")
        failed = any(own in name for own in _OWN_ERRORS)
        if (error and not failed) or not isinstance(reward, (int, float)) or not math.isfinite(reward):
            raise BackendReplyError(f"the rollout failed: {shown(error or reward)}")
        stop = str(output.get("stop_condition") or "")
        limit = stop == "max_turns_reached" and not self._single
        tail = list(itertools.takewhile(lambda each: _role(each) != "assistant", reversed(output["completion"] or [])))
        said = _text(tail[::-1]) or f"The episode has ended: {stop or 'it is complete'}."
        return _Reply(said, float(reward), True, failed, bool(output.get("is_truncated")) or limit)


def _client(ask: Any) -> Any:
    """Return a client of the package whose responses are what `ask` returns for a prompt."""
    from verifiers.legacy.clients.client import Client
    from verifiers.legacy.types import Response, ResponseMessage
    from verifiers.legacy.types import ToolCall as Call

    class Policy(Client):
        async def get_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **kwargs: Any
        ) -> Response:
            answer = await ask(list(prompt))
            calls = [Call(id=f"call_{i}", name=name, arguments=args) for i, (name, args) in enumerate(answer.calls)]
            message = ResponseMessage(
                content=answer.text, tool_calls=calls or None, finish_reason="tool_calls" if calls else "stop",
                is_truncated=False,
            )  # fmt: skip
            return Response(id="policy", created=0, model=model, message=message)

    Policy.__abstractmethods__ = frozenset()  # what else a client does is not asked of it
    return Policy(None)


@dataclass(frozen=True, slots=True)
class _Row:
    task_id: str
    row: Mapping[str, Any]


class _Rows(IndexedTasks[_Row]):
    def __init__(self, env: str, split: str, rows: Any) -> None:
        super().__init__("generated", split)
        self._env, self._rows = env, rows

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, index: int) -> _Row:
        return _Row(f"{self._env}/{self.split}/{index}", self._rows[index])

    def content(self, index: int) -> Any:
        return [str(self._rows[index].get(key)) for key in ("prompt", "answer", "info")]


class VerifiersEnv(ReplayedEnv, ToolEnv):
    """Play an environment of verifiers, step by step instead of as a rollout.

    ## Description
    The rollout runs as the package runs it, and stops wherever it would ask the model: the prompt's new messages are
    the observation, and the policy's text is the model's response. Tools are run by the environment.

    ## Action Space
    Text, the model's response; where the environment has tools, calls in the format of `parser`.

    ## Observation Space
    Text: the row's prompt at reset, then the messages that the environment adds.

    ## Starting State
    A row of the environment's data set, or `options={"index": i}`.

    ## Rewards
    The score of the environment's rubric, at the end.

    ## Episode End
    Terminates when the rollout ends; truncated if a task of several turns ends by their limit. A rollout that fails, or
    does not go on in time, raises a `BackendError`; one that fails because it cannot read the response is a bad action
    of the policy.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (what was said last), `invalid_action` (a malformed call),
    `tool_results` (always empty: the environment's messages have them), `score` (the reward), `success` (the reward is
    at least 1), `reward_components` (`rubric`).

    ## Arguments
    `gym.make("AgentR1/Verifiers-v0", env="reverse-text", split="train")`
    - `env`: the environment as `verifiers.load_environment` takes it: the name of an installed module, which runs.
    - `env_args`: its arguments, as JSON values.
    - `split`: "train" (the environment's data set) or "test" (the one for evaluation).
    - `timeout`: seconds that the environment may take between two responses.

    ## Data
    The environment's. A run's record may not set them without trust, since it would import a module.
    """

    component = "rubric"
    settled_arguments = ("tools", "tool_timeout", "max_parallel_calls")
    harmless_arguments = ("timeout",)

    def __init__(
        self, *, env: str, env_args: Mapping[str, Any] | None = None, timeout: float = 60.0, **kwargs: Any
    ) -> None:
        self.env = string("env", env, empty=False)
        self.live_name = f"the environment {env}"
        try:
            self._env_args = json.dumps(option_mapping(env_args), sort_keys=True)
        except (TypeError, ValueError) as e:
            raise ConfigError(f"env_args must be JSON values, got {shown(env_args)}") from e
        self._timeout = number("timeout", timeout, above=0, maximum=1e6)
        listed = [
            {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.parameters or {})}
            for tool in self._source()[0].tool_defs or []
        ]
        super().__init__(tools=[OfferedTool(tool, _unasked) for tool in checked_tools(listed, env)], **kwargs)
        require_generated(self.data)
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split

    def open_tasks(self) -> _Rows:
        choice("split", self.split, ["train", "test"])
        source = self._source()[0]
        rows = source.build_dataset() if self.split == "train" else source.build_eval_dataset()
        if rows is None or not len(rows):
            raise ConfigError(f"{self.env!r} has no data set for the split {self.split!r}")
        return _Rows(self.env, self.split, rows)

    def start_of(self, task: _Row) -> dict[str, Any]:
        return dict(task.row)

    def open_live(self, start: Mapping[str, Any]) -> _Rollout:
        return _Rollout(self._source(), start, self._timeout)

    def begin(self, task: _Row) -> tuple[str, Trail]:
        said, trail = super().begin(task)
        self.instructions = trail.first.instructions
        if trail.first.done:
            raise BackendReplyError(f"{task.task_id}: the rollout ended before the first response")
        return said, trail

    def act(self, action: str) -> Outcome:
        answer, malformed = _Answer(action), False
        if len(self.registry):
            parsed = self.parser.parse(action)
            malformed = any(refusal is not None for refusal in self.registry.refusals(parsed.calls))
            calls = [call for call in parsed.calls if isinstance(call, ToolCall)]
            if calls and len(calls) == len(parsed.calls):
                answer = _Answer(parsed.text, tuple((call.name, json.dumps(call.arguments)) for call in calls))
        outcome = self.outcome(self.replayed.act(self.state, answer))
        outcome.invalid_action = outcome.invalid_action or malformed
        return outcome

    def right_answer(self) -> str:
        return str(self.task.row.get("answer") or "")

    def _source(self) -> _Loaded:
        return _environments.get((self.env, self._env_args), lambda: _load(self.env, self._env_args))


def _unasked(name: str, arguments: dict[str, Any]) -> str:
    raise BackendReplyError(f"the rollout calls {name!r} itself")


def _role(message: Any) -> str:
    return str(message.get("role")) if isinstance(message, Mapping) else str(message.role)


def _text(messages: Sequence[Any]) -> str:
    """Return messages as text: a single one unchanged, several with their roles where these differ."""
    texts = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else message.content
        if not isinstance(content, str):
            parts = [part if isinstance(part, Mapping) else dict(part) for part in content or []]
            content = "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)
        texts.append((_role(message), content))
    alike = len({role for role, _ in texts}) <= 1
    return clean_text("\n".join(said if alike else f"{role}: {said}" for role, said in texts))
