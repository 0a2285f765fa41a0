"""Play the panels of scores.json again, by three policies, step for step; `--write` makes the file anew.

    scores.json  {ID: {"panel": Panel.to_dict(), "policies": {NAME: [[success, score, reward, steps, digest], ...]}}}

Each row is an episode, in the order of the panel's tasks; its digest is over everything that was said, done and paid.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from agent_envs.errors import AgentEnvsError, ConfigError, first_line
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.registration import ENV_IDS
from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.panel import Panel, digest_of

FILE = Path(__file__).with_name("scores.json")
POLICIES = {"random": RandomPolicy(seed=0), "noisy expert": ExpertPolicy(noise=0.3, seed=0), "expert": ExpertPolicy()}


def play_panel(policy, panel):
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


def compare_scores(env_id):
    """Return whether an environment plays as it did when its scores were made, and what to say of it."""
    entry = json.loads(FILE.read_text(encoding="utf-8"))[env_id]
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


def write():
    """Write the scores of what is played now, after a change of tasks or play that is meant."""
    entries = {}
    for env_id in ENV_IDS:
        panel = evaluate(env_id, RandomPolicy(), 20, env_kwargs={"split": "test"}).panel
        entries[env_id] = {
            "panel": panel.to_dict(),
            "policies": {name: play_panel(policy, panel) for name, policy in POLICIES.items()},
        }
    text = json.dumps(entries, indent=1)
    text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", text)
    FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    results = {env_id: compare_scores(env_id) for env_id in ENV_IDS}
    for env_id, (same, said) in results.items():
        sys.stdout.write(f"{'ok     ' if same else 'differs'} {env_id} {said}\n")
    sys.exit(not all(same for same, _ in results.values()))
