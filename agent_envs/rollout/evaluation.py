"""The result of an evaluation: scores of episodes, and their summary with intervals as a table and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_envs.episodes.record import Episode, StopReason
from agent_envs.episodes.statistics import Interval, clustered_share, estimate, grouped, pass_at_k, pass_hat_k
from agent_envs.errors import ConfigError, what_failed
from agent_envs.rollout.panel import Panel
from agent_envs.text import count_of, plain


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in any currency."""

    prompt: float = 0.0
    completion: float = 0.0
    cached: float | None = None
    """For prompt tokens that the server had cached; None for the price of the others."""

    def __post_init__(self) -> None:
        prices = [price for price in (self.prompt, self.completion, self.cached) if price is not None]
        if not all(math.isfinite(price) and price >= 0 for price in prices):
            raise ConfigError(f"prices must be numbers of at least 0, got {prices}")

    def cost(self, prompt: int, completion: int, cached: int) -> float:
        """Return the cost of tokens; `cached` counts those of the prompt that were cached.

        >>> Prices(2.0, 10.0, 0.5).cost(1_000_000, 100_000, 400_000)
        2.4
        """
        cheap = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * cheap + completion * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class EpisodeScore:
    """What an evaluation keeps of an episode."""

    episode_id: str
    """`INDEX/SAMPLE`."""
    index: int
    family: str
    """The task's family, "" if the environment names none."""
    pair: str
    """The pair of tasks that it is one of, "" if the environment names none."""
    success: bool
    reward: float
    """The sum of its rewards."""
    score: float
    """The task's own measure."""
    steps: int
    invalid_actions: int
    stop_reason: StopReason
    tokens: tuple[int, int, int]
    """Prompt, response and cached prompt tokens of all requests."""
    seconds: float
    error: str
    """The last line of its error, or the time limit that it exceeded, "" without one."""


def score_episode(episode: Episode, seconds: float = 0.0) -> EpisodeScore:
    """Return the score of an episode. Tokens are those that its policy reported, else the number of recorded ones."""
    tokens = [0, 0, 0]
    for step in episode.steps:
        usage = step.usage or {}
        tokens[0] += usage.get("prompt_tokens", len(step.prompt_ids or ()))
        tokens[1] += usage.get("completion_tokens", len(step.response_ids or ()))
        tokens[2] += usage.get("cached_tokens", 0)
    timed_out = episode.stop_reason.broken and episode.stop_reason is not StopReason.ERROR
    error = episode.stop_reason.value if timed_out else episode.error or ""
    return EpisodeScore(
        episode_id=episode.episode_id,
        index=-1 if episode.index is None else episode.index,
        family=str(episode.reset_info.get("task_family", "")),
        pair=str(episode.reset_info.get("task_pair", "")),
        success=episode.success,
        reward=episode.reward,
        score=episode.score,
        steps=len(episode.steps),
        invalid_actions=sum(bool(step.info.get("invalid_action", False)) for step in episode.steps),
        stop_reason=episode.stop_reason,
        tokens=(tokens[0], tokens[1], tokens[2]),
        seconds=seconds,
        error=_printable(what_failed(error))[:500],
    )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of `evaluate`.

    Broken episodes, which an error or a time limit ended, say nothing about the policy: they are counted and shown, but
    left out of success, reward and pass@k. Episodes that ran out of tokens or steps are included.
    """

    settings: Mapping[str, Any]
    """What was evaluated."""
    asked: int
    """Number of episodes requested."""
    panel: Panel
    """The tasks."""
    scores: Sequence[EpisodeScore] = field(repr=False)
    """The episodes that were played, by index and sample."""
    samples: int = 1
    """Episodes per task."""
    prices: Prices | None = None
    wall_seconds: float = 0.0
    """How long this call took, without earlier calls."""
    episodes: Sequence[Episode] = field(default=(), repr=False)
    """The episodes, if there is no folder."""
    folder: Path | None = None

    @property
    def counted(self) -> list[EpisodeScore]:
        """The episodes that did not break."""
        return [score for score in self.scores if not score.stop_reason.broken]

    @property
    def errors(self) -> int:
        """Number of broken episodes."""
        return len(self.scores) - len(self.counted)

    @property
    def success(self) -> Interval:
        """Share of solved episodes, with Wilson's interval (of the effective number, with several samples a task)."""
        return clustered_share(_by_task(self.counted, "success"))

    @property
    def reward(self) -> Interval:
        """Mean return, with the cluster-robust interval over the tasks; a share's if every return is 0 or 1."""
        return estimate(_by_task(self.counted, "reward"))

    @property
    def score(self) -> Interval:
        """Mean of the tasks' own measure, with the interval of `reward`."""
        return estimate(_by_task(self.counted, "score"))

    @property
    def pairs(self) -> list[list[float]]:
        """For each pair of tasks that was played, and each sample of both, 1 if both are solved, else 0."""
        pairs: dict[str, dict[int, list[bool]]] = {}
        for score in self.counted:
            pairs.setdefault(score.pair, {}).setdefault(score.index, []).append(score.success)
        twins = [of.values() for name, of in pairs.items() if name and len(of) == 2]
        return [[float(all(both)) for both in zip(*of, strict=False)] for of in twins]

    def pass_at(self, k: int) -> Interval:
        """Return the mean of pass@k over the tasks with at least k samples, with the interval of `success`."""
        return self._passed(pass_at_k, k)

    def pass_hat(self, k: int) -> Interval:
        """Return the mean of pass^k, that all of k samples are solved, as `pass_at` returns that one is."""
        return self._passed(pass_hat_k, k)

    def _passed(self, estimate_of: Callable[[int, int, int], float], k: int) -> Interval:
        tasks = [group for group in _by_task(self.counted, "success") if len(group) >= k]
        return clustered_share([[estimate_of(len(group), int(sum(group)), k)] for group in tasks], sum(map(len, tasks)))

    @property
    def cost(self) -> float | None:
        """What the tokens cost; None without prices."""
        return None if self.prices is None else self.prices.cost(*self._tokens())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as types that JSON has; unknown values are None."""
        counted, scores = self.counted, self.scores
        prompt, completion, cached = self._tokens()
        steps = sum(score.steps for score in scores)
        stops = Counter(score.stop_reason.value for score in scores)
        powers = [2**i for i in range(self.samples.bit_length()) if 2**i <= self.samples]
        ks = sorted({*powers, self.samples}) if self.samples > 1 else []
        sizes = Counter(score.index for score in counted).values()
        families = sorted({score.family for score in counted} - {""})
        return {
            "settings": dict(self.settings),
            "panel": self.panel.digest,
            "asked": self.asked,
            "episodes": len(scores),
            "tasks": len({score.index for score in scores}),
            "samples": self.samples,
            "errors": self.errors,
            "success": _row(self.success, len(counted)),
            "reward": _row(self.reward, len(counted)),
            "score": _row(self.score, len(counted)),
            "pass_at": {str(k): _row(self.pass_at(k), sum(size >= k for size in sizes)) for k in ks},
            "pass_hat": {str(k): _row(self.pass_hat(k), sum(size >= k for size in sizes)) for k in ks},
            "pairs": _row(clustered_share(pairs), len(pairs)) if (pairs := self.pairs) else None,
            "families": {
                family: _row(clustered_share(_by_task(some, "success")), len(some))
                for family in families
                for some in [[score for score in counted if score.family == family]]
            },
            "stop_reasons": dict(stops.most_common()),
            "steps": steps,
            "steps_per_episode": steps / len(scores) if scores else None,
            "invalid_actions": sum(score.invalid_actions for score in scores),
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "cached_tokens": cached,
            "cost": self.cost,
            "seconds_per_episode": sum(score.seconds for score in scores) / len(scores) if scores else None,
            "wall_seconds": self.wall_seconds,
        }

    def table(self) -> str:
        data = self.to_dict()
        lines = [f"{data['episodes']} of {count_of(data['asked'], 'episode')}, {count_of(data['tasks'], 'task')}"]
        if self.samples > 1:
            lines[0] += f" x {self.samples} samples"
        if self.errors:
            lines[0] += f"; {self.errors} broke and are not counted (--retry-errors plays them again)"
            kinds = Counter(score.error for score in self.scores if score.stop_reason.broken)
            lines += [f"  {count} x {error[:150]}" for error, count in kinds.most_common(3)]
        rows = [(name, data[name]) for name in ("success", "reward", "score")]
        rows += [(f"pass@{k}", row) for k, row in data["pass_at"].items()]
        rows += [(f"pass^{k}", row) for k, row in data["pass_hat"].items() if k != "1"]
        rows += [("both of a pair", data["pairs"])] * bool(data["pairs"])
        rows += [(_printable(name), row) for name, row in data["families"].items()]
        width = max(len(name) for name, _ in rows)
        lines += ["", f"{'':{width}}  {'mean':>8}  {'95 % interval':^20}  {'of':>6}"]
        for name, row in rows:
            ends = f"[{_number(row['low'])}, {_number(row['high'])}]"
            lines.append(f"{name:{width}}  {_number(row['value']):>8}  {ends:^20}  {row['of']:>6}")
        stops = ", ".join(f"{name} {count}" for name, count in data["stop_reasons"].items())
        per_episode = data["steps_per_episode"] or 0.0
        lines += ["", f"stop reasons  {stops or 'none'}"]
        lines.append(f"steps         {data['steps']}, {per_episode:.2f} per episode, {data['invalid_actions']} invalid")
        if data["prompt_tokens"] or data["completion_tokens"]:
            tokens = f"{data['prompt_tokens']:,} prompt ({data['cached_tokens']:,} cached)"
            lines.append(f"tokens        {tokens}, {data['completion_tokens']:,} response")
        if self.cost is not None:
            solved = sum(score.success for score in self.counted)
            each = f", {self.cost / solved:.4f} per solved episode" if solved else ""
            lines.append(f"cost          {self.cost:.4f}{each}")
        lines.append(f"panel         {self.panel.name} (these tasks; eval --panel plays them again)")
        seconds = data["seconds_per_episode"] or 0.0
        lines.append(f"time          {self.wall_seconds:.1f} s here, {seconds:.2f} s per episode")
        return "\n".join(lines)

    __str__ = table

    def _tokens(self) -> tuple[int, int, int]:
        prompt, completion, cached = (sum(score.tokens[i] for score in self.scores) for i in range(3))
        return prompt, completion, cached


def _by_task(scores: Iterable[EpisodeScore], name: str) -> list[list[float]]:
    scores = list(scores)
    return grouped([getattr(score, name) for score in scores], [score.index for score in scores])


def _row(interval: Interval, of: int) -> dict[str, float | int | None]:
    ends = {name: value if math.isfinite(value) else None for name, value in interval._asdict().items()}
    return {**ends, "of": of}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _printable(text: str) -> str:
    """Return text from servers and tasks on one line, safe to print to a terminal."""
    return plain(text).replace("\n", " ")
