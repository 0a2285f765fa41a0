"""Metrics over episodes, however many rows each has: pure functions of ``episode_record``'s records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.adapters.curriculum import short_names
from agent_envs.adapters.estimators import check_episodes
from agent_envs.adapters.trained import call_metrics
from agent_envs.episodes.record import StopReason
from agent_envs.episodes.statistics import score_families

PER_STEP = ("critic/rewards/", "critic/values/", "critic/vf_", "num_turns/", "prompt_length", "response_length")
"""Prefixes of metrics that verl computes over rows, and that are computed over steps and episodes here."""


@dataclass(frozen=True)
class BatchPart:
    """What metrics need of the rows of one update."""

    rows: Sequence[Mapping[str, Any]]
    """The agent loop's records of the rows, padding included."""
    lengths: Sequence[int]
    """Tokens of each row."""
    shaped: Sequence[float]
    """Return of each trained episode after KL and process rewards."""
    trained: int
    """Tokens with a weight in the policy's loss."""
    nodes: int | None
    """Tokens of the trees that the rows without padding make up, if they are trained as trees."""
    lines: Sequence[str]
    """The episodes as they are written."""


def batch_metrics(parts: Sequence[BatchPart], limits: Any) -> dict[str, float]:
    """Return the metrics of a step of one update or several; ``limits`` has ``max_prompt_length`` and so on."""
    rows = [row for part in parts for row in part.rows]
    records = list({row["trajectory"]: row["record"] for row in rows if row["kind"] != "padding"}.values())
    nothing = check_episodes([int(r["num_steps"]) for r in records], [int(r["response_tokens"]) for r in records])
    return {
        **{f"env/{name}": value for name, value in nothing.items()},
        **training_metrics(records),
        **step_metrics(parts, limits),
        **summarise("critic/rewards", [value for part in parts for value in part.shaped]),
        **timing_metrics(rows),
        "env/masked_episodes": float(len({row["trajectory"] for row in rows if row["kind"] == "masked"})),
    }


def summarise(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return mean, standard deviation, maximum and minimum of ``values``; nothing if there are none.

    >>> summarise("x", [1.0, 3.0])
    {'x/mean': 2.0, 'x/std': 1.0, 'x/max': 3.0, 'x/min': 1.0}
    """
    if not len(values):
        return {}
    x = np.asarray(values, dtype=float)
    return {f"{name}/{each}": float(getattr(x, each)()) for each in ("mean", "std", "max", "min")}


def _learned_from(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the records of episodes that did not break: what broke one says nothing about the policy."""
    return [record for record in records if not StopReason(record["stop_reason"]).broken]


def _common(prefix: str, every: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    records = _learned_from(every)
    steps = sum(r["num_steps"] for r in records)
    out: dict[str, float] = {}
    for name in ("return", "score", "num_steps", "calls"):
        out |= summarise(f"{prefix}/{name}", [r[name] for r in records])
    out |= {
        f"{prefix}/tokens/response_per_episode": sum(r["response_tokens"] for r in records) / max(len(records), 1),
        f"{prefix}/episodes": float(len(records)),
        f"{prefix}/invalid_action_rate": sum(r["invalid_actions"] for r in records) / max(steps, 1.0),
    }
    reasons = Counter(r["stop_reason"] for r in every)
    return out | {f"{prefix}/stop/{r.value}": reasons[r.value] / max(len(every), 1) for r in StopReason}


def _of_set(prefix: str, played: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    success, reward, steps = (float(np.mean([r[of] for r in played])) for of in ("success", "return", "num_steps"))
    means = {f"{prefix}/success": success, f"{prefix}/return/mean": reward, f"{prefix}/num_steps/mean": steps}
    return {**means, f"{prefix}/episodes": float(len(played))}


def training_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics of a training batch from one record per episode; broken ones count in `env/stop/*` alone.

    Where a run has several environments or levels there are `env/ENV/success` and `env/level/2/success` and so on too.
    """
    played = _learned_from(records)
    apart: dict[str, float] = {}
    envs = sorted({r["env"] for r in played})
    for env, name in zip(envs, short_names(envs), strict=True) if len(envs) > 1 else ():
        apart |= _of_set(f"env/{name}", [r for r in played if r["env"] == env])
    for level in sorted({r["level"] for r in played if "level" in r}):
        apart |= _of_set(f"env/{level}", [r for r in played if r["level"] == level])
    return {
        "env/success": sum(r["success"] for r in played) / max(len(played), 1),
        **_common("env", records),
        **apart,
        "env/tokens/prompt": (prompts := float(sum(r["prompt_tokens"] for r in records))),
        "env/tokens/cached": (cached := float(sum(r["cached_tokens"] for r in records))),
        "env/prefix_cache_hits": cached / max(prompts, 1.0),
        "env/tokens/response": float(sum(r["response_tokens"] for r in records)),
        **{f"env/agent/{name}": value for name, value in call_metrics(played).items()},
    }


def step_metrics(parts: Sequence[BatchPart], limits: Any) -> dict[str, float]:
    """Return lengths per step, the shares that have the maximum length, and what merging saved; see ``batch_metrics``.

    ``env/merge_factor`` is the number of tokens that one row per step would process over the number that the merged
    rows, or the trees of ranks and mini-batches, process.
    """
    pairs = [pair for part in parts for pair in zip(part.rows, part.lengths, strict=True)]
    trained, nodes = sum(part.trained for part in parts), [part.nodes for part in parts if part.nodes is not None]
    steps = [step for row, _ in pairs if row["kind"] == "step" for step in row["steps"]]
    prompts = [step["prompt_tokens"] for step in steps]
    responses = [step["end"] - step["start"] for step in steps]
    written = {
        **summarise("response_length", responses),
        "response_length/clip_ratio": responses.count(limits.max_response_length) / max(len(steps), 1),
    }
    real = [(row, n) for row, n in pairs if row["kind"] in ("step", "value", "label")]
    together, processed = sum(n for _, n in real), sum(n for _, n in pairs)
    if nodes:
        together, processed = sum(nodes), sum(nodes) + sum(n for row, n in pairs if row["kind"] == "padding")
    # a row with value_at ends with the prompt of the state after the last step and its filler
    apart = sum(prompts) + sum(responses) + sum(n for row, n in real if row["value_at"] >= 0 or row["kind"] == "label")
    kinds = Counter(row["kind"] for row, _ in pairs)
    return {
        **summarise("prompt_length", prompts),
        "prompt_length/clip_ratio": prompts.count(limits.max_prompt_length) / max(len(steps), 1),
        **written,
        # there are no steps without a token, so verl's second set of names has the same values
        **{name.replace("length/", "length_non_aborted/"): value for name, value in written.items()},
        "env/rows": float(len(pairs) - kinds["padding"]),
        "env/trained_steps": float(len(steps)),
        "env/masked_rows": float(kinds["masked"]),
        "env/pad_row_share": kinds["padding"] / max(len(pairs), 1),
        "env/merge_factor": apart / max(together, 1),
        "env/tokens/processed": float(processed),
        "env/tokens/trained": float(trained),
        "env/tokens/trained_share": trained / max(processed, 1),
    }


def endings(rows: Iterable[Mapping[str, Any]]) -> list[tuple[StopReason, str]]:
    """Return why each episode ended, and its error, from the agent loop's records of its rows, padding included."""
    ended: dict[str, tuple[StopReason, str]] = {}
    for row in rows:
        if row["kind"] != "padding":
            _, error = ended.get(row["trajectory"], (None, ""))
            ended[row["trajectory"]] = StopReason(row["record"]["stop_reason"]), error or row["error"]
    return list(ended.values())


def timing_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return seconds of generation and environments per step, and of episodes; means of the rewards' components.

    ``rows`` are the agent loop's records, padding included. A tree of episodes has one time, the trunk's.
    """
    episodes = {row["trajectory"]: row for row in rows if row["kind"] not in ("padding", "baseline")}
    timings = [row["timing"] for row in episodes.values() if row["timing"]]
    steps = [step for row in rows if row["kind"] == "step" for step in row["steps"]]
    # verl's own counts rows
    out = summarise("num_turns", [2 * row["record"]["num_steps"] for row in episodes.values()])
    for name in sorted({name for step in steps for name in step["components"]}):
        out[f"critic/{name}"] = float(np.mean([s["components"][name] for s in steps if name in s["components"]]))
    out |= summarise("env/generate_seconds", [x for timing in timings for x in timing["generate_sequences"]])
    out |= summarise("env/queue_seconds", [timing["queued"] for timing in timings])
    if waits := [x for timing in timings for x in timing["tool_calls"]]:
        out["env/step_seconds/p50"], out["env/step_seconds/p99"] = np.percentile(waits, (50, 99)).tolist()
    if totals := [timing["total"] for timing in timings]:
        out |= summarise("env/episode_seconds", totals)
        out["env/straggler_ratio"] = max(totals) / max(float(np.median(totals)), 1e-9)
    return out


def validation_metrics(records: Sequence[Mapping[str, Any]], expected: int) -> dict[str, float]:
    """Return the metrics of a validation: success with its standard error (binomial), and the episodes' statistics.

    There is `val/ENV/FAMILY/success` if info names families of tasks, and `val/ENV/SPLIT/...` if several sets, each a
    split of an environment, were played. ``records`` has one per episode that came back. The others of ``expected``
    count as failures, those that broke do not count.
    """
    played = _learned_from(records)
    n = max(max(expected, len(records)) - (len(records) - len(played)), 1)
    success = sum(r["success"] for r in played) / n
    out = {
        "val/success": success,
        "val/success_stderr": math.sqrt(success * (1 - success) / n),
        **_common("val", records),
        "val/lost_episodes": float(max(expected - len(records), 0)),
    }
    sets = sorted({(r["env"], r["split"]) for r in played})
    for (env, split), short in zip(sets, short_names(env for env, _ in sets), strict=True) if len(sets) > 1 else ():
        own = [r for r in played if (r["env"], r["split"]) == (env, split)]
        out |= _of_set("/".join(filter(None, ("val", short, split))), own)
    for name, solved in score_families((r["env"], r["split"], r["family"], r["success"]) for r in played).items():
        out |= {f"val/{name}/success": sum(solved) / len(solved), f"val/{name}/episodes": float(len(solved))}
    return out
