"""Check on this machine, in seconds, what README says can be relied on: each claim, what was run, whether it holds.

A claim that needs an extra which is not installed is not run, and the line says how to install it. The exit status is 1
if a claim does not hold, else 0.

examples:
  agentr1 verify --claims
  agentr1 verify --claims --json | jq '.[] | select(.ok != true)'
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.cli.options import option
from agent_envs.episodes.rescore import replay
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, MissingExtraError, first_line, needs_extra
from agent_envs.files import table
from agent_envs.policies import ExpertPolicy
from agent_envs.registration import ENV_IDS, PICTURE_IDS, make_env
from agent_envs.rollout.many import run_episodes
from agent_envs.rollout.panel import digest_of
from agent_envs.testing import HOSTILE_ACTIONS
from agent_envs.text import count_of

_IDS = (*ENV_IDS, *PICTURE_IDS)
_TASKS = 3  # of each environment
_GAMES = 4  # of ALFWorld
_NEAR = 1e-4  # log-probabilities of one token, computed in another order of the same sums


@dataclass(kw_only=True)
class Options:
    claims: bool = option(False, "check README's claims")
    json: bool = option(False, "print a JSON array instead of the table")


def run(options: Options) -> tuple[str, int]:
    if not options.claims:
        raise ConfigError("say what to verify: --claims checks what README says can be relied on")
    rows: list[dict[str, Any]] = []
    for claim, check in _CLAIMS.items():
        began = time.perf_counter()
        try:
            ran, ok = check()
        except AgentEnvsError as e:
            ran, ok = first_line(e), None if isinstance(e, MissingExtraError) else False
        rows.append({"claim": claim, "ok": ok, "ran": ran, "seconds": round(time.perf_counter() - began, 1)})
    status = int(any(row["ok"] is False for row in rows))
    if options.json:
        return json.dumps(rows, indent=1), status
    words = {True: "ok", False: "WRONG", None: "not run"}
    lines = [f"{words[row['ok']]:8} {row['claim']}\n{'':9}{row['ran']}, {row['seconds']} s" for row in rows]
    return "\n".join(lines), status


def played_digest(env_id: str) -> str:
    """Return the digest of all that some episodes of an environment say and pay: an expert that errs now and then."""
    options = [{"index": index} for index in range(_TASKS)]
    episodes = run_episodes(
        env_id, ExpertPolicy(noise=0.3, seed=0), _TASKS, options=options, concurrency=1, progress=False
    )
    steps = [[(s.observation, s.action, s.reward, s.terminated, s.truncated) for s in e.steps] for e in episodes]
    return digest_of([steps, [episode.final_observation for episode in episodes]])[:16]


def _same_bytes() -> tuple[str, bool]:
    recorded = table("agent_envs.cli", "claims.json")
    other, unplayed = [], []
    for env_id in _IDS:
        try:
            other += [env_id] * (played_digest(env_id) != recorded[env_id])
        except BackendError:  # there is no sandbox on this machine
            unplayed.append(env_id)
    ran = f"{_TASKS} episodes of {len(_IDS) - len(unplayed)} environments, against digests of the release"
    ran += f"; {', '.join(unplayed)} cannot be played here (agentr1 doctor says why)" if unplayed else ""
    return ran + (f"; other bytes in {', '.join(other)}" if other else ""), not other


def _no_crash() -> tuple[str, bool]:
    for env_id in _IDS:
        with contextlib.closing(make_env(env_id)) as env:
            for action in HOSTILE_ACTIONS:
                env.reset(seed=0)
                try:
                    observation, reward = env.step(action)[:2]
                except Exception as e:  # noqa: BLE001  the claim is that there is none
                    return f"{env_id} raises {type(e).__name__} at the action {action[:40]!r}", False
                if not (math.isfinite(reward) and env.observation_space.contains(observation)):
                    return f"{env_id} returns what is no observation or reward at {action[:40]!r}", False
    return f"{len(HOSTILE_ACTIONS)} hostile texts in each of {len(_IDS)} environments", True


def _as_the_original() -> tuple[str, bool]:
    house, options = "AgentR1/ALFWorld-v0", [{"index": index} for index in range(_GAMES)]
    episodes = run_episodes(house, ExpertPolicy(noise=0.3, seed=0), _GAMES, options=options, progress=False)
    with contextlib.closing(make_env(house, engine="textworld")) as original:
        replays = [replay(original, episode) for episode in episodes]
    ran = f"{_GAMES} games, {sum(len(episode.steps) for episode in episodes)} commands, in both engines"
    differing = sum(each.differing + each.left for each in replays)
    paid = [each.episode.reward for each in replays] == [episode.reward for episode in episodes]
    return ran + (f"; {count_of(differing, 'answer')} differ" if differing else ""), paid and not differing


def _trained_as_sampled() -> tuple[str, bool]:
    with needs_extra("hf"):
        import torch
        from transformers.utils.logging import disable_progress_bar

    from agent_envs.adapters.batches import build_batch
    from agent_envs.adapters.tiny.model import base_folder, load_base
    from agent_envs.policies import TransformersPolicy

    disable_progress_bar()
    policy = TransformersPolicy(str(base_folder()), max_tokens=64, device="cpu", seed=0)
    episodes = run_episodes("AgentR1/GSM8KTool-v0", policy, 8, env_kwargs={"level": 1}, progress=False)
    policy.close()
    batch, model = build_batch(episodes), load_base()[0]
    sampled = [step.response_ids for episode in episodes for step in episode.steps if step.response_ids]
    rows = zip(batch.start, batch.length, sampled, strict=True)
    same = all(batch.input_ids[start : start + length].tolist() == list(ids) for start, length, ids in rows)
    apart = 0.0
    for begin, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        ids, own = torch.from_numpy(batch.input_ids[begin:end]), batch.step_ids[begin + 1 : end] >= 0
        with torch.inference_mode():
            logits = model(ids[None]).logits[0, :-1].log_softmax(-1)
        computed = logits.gather(1, ids[1:, None])[:, 0].numpy()
        apart = max(apart, float(np.abs(computed - batch.logprobs[begin + 1 : end])[own].max()))
    ran = f"{sum(map(len, sampled))} tokens of a small model in {len(batch.offsets) - 1} rows of a training batch"
    return f"{ran}, their log-probabilities {apart:.0e} apart", same and apart < _NEAR


_CLAIMS: dict[str, Callable[[], tuple[str, bool | None]]] = {
    "The same seed gives the same bytes.": _same_bytes,
    "No action crashes an environment.": _no_crash,
    "ALFWorld answers as the original does.": _as_the_original,
    "The tokens trained are those sampled.": _trained_as_sampled,
}
