"""Episodes as a pandas table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agent_envs.episodes.record import Episode
from agent_envs.errors import needs_extra
from agent_envs.messages import observation_text

if TYPE_CHECKING:
    import pandas


def episodes_to_frame(episodes: Iterable[Episode], *, steps: bool = False) -> pandas.DataFrame:
    """Return a table with a row for each episode or, with ``steps``, for each step.

    Returns:
        Columns ``env_id``, ``episode_id``, ``group_id``, ``task_id``, ``index`` and ``seed``. Rows of episodes also
        have ``steps``, ``return``, ``score``, ``success``, ``stop_reason``, ``invalid_actions``, ``prompt_tokens`` and
        ``response_tokens`` (0 if tokens were not recorded); rows of steps have ``step``, ``observation``, ``action``,
        ``reward``, ``invalid_action`` and each component of the reward as ``reward/NAME`` (0 if a step lacks it).

    Raises:
        MissingExtraError: pandas is not installed.
    """
    with needs_extra("data"):
        import pandas as pd
    rows: list[dict[str, Any]] = []
    for episode in episodes:
        identity = {
            "env_id": episode.env_id,
            "episode_id": episode.episode_id,
            "group_id": episode.group_id,
            "task_id": episode.reset_info.get("task_id", ""),
            "index": episode.index,
            "seed": episode.seed,
        }
        if steps:
            for number, step in enumerate(episode.steps):
                parts = {f"reward/{name}": value for name, value in step.info.get("reward_components", {}).items()}
                own = {
                    "step": number,
                    "observation": observation_text(step.observation),
                    "action": step.action,
                    "reward": step.reward,
                }
                rows.append({**identity, **own, "invalid_action": step.info.get("invalid_action", False), **parts})
            continue
        rows.append(
            {
                **identity,
                "steps": len(episode.steps),
                "return": episode.reward,
                "score": episode.score,
                "success": episode.success,
                "stop_reason": episode.stop_reason.value,
                "invalid_actions": sum(bool(step.info.get("invalid_action", False)) for step in episode.steps),
                "prompt_tokens": sum(len(step.prompt_ids or ()) for step in episode.steps),
                "response_tokens": sum(len(step.response_ids or ()) for step in episode.steps),
            }
        )
    frame = pd.DataFrame(rows)
    components = [name for name in frame.columns if str(name).startswith("reward/")]
    frame[components] = frame[components].fillna(0.0)
    return frame
