"""What estimators take and return: records of tensors, one element per step or per token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from agent_envs.checks import choice, integer, number
from agent_envs.errors import ConfigError


@dataclass(frozen=True)
class TokenRows:
    """The tokens of all steps, flat: what token-level estimators need besides ``StepRows``.

    Every tensor has shape [tokens]. Steps may come in any order and untrained tokens may stand anywhere; the tokens of
    one step are in the order they were written in.
    """

    step_row: torch.Tensor
    """Index into ``StepRows`` of the step that a token belongs to, -1 for tokens that no step trains, int64."""
    rewards: torch.Tensor | None = None
    """Reward at the token, float; None puts each step's reward on its last token. They add up to the steps' rewards."""
    values: torch.Tensor | None = None
    """V before the token was written, float; None without a critic."""
    score_norms: torch.Tensor | None = None
    """Token baselines: squared norm of the gradient of the token's log-probability by the logits, float."""

    @cached_property
    def runs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Consecutive tokens of one step: its row, the first token and the number of tokens, each of shape [runs]."""
        n = len(self.step_row)
        changed = (self.step_row[1:] != self.step_row[:-1]).nonzero().squeeze(1) + 1
        begin = torch.cat([changed.new_zeros(min(n, 1)), changed])
        return self.step_row[begin], begin, torch.cat([begin[1:], begin.new_full((min(n, 1),), n)]) - begin


@dataclass(frozen=True)
class StepRows:
    """An estimator's input: one row per step, in any order. Every tensor has shape [rows]."""

    rewards: torch.Tensor
    """Reward of the step, float."""
    trajectory: torch.Tensor
    """Number of the row's trajectory, int64."""
    step: torch.Tensor
    """Index of the step within its trajectory, int64."""
    group: torch.Tensor
    """Number of the prompt group the trajectory belongs to, int64."""
    valid: torch.Tensor
    """False for rows that do not count: padding and broken episodes, bool."""
    truncated: torch.Tensor
    """True on a trajectory's last row if a limit, not the task, ended it, bool."""
    values: torch.Tensor | None = None
    """V of the state before acting, float; None without a critic."""
    final_values: torch.Tensor | None = None
    """V of the state after the trajectory's last step, on its last row; NaN where unknown. None without a critic."""
    tokens: TokenRows | None = None
    """The tokens, for token-level estimators and for those that whiten over tokens."""
    baseline: torch.Tensor | None = None
    """remax: undiscounted return of the group's greedy episode, NaN where there is none, float."""
    anchor: torch.Tensor | None = None
    """gigpo: number of the state's text before acting, the same for equal texts, int64."""
    anchor_texts: Sequence[str] | None = None
    """gigpo with similarity: the text of each anchor number."""
    components: torch.Tensor | None = None
    """gdpo: the named parts of each reward, float64, shape [rows, components]; None if it has none."""
    component_names: Sequence[str] = ()
    """gdpo: their names."""
    time: torch.Tensor | None = None
    """Environment steps taken before the step, int64; None where each step is one."""
    role: torch.Tensor | None = None
    """Number of the trajectory's role, int64; None without roles. Those of a role are whitened among themselves."""
    env: torch.Tensor | None = None
    """Number of the trajectory's environment, int64; None if there is one. Each has its own normalisers."""
    env_names: Sequence[str] = ()
    """Names of environments by number, by which what normalises them lasts for all batches."""
    names: Sequence[str] | None = None
    """Names of trajectories by number, for error messages."""

    def with_token_rewards(self, extra: torch.Tensor) -> StepRows:
        """Return the rows with rewards added at tokens, such as a KL penalty; a step's own reward is at its last token.

        Args:
            extra: Reward to add at each of ``tokens``, ignored where no step trains it, float, shape [tokens].

        >>> zeros, tokens = torch.zeros(2, dtype=torch.int64), TokenRows(torch.tensor([-1, 0, 0, -1, 1]))
        >>> rows = StepRows(torch.ones(2), zeros, torch.arange(2), zeros, zeros == 0, zeros == 1, tokens=tokens)
        >>> paid = rows.with_token_rewards(torch.full([5], -0.25))
        >>> paid.rewards.tolist(), paid.tokens.rewards.tolist()
        ([0.5, 0.75], [0.0, -0.25, 0.75, 0.0, 0.75])
        """
        if self.tokens is None:
            raise ConfigError("adding rewards at tokens needs StepRows with tokens")
        step_row, rewards = self.tokens.step_row, self.rewards.double()
        at = (step_row >= 0).nonzero().squeeze(1)  # [trained]
        extra = torch.zeros(len(step_row), dtype=torch.float64).index_copy_(0, at, extra[at].double())
        paid = self.tokens.rewards
        if paid is None:
            last = torch.zeros_like(self.trajectory).scatter_reduce_(0, step_row[at], at, "amax")  # [rows]
            paid = torch.zeros_like(extra)
            paid[at] = torch.where(last[step_row[at]] == at, rewards[step_row[at]], 0.0)
        tokens = replace(self.tokens, rewards=paid + extra)
        return replace(self, rewards=rewards.index_add(0, step_row[at], extra[at]), tokens=tokens)

    def by_env(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the name of each environment, "" if it is not known, and which valid rows are of it, shape [rows]."""
        env = torch.zeros_like(self.trajectory) if self.env is None else self.env
        for one in env[self.valid].unique().tolist():
            yield self.env_names[one] if self.env_names else str(one or ""), self.valid & (env == one)

    def name(self, trajectory: int) -> str:
        """Return a trajectory's name for an error message."""
        known = self.names is not None and 0 <= trajectory < len(self.names)
        return f"trajectory {self.names[trajectory]!r}" if known and self.names else f"trajectory {trajectory}"


@dataclass(frozen=True)
class EstimatorOptions:
    """Settings shared by the estimators; each reads what it needs.

    Raises:
        ConfigError: A value is outside its range.
    """

    gamma: float = 1.0
    """Discount per step; per token for token_gae, reinforce_pp and, within a turn, bi_level_gae."""
    lam: float = 1.0
    """GAE's lambda per step, or per token as ``gamma``; bi_level_gae takes it at both levels."""
    whiten: bool = True
    """gae, token_gae, bi_level_gae, reinforce, reinforce_pp, reinforce_pp_baseline: whiten advantages."""
    bootstrap_truncated: bool = True
    """With a critic: use V of the final state where a limit ended the trajectory; False: the released rule, 0."""
    norm_by_std: bool = True
    """grpo, grpo_passk: divide by the group's standard deviation; False: do not (Dr.GRPO)."""
    group_size: int | None = None
    """Trajectories a group should have; other groups are counted. None: not checked."""
    reward_to_go: bool = False
    """remax: the (undiscounted) return from each step on minus the baseline, instead of the whole return."""
    lone_score: bool = False
    """grpo, rloo, reinforce_pp_baseline, gigpo: the score of a group's only trajectory is its advantage, not 0."""
    row_returns: bool = False
    """reinforce_pp: the return of a step's own reward alone, as if each step were an episode."""
    turn_gamma: float = 0.95
    """bi_level_gae: discount per turn."""
    step_advantage_weight: float = 1.0
    """gigpo: weight of the step advantage relative to the episode's."""
    gigpo_norm: str = "mean_std_norm"
    """gigpo: ``mean_std_norm`` divides by the standard deviation, ``mean_norm`` does not."""
    similar_anchors: bool = False
    """gigpo: states whose texts are similar count as one; False: only equal ones."""
    similarity: float = 0.95
    """gigpo: minimum ``difflib.SequenceMatcher`` ratio of similar texts."""
    gdpo_weights: Mapping[str, float] = field(default_factory=dict)
    """gdpo: weight of each reward component, and of the ``rest`` of the reward; 1 for those that are not named."""

    def __post_init__(self) -> None:
        for name in ("gamma", "lam", "turn_gamma", "similarity"):
            number(name, getattr(self, name), minimum=0, maximum=1)
        for name, weight in self.gdpo_weights.items():
            number(f"gdpo_weights.{name}", weight)
        choice("gigpo_norm", self.gigpo_norm, ("mean_norm", "mean_std_norm"))
        if self.group_size is not None:
            integer("group_size", self.group_size, minimum=1)


@dataclass(frozen=True)
class Advantages:
    """An estimator's output: 0 on rows that are not valid and on tokens that are not trained."""

    advantages: torch.Tensor
    """Advantage of the step's action, float32, shape [rows]; the mean over its tokens where tokens differ."""
    returns: torch.Tensor
    """The critic's target at the action's start (the advantage if there is no critic), shape [rows]."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Counts worth logging."""
    token_advantages: torch.Tensor | None = None
    """Advantage of each token, float32, shape [tokens]; None if all tokens of a step have the step's."""
    token_returns: torch.Tensor | None = None
    """The critic's target at each token, shape [tokens]; None if it is the step's."""

    def on_tokens(self, step_row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the advantages and returns of tokens, their own or those of their step, in the shape of ``step_row``.

        Args:
            step_row: The row of each token's step, -1 for untrained ones, int64, any shape; for token-level estimators
                the flat ``TokenRows.step_row`` they were computed from.

        >>> a = Advantages(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        >>> [x.tolist() for x in a.on_tokens(torch.tensor([1, -1, 0, 0]))]
        [[2.0, 0.0, 1.0, 1.0], [4.0, 0.0, 3.0, 3.0]]
        """
        if self.token_advantages is not None and self.token_returns is not None:
            return self.token_advantages, self.token_returns
        both = torch.stack([self.advantages, self.returns])
        spread = torch.cat([both, both.new_zeros(2, 1)], dim=1)[:, step_row]  # -1 reads the zeros
        return spread[0], spread[1]
