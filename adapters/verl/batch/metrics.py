"""Metrics over episodes, however many rows each has: pure functions of ``episode_record``'s records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    shaped = [value for part in parts for value in part.shaped]
    nodes = [part.nodes for part in parts if part.nodes is not None]
    records = list({row["trajectory"]: row["reward_extra_info"] for row in rows if row["kind"] != "padding"}.values())
    nothing = check_episodes([int(r["num_steps"]) for r in records], [int(r["response_tokens"]) for r in records])
    return {
        **{f"env/{name}": value for name, value in nothing.items()},
        **training_metrics(records),
        **step_metrics(
            rows,
            [length for part in parts for length in part.lengths],
            sum(part.trained for part in parts),
            most_prompt=int(limits.max_prompt_length),
            most_response=int(limits.max_response_length),
            nodes=sum(nodes) if nodes else None,
        ),
        **summarise("critic/rewards", shaped),
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
        f"{prefix}/episodes": float(len(every)),
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

    Where a run has several environments there are `env/ENV/success` and so on too.
    """
    played = _learned_from(records)
    made = call_metrics(played)
    apart: dict[str, float] = {}
    for env in sorted(envs) if len(envs := {r["env"] for r in played}) > 1 else ():
        apart |= _of_set(f"env/{env.rpartition('/')[2]}", [r for r in played if r["env"] == env])
    return {
        "env/success": sum(r["success"] for r in played) / max(len(played), 1),
        **_common("env", records),
        **apart,
        "env/tokens/prompt": (prompts := float(sum(r["prompt_tokens"] for r in records))),
        "env/tokens/cached": (cached := float(sum(r["cached_tokens"] for r in records))),
        "env/prefix_cache_hits": cached / max(prompts, 1.0),
        "env/tokens/response": float(sum(r["response_tokens"] for r in records)),
        **{f"agent/{name}": value for name, value in made.items()},
    }


def step_metrics(
    rows: Sequence[Mapping[str, Any]],
    lengths: Sequence[int],
    trained: int,
    *,
    most_prompt: int,
    most_response: int,
    nodes: int | None = None,
) -> dict[str, float]:
    """Return lengths per step, the shares that have the maximum length, and what merging saved; see ``BatchPart``.

    ``env/merge_factor`` is the number of tokens that one row per step would process over the number that the merged
    rows, or the trees of ranks and mini-batches, process.
    """
    steps = [step for row in rows if row["kind"] == "step" for step in row["steps"]]
    prompts = [step["prompt_tokens"] for step in steps]
    responses = [step["end"] - step["start"] for step in steps]
    written = {
        **summarise("response_length", responses),
        "response_length/clip_ratio": responses.count(most_response) / max(len(steps), 1),
    }
    pairs = list(zip(rows, lengths, strict=True))
    real = [(row, n) for row, n in pairs if row["kind"] in ("step", "value", "label")]
    together, processed = sum(n for _, n in real), sum(lengths)
    if nodes is not None:
        together, processed = nodes, nodes + sum(n for row, n in pairs if row["kind"] == "padding")
    # a row with value_at ends with the prompt of the state after the last step and its filler
    apart = sum(prompts) + sum(responses) + sum(n for row, n in real if row["value_at"] >= 0 or row["kind"] == "label")
    kinds = Counter(row["kind"] for row in rows)
    return {
        **summarise("prompt_length", prompts),
        "prompt_length/clip_ratio": prompts.count(most_prompt) / max(len(steps), 1),
        **written,
        # there are no steps without a token, so verl's second set of names has the same values
        **{name.replace("length/", "length_non_aborted/"): value for name, value in written.items()},
        "env/rows": float(len(rows) - kinds["padding"]),
        "env/trained_steps": float(len(steps)),
        "env/masked_rows": float(kinds["masked"]),
        "env/pad_row_share": kinds["padding"] / max(len(rows), 1),
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
            ended[row["trajectory"]] = StopReason(row["reward_extra_info"]["stop_reason"]), error or row["error"]
    return list(ended.values())


def timing_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return tokens and seconds of steps and episodes, and the means of the rewards' components over steps.

    ``rows`` are the agent loop's records, padding included. Names are those of Agent-R1's logs.
    """
    episodes = {row["trajectory"]: row for row in rows if row["kind"] not in ("padding", "baseline")}
    records = [row["reward_extra_info"] for row in episodes.values()]
    timings = [row["timing"] for row in episodes.values()]
    steps = [step for row in rows if row["kind"] == "step" for step in row["steps"]]
    written, prompts = sum(s["end"] - s["start"] for s in steps), sum(s["prompt_tokens"] for s in steps)
    out = {
        **summarise("num_turns", [2 * r["num_steps"] for r in records]),  # verl's own counts rows
        **summarise("prompt_length/trajectory", [r["prompt_tokens"] for r in records]),
        **summarise("response_length/trajectory", [r["response_tokens"] for r in records]),
        "action/ratio": written / max(prompts + written, 1),
    }
    for name in sorted({name for step in steps for name in step["components"]}):
        out[f"critic/{name}"] = float(np.mean([s["components"][name] for s in steps if name in s["components"]]))
    parts, totals = ("generate_sequences", "tool_calls"), [timing["total"] for timing in timings]
    for part in parts:
        out |= summarise(f"agent_flow/step/{part}", [x for timing in timings for x in timing[part]])
        out |= summarise(f"agent_flow/trajectory/{part}", [sum(timing[part]) for timing in timings])
    both = [a + b for t in timings for a, b in zip(t["generate_sequences"], t["tool_calls"], strict=False)]
    out |= summarise("agent_flow/step/total", both) | summarise("agent_flow/trajectory/total", totals)
    out |= summarise("env/queue_seconds", [timing["queued"] for timing in timings])
    if waits := [x for timing in timings for x in timing["tool_calls"]]:
        out["env/step_seconds/p50"], out["env/step_seconds/p99"] = np.percentile(waits, (50, 99)).tolist()
    if timings:
        out["env/straggler_ratio"] = max(totals) / max(float(np.median(totals)), 1e-9)
        slowest, record = max(zip(timings, records, strict=True), key=lambda pair: pair[0]["total"])
        out |= {f"agent_flow/slowest/{part}": float(sum(slowest[part])) for part in parts}
        out["agent_flow/slowest/total"] = slowest["total"]
        out["agent_flow/slowest/num_steps"] = record["num_steps"]
        out["agent_flow/slowest/response_length"] = record["response_tokens"]
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
    sets = {(r["env"], r["split"]) for r in played}
    for env, split in sorted(sets) if len(sets) > 1 else ():
        own = [r for r in played if (r["env"], r["split"]) == (env, split)]
        name = "/".join(filter(None, ("val", env.rpartition("/")[2], split)))
        out |= _of_set(name, own)
    for score in score_families((r["env"], r["split"], r["family"], r["success"]) for r in played):
        out[f"val/{score.metric}/success"] = score.success
        out[f"val/{score.metric}/episodes"] = float(score.episodes)
    return out
