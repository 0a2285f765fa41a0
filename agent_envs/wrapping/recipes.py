"""The released recipes as data: the environment, its arguments and its wrappers, for each task and release.

Sources: https://github.com/AgentR1/CAPO (August 2026), AgentR1/StepPO (May 2026) and Agent-R1 (July 2026). Formats,
rules and numbers are theirs, the wording of the prompts is this project's; `prompts` puts your own in its place.
"""

from __future__ import annotations

from typing import Any

from agent_envs.checks import choice
from agent_envs.wrapping.recorded import RecordedEnv
from agent_envs.wrapping.specs import read_spec

__all__ = ["RECIPES", "RELEASES", "recipe"]

RELEASES = ("capo", "steppo", "agent-r1")
"""The releases, the newest first."""

_TOOL = "AsTool(parser='hermes_json', calls={calls!r}, on_invalid={on_invalid!r})"
_SHOP = "AsTool(parser='hermes_json', calls='exactly_one', on_invalid='wrap', invalid_reward=-0.1)"
_QA = {
    "rules": "released",
    "parser": "hermes_python",
    "force_first_search": True,
    "max_calls": 4,
    "top_k": 5,
    "max_episode_steps": 5,
}
_PAPERS = {"rules": "released", "reward": "agentr1", "max_calls": 5, "top_k": 10, "max_episode_steps": 5}
_CHECKED = {"tool": "check_answer", "reward": "agentr1", "rules": "released", "parser": "hermes_json"}
_PROMPT = "RebuildPrompt(template={layout!r}, anchor={anchor!r})"
_RESEARCH = _PROMPT.format(layout="capo", anchor="prompt")


def _each(task: str, env_id: str, env_kwargs: dict[str, Any], *wrappers: str) -> dict[tuple[str, str], RecordedEnv]:
    """Return the recipes of a task whose releases differ in the layout of the prompt."""
    layouts = {"capo": "capo", "steppo": "agent-r1", "agent-r1": "agent-r1"}
    return {
        (task, release): RecordedEnv(
            env_id, env_kwargs, (*wrappers, _PROMPT.format(layout=layout, anchor="observation"))
        )
        for release, layout in layouts.items()
    }


RECIPES: dict[tuple[str, str], RecordedEnv] = {
    **_each(
        "alfworld",
        "AgentR1/ALFWorld-v0",
        {"max_episode_steps": 20},
        _TOOL.format(calls="first", on_invalid="wrap"),
    ),
    **_each("webshop", "AgentR1/WebShop-v0", {"reward": "agentr1", "max_episode_steps": 15}, _SHOP),
    **{("hotpotqa", release): RecordedEnv("AgentR1/HotpotQA-v0", _QA, (_RESEARCH,)) for release in RELEASES},
    **{
        ("papersearch", release): RecordedEnv("AgentR1/PaperSearch-v0", {**_PAPERS, "parser": parser}, (_RESEARCH,))
        for release, parser in (("capo", "hermes_python"), ("steppo", "hermes_json"), ("agent-r1", "hermes_python"))
    },
    ("gsm8k", "agent-r1"): RecordedEnv(
        "AgentR1/GSM8K-v0", {"reward": "agentr1"}, ("RebuildPrompt(template='agent-r1')",)
    ),
    ("gsm8k-tool", "agent-r1"): RecordedEnv(
        "AgentR1/GSM8KTool-v0",
        {**_CHECKED, "max_parallel_calls": 100, "max_episode_steps": 5},
        ("RebuildPrompt(template='agent-r1', only_first=True)",),
    ),
    ("scienceworld", "capo"): RecordedEnv(
        "AgentR1/ScienceWorld-v0",
        {"reward": "agentr1", "max_episode_steps": 30},
        (_TOOL.format(calls="exactly_one", on_invalid="keep"), _PROMPT.format(layout="capo", anchor="observation")),
    ),
}
"""The recipes by task and release."""


def recipe(task: str, release: str | None = None, /, *, prompts: str | None = None, **env_kwargs: Any) -> RecordedEnv:
    """Return a released recipe, whose parts are arguments of `make_text_env` and `run_episodes`.

    Args:
        task: The task, such as "alfworld".
        release: One of RELEASES; None for the newest that has the task.
        prompts: Your own wording, ``"FILE:NAME"``; see `agent_envs.prompts.texts.read_prompts`.
        **env_kwargs: Further arguments of the environment, such as `data`, which precede the recipe's.

    Raises:
        ConfigError: There is no such recipe.

    >>> recipe("alfworld", data="official").env_kwargs
    {'max_episode_steps': 20, 'data': 'official'}
    """
    choice("task", task, dict.fromkeys(name for name, _ in RECIPES))
    releases = [each for each in RELEASES if (task, each) in RECIPES]
    found = RECIPES[task, releases[0] if release is None else choice(f"the release of {task}", release, releases)]
    wrappers = found.wrappers
    if prompts is not None:
        _, name, arguments = read_spec(wrappers[-1])
        own = {"prompts": prompts, **{key: value for key, value in arguments.items() if key != "template"}}
        wrappers = (*wrappers[:-1], f"{name}({', '.join(f'{key}={value!r}' for key, value in own.items())})")
    return RecordedEnv(found.env_id, {**found.env_kwargs, **env_kwargs}, wrappers)
