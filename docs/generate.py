"""Write docs/environments.md out of the environments' class docstrings: `python docs/generate.py`."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import gymnasium as gym

import agent_envs
from agent_envs.text_env import TextEnv

PAGE = Path(__file__).with_name("environments.md")

HEADER = """# Environments

<!-- Made by docs/generate.py out of the class docstrings: edit those. -->

Every environment keeps one contract, which `agent_envs.testing.check_text_env` tests:

- Observations and actions are text (`UnicodeText`). An action is the policy's text, verbatim. An observation is the
  environment's own new words; how to act is `env.unwrapped.instructions`, the tools are `env.unwrapped.tools`.
- `reset(seed=s)` draws a task, `reset(options={"index": i})` plays row *i* of the split, `env.unwrapped.num_tasks`
  counts them. The same seed and actions give the same observations and rewards, in another process too. Splits never
  share a task.
- A bad action is an observation that says what was expected, and `info["invalid_action"]`: never an exception, never a
  silent end. `terminated` is the task's end, `truncated` a limit's.
- `info` always has `task_id`, `split`, `index`, `source`, `invalid_action`, `score`, `success`, `reward_components` and
  `anchor` (the state's text without history).
- `expert_action()` is the next action of a solver that wins, or None. `snapshot()` and `restore(s)` branch an episode.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [HEADER]
    for env_id in agent_envs.ENV_IDS:
        spec = gym.spec(env_id)
        module, _, name = str(spec.entry_point).partition(":")
        cls = getattr(importlib.import_module(module), name)
        assert issubclass(cls, TextEnv)
        doc = inspect.cleandoc(cls.__doc__ or "").replace("``", "`")
        doc = re.sub(r"^(#+) ", r"##\1 ", doc, flags=re.MULTILINE)
        parts.append(f"## {env_id}\n\n`gym.make({env_id!r})`, at most {spec.max_episode_steps} steps.\n\n{doc}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
