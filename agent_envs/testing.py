"""A test of everything that a text environment promises, for any environment.

from agent_envs.testing import check_text_env
check_text_env("AgentR1/GSM8KTool-v0")
"""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

from agent_envs import branching
from agent_envs.errors import AgentEnvsError, TaskIndexError
from agent_envs.messages import observation_text
from agent_envs.pictures.picture import alike
from agent_envs.policies.scripted import ScriptedPolicy as ScriptedPolicy
from agent_envs.spaces import ImageText, UnicodeText
from agent_envs.text_env import TextEnv

HOSTILE_ACTIONS: tuple[str, ...] = (
    "",
    " \n\t",
    "\x00\x01\x1b[2J\x7f",
    "a" * 250_000,
    "\ud800 lone \udfff",
    "é中😀\U00010ffff\u202e\ufeff",
    "<tool_call>",
    "</tool_call>",
    "<tool_call>{",
    "<tool_call>{}</tool_call>",
    "<tool_call>[]</tool_call><tool_call>null</tool_call>",
    '<tool_call>{"name": "no_such_tool", "arguments": {}}</tool_call>',
    '<tool_call>{"name": 3, "arguments": "x"}</tool_call>',
    "<tool_call>" * 1000,
    "<tool_call>" + "[" * 100_000 + "</tool_call>",
    "<answer>",
    "<think>",
    "\\boxed{",
    "####",
    "search[",
    "{0} %s ${x}",
)
"""Texts that must not crash an environment: empty, huge, control characters, lone surrogates, unclosed tags."""

_INFO_TYPES: dict[str, type] = {
    "task_id": str,
    "split": str,
    "index": int,
    "source": str,
    "invalid_action": bool,
    "score": float,
    "success": bool,
    "reward_components": dict,
    "anchor": str,
}


class ContractError(AgentEnvsError, AssertionError):
    """An environment breaks the contract; the message says which part."""


def check_text_env(
    env_id: str, *, env_kwargs: Mapping[str, Any] | None = None, tasks: int = 3, vectors: bool = True
) -> None:
    """Check everything that text environments promise.

    Gymnasium's own checker without a warning, spaces, info, random access to tasks, determinism, the spec, snapshots,
    the expert, hostile actions, rendering, and vector environments that agree with single ones.

    Args:
        env_id: A registered id.
        env_kwargs: Keyword arguments of ``gymnasium.make``.
        tasks: Number of tasks that the expert must solve.
        vectors: Whether to check vector environments too (starts two processes).

    Raises:
        ContractError: The environment breaks the contract.
    """
    kwargs = dict(env_kwargs or {})
    _check_gymnasium(env_id, kwargs)
    with contextlib.closing(gym.make(env_id, **kwargs)) as env:
        base = env.unwrapped
        if not isinstance(base, TextEnv):
            raise ContractError(f"{type(base).__name__} is not a TextEnv")
        _check_surface(env, base)
        _check_determinism(env, base)
        _check_snapshot(env, base)
        _check_expert(env, base, min(tasks, base.num_tasks))
        _check_hostile(env, base)
    _check_render(env_id, kwargs)
    if vectors:
        _check_vectors(env_id, kwargs)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractError(message)


@contextlib.contextmanager
def _no_exception(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as e:
        raise ContractError(f"{where}: {type(e).__name__}: {e}") from e


def _check_gymnasium(env_id: str, kwargs: dict[str, Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gym.make(env_id, **kwargs)
        with _no_exception("Gymnasium's checker"):
            check_env(env.unwrapped)
        env.close()
    _require(not caught, f"Gymnasium's checker warns: {[str(w.message) for w in caught]}")
    _require(pickle.loads(pickle.dumps(env.spec)) == env.spec, "the spec does not survive pickling")
    if env.spec is not None and isinstance(env.spec.entry_point, str):
        gym.make(type(env.spec).from_json(env.spec.to_json())).close()


def _check_info(info: dict[str, Any], where: str) -> None:
    for key, kind in _INFO_TYPES.items():
        _require(key in info, f"{where}: info lacks {key!r}")
        _require(type(info[key]) is kind, f"{where}: info[{key!r}] is {info[key]!r}, expected a {kind.__name__}")
    for key, value in info.items():
        _require(value is not None, f"{where}: info[{key!r}] is None; leave the key out or give it a value of its type")
    for name, value in info["reward_components"].items():
        _require(type(value) is float, f"{where}: reward component {name!r} is {value!r}, expected a float")
    _require(json.loads(json.dumps(info)) is not None, f"{where}: info cannot be written as JSON")


def _check_surface(env: gym.Env[Any, str], base: TextEnv) -> None:
    for space, kinds in ((env.observation_space, (UnicodeText, ImageText)), (env.action_space, (UnicodeText,))):
        _require(isinstance(space, kinds), f"spaces must be {kinds[0].__name__}, got {space!r}")
    _require(isinstance(base.instructions, str), f"instructions must be a string, got {base.instructions!r}")
    for spec in base.tools:
        _require(spec["type"] == "function", f"a tool spec must have the OpenAI function form, got {spec!r}")
        _require(json.loads(json.dumps(spec)) == spec, "a tool spec survives JSON")
    observation, info = env.reset(options={"index": 0})
    _check_info(info, "reset")
    _require(info["index"] == 0, "reset(options={'index': 0}) must play row 0")
    again = env.reset(options={"index": 0})[0]
    _require(alike(again, observation), "the same index must give the same first observation")
    try:
        env.reset(options={"index": base.num_tasks})
    except TaskIndexError as e:
        _require(str(base.num_tasks - 1) in str(e), "the error for an index outside the split must name the range")
    else:
        raise ContractError("an index outside the split must raise TaskIndexError")


def _finish(env: gym.Env[Any, str], actions: list[str]) -> list[Any]:
    """Return what the actions return, up to the end of the episode."""
    record = []
    for action in actions:
        record.append(copy.deepcopy(env.step(action)))
        if record[-1][2] or record[-1][3]:
            break
    return record


def _expert_actions(env: gym.Env[Any, str], base: TextEnv, limit: int = 1000) -> list[str]:
    """Return the expert's actions from here to the end of the episode; none if there is no expert."""
    actions: list[str] = []
    over = False
    while not over and len(actions) < limit and (action := base.expert_action()) is not None:
        actions.append(action)
        over = any(env.step(action)[2:4])
    return actions


def _check_determinism(env: gym.Env[Any, str], base: TextEnv) -> None:
    env.reset(seed=7)
    actions = ["first", *_expert_actions(env, base), "last"]
    first, second = ([copy.deepcopy(env.reset(seed=7)), *_finish(env, actions)] for _ in range(2))
    _require(alike(first, second), "the same seed and actions must give the same observations, rewards and info")
    drawn, again = ([env.reset(seed=7)[0], env.reset()[0], env.reset()[0]] for _ in range(2))
    _require(alike(drawn, again), "resets after reset(seed) are not deterministic")


def _check_snapshot(env: gym.Env[Any, str], base: TextEnv) -> None:
    env.reset(seed=11)
    actions = [*_expert_actions(env, base), "a", "b"]
    env.reset(seed=11)
    snapshot = base.snapshot()
    first = [copy.deepcopy(base.step(actions[0]))]
    base.restore(snapshot)
    second = [copy.deepcopy(base.step(actions[0]))]
    _require(alike(first, second), "an episode must go on the same way after its snapshot is restored")
    other = gym.make(env.spec).unwrapped if env.spec else base
    assert isinstance(other, TextEnv)
    other.reset(seed=0)
    other.restore(pickle.loads(pickle.dumps(snapshot)))
    elsewhere = [copy.deepcopy(other.step(actions[0]))]
    _require(alike(elsewhere, first), "a snapshot must work in another instance of the environment")
    env.reset(seed=11)
    point = branching.snapshot(env)
    first_way = _finish(env, actions)
    branching.restore(env, point)
    second_way = _finish(env, actions)
    _require(alike(first_way, second_way), "an episode must go on the same way after it is branched with its wrappers")
    base.restore(snapshot)
    random_states = [each.np_random.bit_generator.state for each in (other, base)]
    _require(random_states[0] == random_states[1], "the random state must be restored")
    other.close()


def _check_expert(env: gym.Env[Any, str], base: TextEnv, tasks: int) -> None:
    for index in np.linspace(0, base.num_tasks - 1, tasks).astype(int).tolist():
        env.reset(options={"index": index})
        if base.expert_action() is None:
            continue
        for _ in range(10_000):
            action = base.expert_action()
            if not isinstance(action, str):
                raise ContractError(f"task {index}: the expert has no action before the task ends")
            _, _, terminated, truncated, info = env.step(action)
            _check_info(info, f"task {index}")
            if terminated or truncated:
                break
        _require(info["success"] and terminated, f"task {index}: the expert does not win")


def _check_hostile(env: gym.Env[Any, str], base: TextEnv) -> None:
    for action in HOSTILE_ACTIONS:
        env.reset(seed=3)
        before = base.expert_action()
        where = f"action {action[:40]!r}"
        with _no_exception(where):
            observation, _, terminated, truncated, info = env.step(action)
        _require(env.observation_space.contains(observation), f"{where}: the observation is outside its space")
        observation_text(observation).encode()
        both = f"{where}: terminated and truncated are both true: the task ends in the last step that its limit allows"
        _require(not (terminated and truncated), f"{both}; register it with a higher max_episode_steps")
        _require(not info["success"], f"{where}: counts as success")
        _check_info(info, where)
        if not (terminated or truncated) and before is not None:
            _require(isinstance(base.expert_action(), str), f"{where}: the expert has no action after it")


def _check_render(env_id: str, kwargs: dict[str, Any]) -> None:
    env = gym.make(env_id, render_mode="ansi", **kwargs)
    env.reset(seed=0)
    shown = env.render()
    _require(isinstance(shown, str) and bool(shown), "render() in mode 'ansi' must return the episode as text")
    env.step("\x1b[31mred")
    _require("\x1b" not in str(env.render()), "render() must escape terminal control sequences")
    env.close()


def _check_vectors(env_id: str, kwargs: dict[str, Any]) -> None:
    singles = [gym.make(env_id, **kwargs) for _ in range(2)]
    actions = ["première 中😀", "second"]
    expected = []
    for seed, (single, action) in enumerate(zip(singles, actions, strict=True), start=5):
        expected.append((single.reset(seed=seed)[0], *single.step(action)[:4]))
        single.close()
    for mode in ("sync", "async"):
        vector = gym.make_vec(env_id, num_envs=2, vectorization_mode=mode, **kwargs)
        first, _ = vector.reset(seed=5)
        observation, reward, terminated, truncated, _ = vector.step(tuple(actions))
        vector.close()
        got = list(zip(first, observation, reward.tolist(), terminated.tolist(), truncated.tolist(), strict=True))
        _require(alike(got, expected), f"{mode} vectors differ from single environments: {got} and {expected}")
