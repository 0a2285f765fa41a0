"""Whether this installation plays the same tasks to the same scores as others: `agentr1 doctor --play`.

    scores.json  {ID: {"panel": Panel.to_dict(), "policies": {NAME: [[success, score, reward, steps, digest], ...]}}}

Each row is an episode, in the order of the panel's tasks; its digest is over everything that was said, done and paid.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from agent_envs.checks import choice
from agent_envs.errors import AgentEnvsError, ConfigError, first_line
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.policies.policy import Policy
from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.panel import Panel, digest_of

__all__ = ["POLICIES", "committed_scores", "compare_scores", "play_panel"]

POLICIES: dict[str, Policy] = {
    "random": RandomPolicy(seed=0),
    "noisy expert": ExpertPolicy(noise=0.3, seed=0),
    "expert": ExpertPolicy(),
}
"""Who plays."""


def committed_scores() -> dict[str, Any]:
    """Return the scores that come with the package."""
    scores: dict[str, Any] = json.loads(resources.files(__package__).joinpath("scores.json").read_text("utf-8"))
    return scores


def play_panel(policy: Policy, panel: Panel) -> list[list[Any]]:
    """Play a panel's tasks and return the row of each episode."""
    result = evaluate(
        panel.env, policy, panel=panel, env_kwargs=panel.env_kwargs, wrappers=panel.wrappers, concurrency=1
    )
    rows = []
    for episode in result.episodes:
        steps = [(s.observation, s.action, s.reward, s.terminated, s.truncated) for s in episode.steps]
        digest = digest_of([steps, episode.final_observation, episode.stop_reason, episode.error is None])
        rows.append([float(episode.success), episode.score, episode.reward, len(steps), digest[:12]])
    return rows


def compare_scores(env_id: str) -> tuple[bool, str]:
    """Return whether an environment plays as it did when its scores were made, and what to say of it.

    Raises:
        ConfigError: There are no scores of it.
    """
    scores = committed_scores()
    entry = scores[choice("environment", env_id, scores)]
    panel = Panel.from_dict(entry["panel"], f"the scores of {env_id}")
    wrong, means = [], []
    for name, policy in POLICIES.items():
        try:
            rows = play_panel(policy, panel)
        except ConfigError as e:
            return False, f"tasks: {first_line(e)}"
        except AgentEnvsError as e:
            return False, f"cannot be played: {first_line(e)}"
        changed = [
            (index, then, now)
            for index, then, now in zip(panel.tasks, entry["policies"][name], rows, strict=True)
            if then[4] != now[4] or any(abs(a - b) > 1e-9 for a, b in zip(then[:4], now[:4], strict=True))
        ]
        for index, then, now in changed[:1]:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            score = f"score {then[1]:.3g} then, {now[1]:.3g} now" if then[1] != now[1] else "same score, other steps"
            wrong.append(f"{name} on task {index}{more} ({score})")
        means.append(f"{name} {sum(row[0] for row in rows) / len(rows):.2f}")
    if wrong:
        return False, f"play: {'; '.join(wrong)}"
    return True, f"panel {panel.name}, {len(panel.tasks)} tasks; success of {', '.join(means)}"
