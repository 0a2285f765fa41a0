"""The released recipes as data: the environment, its arguments and its wrappers, for each task and release.

Sources: https://github.com/AgentR1/CAPO (August 2026), AgentR1/StepPO (May 2026) and Agent-R1 (July 2026). Formats,
rules and numbers are theirs, the wording of the prompts is this project's; `prompts` puts your own in its place.
"""

from __future__ import annotations

from typing import Any

from agent_envs.checks import choice
from agent_envs.wrapping.recorded import RecordedEnv
from agent_envs.wrapping.specs import read_spec

RELEASES = ("capo", "steppo", "agent-r1")
"""The releases, the newest first."""

_OLDER = ("steppo", "agent-r1")
_SHOP = {"site": "agentr1", "reward": "agentr1", "max_episode_steps": 15}
_SMALL = {**_SHOP, "site": "agentr1-small"}
_LAB = {"reward": "agentr1", "max_episode_steps": 30}
_QUIZ = {"rules": "released", "parser": "hermes_python", "force_first_search": True, "max_calls": 4, "top_k": 5}
_QUIZ |= {"passage_chars": 1 << 16, "max_episode_steps": 5}
_PAPERS = {"rules": "released", "reward": "agentr1", "max_calls": 5, "top_k": 10, "max_episode_steps": 5}
_CHECKED = {"tool": "check_answer", "reward": "agentr1", "rules": "released", "parser": "hermes_json"}
_FIRST = "AsTool(parser='hermes_json', calls='first', on_invalid='wrap')"
_BOUGHT = "AsTool(parser='hermes_json', calls='exactly_one', on_invalid='wrap', invalid_reward=-0.1)"
_KEPT = "AsTool(parser='hermes_json', calls='exactly_one', on_invalid='keep')"
_NEW, _OLD = (f"RebuildPrompt(template={layout!r}, anchor='observation')" for layout in ("capo", "agent-r1"))
_WHOLE = "RebuildPrompt(template='capo', anchor='prompt')"

_TABLE: tuple[tuple[str, tuple[str, ...], str, dict[str, Any], tuple[str, ...]], ...] = (
    ("alfworld", ("capo",), "ALFWorld", {"max_episode_steps": 20}, (_FIRST, _NEW)),
    ("alfworld", _OLDER, "ALFWorld", {"max_episode_steps": 20}, (_FIRST, _OLD)),
    ("webshop", ("capo",), "WebShop", _SHOP, (_BOUGHT, _NEW)),
    ("webshop", _OLDER, "WebShop", _SHOP, (_BOUGHT, _OLD)),
    ("webshop-small", ("capo",), "WebShop", _SMALL, (_BOUGHT, _NEW)),
    ("webshop-small", _OLDER, "WebShop", _SMALL, (_BOUGHT, _OLD)),
    ("scienceworld", ("capo",), "ScienceWorld", _LAB, (_KEPT, _NEW)),
    ("hotpotqa", RELEASES, "HotpotQA", _QUIZ, (_WHOLE,)),
    ("papersearch", ("capo", "agent-r1"), "PaperSearch", {**_PAPERS, "parser": "hermes_python"}, (_WHOLE,)),
    ("papersearch", ("steppo",), "PaperSearch", {**_PAPERS, "parser": "hermes_json"}, (_WHOLE,)),
    ("gsm8k", ("agent-r1",), "GSM8K", {"reward": "agentr1"}, ("RebuildPrompt(template='agent-r1')",)),
    (
        *("gsm8k-tool", ("agent-r1",), "GSM8KTool"),
        {**_CHECKED, "max_parallel_calls": 100, "max_episode_steps": 5},
        ("RebuildPrompt(template='agent-r1', only_first=True)",),
    ),
)

RECIPES: dict[tuple[str, str], RecordedEnv] = {
    (task, release): RecordedEnv(f"AgentR1/{name}-v0", env_kwargs, wrappers)
    for task, releases, name, env_kwargs, wrappers in _TABLE
    for release in releases
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
    chosen = RECIPES[task, releases[0] if release is None else choice(f"the release of {task}", release, releases)]
    wrappers = chosen.wrappers
    if prompts is not None:
        _, name, arguments = read_spec(wrappers[-1])
        own = {"prompts": prompts, **{key: value for key, value in arguments.items() if key != "template"}}
        wrappers = (*wrappers[:-1], f"{name}({', '.join(f'{key}={value!r}' for key, value in own.items())})")
    return RecordedEnv(chosen.env_id, {**chosen.env_kwargs, **env_kwargs}, wrappers)
