"""`agentr1 verify`: whether this installation plays the same tasks to the same scores as others.

    scores.json  {ID: {"panel": Panel.to_dict(), "policies": {NAME: [[success, score, reward, steps, digest], ...]}}}

Each row is an episode, in the order of the panel's tasks; its digest is over everything that was said, done and paid. A
file of scores is data: it names no other environment than the one it is of, and no code.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from agent_envs.checks import choice, shown
from agent_envs.episodes.record import Episode
from agent_envs.errors import AgentEnvsError, ConfigError, DataError, first_line
from agent_envs.files import write_text
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.policies.policy import Policy
from agent_envs.registration import ENV_IDS
from agent_envs.rollout.evaluate import evaluate
from agent_envs.rollout.panel import Panel, digest_of
from agent_envs.wrapping.recorded import recorded_env

__all__ = ["add_arguments", "run"]

_TASKS = 20
_CLOSE = 1e-9
_POLICIES: dict[str, Policy] = {
    "random": RandomPolicy(seed=0),
    "noisy expert": ExpertPolicy(noise=0.3, seed=0),
    "expert": ExpertPolicy(),
}
_EPILOG = """\
The random policy, the expert and an expert with mistakes play 20 generated tasks of each environment, step for step as
they did when the scores that come with the package were made. A line that differs says what:

  tasks   the tasks are others: the package or its data was changed, or the environment is another version
  play    the tasks are the same, but not what happens in them: the code of the environment or of the policies, or a
          package that it uses (Gymnasium, NumPy), does something else here

Where nothing differs, evaluations of the same panel on this machine and elsewhere can be compared.

examples:
  agentr1 verify
  agentr1 verify --env AgentR1/ALFWorld-v0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--env", metavar="ID", help="verify one environment (default: all)")
    add("--scores", metavar="FILE", help="compare with this file (default: the scores that come with the package)")
    add("--write", metavar="FILE", help="compare with nothing, and write the scores of this machine to a file")


def run(arguments: argparse.Namespace) -> str:
    ids = list(ENV_IDS) if arguments.env is None else [choice("--env", arguments.env, ENV_IDS)]
    if arguments.write is not None:
        return _write(Path(arguments.write), ids)
    known = _read(arguments.scores)
    found = {}
    for env_id in ids:
        said, differs = _verify(known.get(env_id), env_id, arguments.scores or "the scores that come with the package")
        found[env_id] = differs
        sys.stdout.write(f"{'differs' if differs else 'same':7}  {env_id:<{max(map(len, ids))}}  {said}\n")
        sys.stdout.flush()
    if different := [env_id for env_id, differs in found.items() if differs]:
        raise DataError(
            f"{len(different)} of {len(ids)} environments are not what they were when the scores were made, so their "
            "scores here cannot be compared with those of others; agentr1 verify --help says what that can mean"
        )
    return "this installation plays the same tasks to the same scores"


def _verify(entry: Any, env_id: str, source: str) -> tuple[str, bool]:
    """Return what to say about an environment, and whether it differs."""
    if entry is None:
        return "there are no scores of it in the file", True
    panel, known = _expected(entry, env_id, f"{source}, {env_id}")
    wrong, means = [], []
    for name, policy in _POLICIES.items():
        try:
            rows = _play(policy, panel)[1]
        except ConfigError as e:
            return f"tasks: {first_line(e)}", True
        except AgentEnvsError as e:
            return f"cannot be played: {first_line(e)}", True
        changed = {
            index: (then, now)
            for index, then, now in zip(panel.tasks, known[name], rows, strict=True)
            if then[4] != now[4] or any(abs(a - b) > _CLOSE for a, b in zip(then[:4], now[:4], strict=True))
        }
        for index, (then, now) in list(changed.items())[:1]:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            score = f"score {then[1]:.3g} then, {now[1]:.3g} now" if then[1] != now[1] else "same score, other steps"
            wrong.append(f"{name} on task {index}{more} ({score})")
        means.append(f"{name} {sum(row[0] for row in rows) / len(rows):.2f}")
    if wrong:
        return f"play: {'; '.join(wrong)}", True
    return f"panel {panel.name}, {len(panel.tasks)} tasks; success of {', '.join(means)}", False


def _play(policy: Policy, panel: Panel) -> tuple[Panel, list[list[Any]]]:
    """Return the panel as it is here, and the row of each episode."""
    result = evaluate(
        panel.env, policy, panel=panel, env_kwargs=panel.env_kwargs, wrappers=panel.wrappers, concurrency=1
    )
    return result.panel, [_row(episode) for episode in result.episodes]


def _row(episode: Episode) -> list[Any]:
    steps = [(s.observation, s.action, s.reward, s.terminated, s.truncated) for s in episode.steps]
    played = digest_of([steps, episode.final_observation, episode.stop_reason, episode.error is None])
    return [float(episode.success), episode.score, episode.reward, len(steps), played[:12]]


def _expected(entry: Any, env_id: str, where: str) -> tuple[Panel, dict[str, list[list[Any]]]]:
    """Return the panel of an environment in a file of scores and the rows of each policy.

    Raises:
        DataError: Something is missing or has another type, or the panel is another environment's.
        ConfigError: The panel names a program, an address or code.
    """
    if not isinstance(entry.get("panel"), dict):
        raise DataError(f"{where}: panel must be an object, got {shown(entry.get('panel'))}")
    panel = Panel.from_dict(entry["panel"], where)
    if panel.env != env_id:
        raise DataError(f"{where}: the panel is of another environment, {shown(panel.env)}")
    recorded_env(panel.to_dict(), where)
    for name, rows in entry["policies"].items():
        if not (isinstance(rows, list) and len(rows) == len(panel.tasks) and all(map(_is_row, rows))):
            raise DataError(
                f"{where}: {name} must have a row [success, score, reward, steps, digest] for each of the "
                f"{len(panel.tasks)} tasks"
            )
    return panel, entry["policies"]


def _is_row(row: Any) -> bool:
    if not (isinstance(row, list) and len(row) == 5 and isinstance(row[4], str)):
        return False
    return all(isinstance(value, (int, float)) and math.isfinite(value) for value in row[:4])


def _read(path: str | None) -> dict[str, Any]:
    source = resources.files(__package__).joinpath("scores.json") if path is None else Path(path)
    try:
        scores = json.loads(source.read_text(encoding="utf-8"))
        named = [set(entry["policies"].keys()) for entry in scores.values()]
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError) as e:
        raise DataError(f"{source}: not the scores of agentr1 verify: {first_line(e)}") from e
    for names in named:
        if names != set(_POLICIES):
            raise DataError(f"{source}: expected the policies {', '.join(_POLICIES)}, got {shown(sorted(names))}")
    return scores


def _write(file: Path, ids: list[str]) -> str:
    entries = {}
    for env_id in ids:
        drawn = evaluate(env_id, RandomPolicy(), _TASKS, env_kwargs={"split": "test"}).panel
        rows = {name: _play(policy, drawn)[1] for name, policy in _POLICIES.items()}
        entries[env_id] = {"panel": drawn.to_dict(), "policies": rows}
    text = json.dumps(entries, indent=1)
    write_text(file, re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", text) + "\n")
    return f"{file}: scores of {len(ids)} environments"
