"""grpo, rloo, opo, gpg, remax and others that compare a group's episodes: one score per trajectory, no critic.

$S_i = sum_t r_t$ is the score of trajectory i, g its prompt group with n trajectories; every step and token of a
trajectory has the same advantage (except for ``remax`` with reward-to-go). None has a critic.

Deviation from the released code, for all that compare within a group: the only trajectory of a group has advantage 0
and is counted. In the released code its advantage is its score, so a lone success is pushed up and nothing pushes back;
``lone_score=True`` is that rule, for ``grpo``, ``rloo``, ``reinforce_pp_baseline`` and ``gigpo``, which adds a second
comparison, among the steps of a group that start from the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import torch

from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.adapters.estimators.segments import (
    StepLayout,
    discounted_sums,
    group_centred,
    lay_out,
    lay_out_tokens,
    masked_whiten,
    segment_sums,
)
from agent_envs.errors import ConfigError

_ROUND_OFF = 1e-6


def grpo(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GRPO over trajectories (arXiv 2402.03300, section 4.1.2), or Dr.GRPO (arXiv 2503.20783).

    $A_i = (S_i - mean_g) / (std_g + 1e-6)$ with the unbiased std; ``norm_by_std=False`` leaves out the division.

    Scores 1 (in two steps) and 0: mean 1/2, std 0.7071, $A = +-0.7071$; Dr.GRPO: $+-1/2$.
    """
    steps = lay_out(rows)
    a, metrics = relative_scores(steps, rows, by_std=options.norm_by_std, lone=options.lone_score)
    return _from_trajectories(steps, a[steps.trajectory], metrics)


def rloo(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """RLOO (arXiv 2402.14740): $S_i$ - mean of the others' scores, or $A_i = n / (n - 1) (S_i - mean_g)$.

    Scores 1, 0 and 0: 1 - 0 = 1 and 0 - 1/2.
    """
    steps = lay_out(rows)
    a, metrics = relative_scores(steps, rows, by_std=False, lone=options.lone_score)
    group, groups = steps.groups(rows)
    n = torch.bincount(group, minlength=groups)[group].double()
    return _from_trajectories(steps, (a * n / (n - 1).clamp(min=1))[steps.trajectory], metrics)


def reinforce_pp_baseline(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """REINFORCE++ with a baseline (arXiv 2501.03262): $S_i - mean_g$, whitened over the batch's tokens.

    $(x - mean) / sqrt(var + 1e-8)$, every trained token counting once. Trajectories that are alone in their group
    are left out of that mean and variance and have advantage 0.

    Scores 1 (in 2 tokens) and 0 (in 1 token): x = 1/2, 1/2, -1/2, mean 1/6, variance 1/3; $A = sqrt(3)/3 = 0.5774$
    and -1.1547.

    Raises:
        ConfigError: There are no tokens.
    """
    steps = lay_out(rows)
    counts = lay_out_tokens(rows, steps, "reinforce_pp_baseline").counts.double()
    a, metrics = relative_scores(steps, rows, by_std=False, lone=options.lone_score)
    a = a[steps.trajectory]
    if options.whiten:
        a = _whiten_compared(steps, rows, a, counts, 1 if options.lone_score else 2)
    return _from_trajectories(steps, a, metrics)


def opo(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """OPO (arXiv 2505.23585, eq. 8): $S_i - b_g$, with $b_g$ the group's mean score weighted by length.

    $b_g = (sum_j l_j S_j) / (sum_j l_j)$, where $l_j$ counts the tokens that the policy wrote in trajectory j.

    Scores 1 (in 3 tokens) and 0 (in 1 token): $b = 3/4$, A is 1/4 and -3/4.

    Raises:
        ConfigError: There are no tokens.
    """
    steps = lay_out(rows)
    counts = lay_out_tokens(rows, steps, "opo").counts.double()  # [steps]
    group, groups = steps.groups(rows)
    length = segment_sums(counts, steps.trajectory, len(group))
    scores = steps.scores(rows)
    centred, metrics = relative_scores(steps, rows, by_std=False)
    baseline = segment_sums(length * scores, group, groups) / segment_sums(length, group, groups).clamp(min=1.0)
    equal = segment_sums(centred.abs(), group, groups) == 0  # a group of one, or all scores are the same
    a = torch.where(equal[group], 0.0, scores - baseline[group])
    return _from_trajectories(steps, a[steps.trajectory], metrics)


def gpg(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GPG (arXiv 2504.02546) with verl's factor: $(S_i - mean_g) N / M$, where M of the batch's N scores are not 0.

    $N / M$ is that of verl's ``compute_gpg_outcome_advantage``; the paper divides by the number of episodes whose group
    has different scores. Goes with the loss ``gpg``.

    Scores 1 and 0: $N / M = 2$, A is 1 and -1.
    """
    steps = lay_out(rows)
    a, metrics = relative_scores(steps, rows, by_std=False)
    scores = steps.scores(rows)
    return _from_trajectories(steps, (a * len(scores) / max(1, int(scores.count_nonzero())))[steps.trajectory], metrics)


def grpo_passk(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """Pass@k training (arXiv 2503.19595): the best of a group alone counts, by how much it beats the second best.

    $A_i = (S_i - S_second) / (std_g + 1e-6)$ for the best trajectory, 0 for the others; ``norm_by_std=False`` leaves
    out the division. Where several are best, all have 0.

    Scores 3, 1 and 0: std 1.5275, A is $2/1.5275 = 1.3093$, 0 and 0.
    """
    steps = lay_out(rows)
    scores = steps.scores(rows)
    group, groups = steps.groups(rows)
    a, metrics = relative_scores(steps, rows, by_std=options.norm_by_std)
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(group[order], stable=True)]  # by group, the best first
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = group[order[1:]] != group[order[:-1]]
    best = order[first]
    n = torch.bincount(group, minlength=groups)
    second = order[(first.nonzero().squeeze(1) + 1).clamp(max=max(0, len(order) - 1))]
    gain = torch.where(n[group[best]] > 1, a[best] - a[second], 0.0)
    return _from_trajectories(steps, torch.zeros_like(a).index_copy(0, best, gain)[steps.trajectory], metrics)


def gdpo(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GDPO (arXiv 2601.05242): the components of the reward are compared within the group each by itself.

    $A_i = sum_k w_k (S_ik - mean_gk) / (std_gk + 1e-6)$, whitened over the batch's tokens as in
    ``reinforce_pp_baseline``. $S_ik$ is the sum of component k over the trajectory's steps; what no component accounts
    for is one more, ``rest``. ``norm_by_std=False`` leaves out the division. A component that pays all of a group the
    same teaches nothing there, so that a small one is not drowned by a large one.

    Components (1, 0.1) and (0, 0): each is $+-0.7071$ by itself, together 1.4142 and -1.4142, whitened over a token
    each 0.7071 and -0.7071.

    Raises:
        ConfigError: There are no tokens.
    """
    steps = lay_out(rows)
    counts = lay_out_tokens(rows, steps, "gdpo").counts.double()
    parts = rows.rewards.double()[:, None]
    names = ["rest"]
    if rows.components is not None:
        rest = parts - rows.components.sum(1, keepdim=True)
        rest = torch.where(rest.abs() < _ROUND_OFF, 0.0, rest)  # or a deviation would be made of what rounding leaves
        parts, names = torch.cat([rows.components.double(), rest], dim=1), [*rows.component_names, *names]
    group, groups = steps.groups(rows)
    total = torch.zeros(len(group), dtype=torch.float64)
    for k, name in enumerate(names):
        score = segment_sums(steps.take(parts[:, k]), steps.trajectory, len(group))
        a, _, _ = group_centred(score, group, groups, by_std=options.norm_by_std)
        total += float(options.gdpo_weights.get(name, 1.0)) * a
    _, metrics = relative_scores(steps, rows, by_std=False)
    return _from_trajectories(steps, _whiten_compared(steps, rows, total[steps.trajectory], counts, 2), metrics)


def remax(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """ReMax (arXiv 2310.10505, algorithm 1): $A_i = S_i - b_g$, with $b_g$ the return of the group's greedy episode.

    The greedy episode is played for the same task at temperature 0 and is not trained on. With ``reward_to_go=True``
    step t has $r_t + r_{t+1} + ... - b_g$ instead. A trajectory whose group has no greedy episode (it broke) has
    advantage 0 and is counted.

    Rewards 1 and 2 in two steps against a greedy return of 2: A is 1 and 1; with reward-to-go 1, 0.

    Raises:
        ConfigError: There are no baselines.
    """
    if rows.baseline is None:
        raise ConfigError(
            "the estimator 'remax' needs the return of a greedy episode per group: give StepRows.baseline"
        )
    steps = lay_out(rows)
    baseline = steps.take(rows.baseline)
    if options.reward_to_go:
        gain = discounted_sums(steps.take(rows.rewards), steps.lengths, 1.0)
    else:
        gain = steps.scores(rows)[steps.trajectory]
    missing = baseline.isnan()
    a = torch.where(missing, 0.0, gain - baseline)
    return _from_trajectories(steps, a, {"baselines_missing": float(len(steps.trajectory[missing].unique()))})


def relative_scores(
    steps: StepLayout, rows: StepRows, *, by_std: bool, lone: bool = False
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return each trajectory's score relative to its group, shape [trajectories], and counts of groups.

    That of a group's only trajectory is 0, or with ``lone`` its score.
    """
    group, groups = steps.groups(rows)
    scores = steps.scores(rows)
    a, n, equal = group_centred(scores, group, groups, by_std=by_std)
    if lone:
        a = torch.where((n == 1)[group], scores, a)
    compared = n > 1
    counts = {"groups_of_one": n == 1, "groups_compared": compared, "groups_without_signal": equal & compared}
    return a, {name: float(which.sum()) for name, which in counts.items()}


def _whiten_compared(
    steps: StepLayout, rows: StepRows, a: torch.Tensor, counts: torch.Tensor, least: int
) -> torch.Tensor:
    """``a``, shape [steps], whitened over the tokens of groups of at least so many trajectories, 0 in the others."""
    group, groups = steps.groups(rows)
    compared = (torch.bincount(group, minlength=groups)[group] >= least)[steps.trajectory]
    return torch.where(compared, masked_whiten(a, torch.where(compared, counts, 0.0)), 0.0)


def _from_trajectories(steps: StepLayout, a: torch.Tensor, metrics: dict[str, float]) -> Advantages:
    spread = steps.spread(a)
    return Advantages(spread, spread.clone(), metrics)


def gigpo(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GiGPO (arXiv 2505.10978, section 4): $A = A^E + w A^S$.

    $A^E$ compares the scores $S_i$ of a group's trajectories, as ``grpo`` does. $A^S$ compares the discounted returns
    $G_t = r_t + gamma G_{t+1}$ of the steps of a group whose states before acting are the same anchor: equal texts, or
    with ``similar_anchors`` texts whose ``difflib.SequenceMatcher`` ratio is at least ``similarity``, clustered
    greedily in the order of trajectories and steps. Both are $x - mean$, divided by $std + 1e-6$ with
    ``mean_std_norm``; a step or trajectory with nothing to compare it to has 0. w is ``step_advantage_weight``.

    Two trajectories from one state, in two steps with rewards 0, 1 (their second state the same) and 0, 0, $gamma = 1$,
    ``mean_norm``: $A^E = +-1/2$; from the first state G is 1 and 0, from the second 1 and 0: $A^S = +-1/2$.
    With $w = 2$, $A = +-1.5$.

    Deviations from verl-agent, the paper's code: mean and std of $A^E$ are over trajectories, not over step rows, and
    the default divides by the std (as Agent-R1's does). From Agent-R1: the only trajectory of a group has $A^E = 0$,
    unless ``lone_score`` gives it its score.

    Raises:
        ConfigError: There are no anchors, or no texts to compare.
    """
    if rows.anchor is None:
        raise ConfigError("the estimator 'gigpo' needs the states before acting: give StepRows.anchor")
    steps = lay_out(rows)
    by_std = options.gigpo_norm == "mean_std_norm"
    group, _ = steps.groups(rows)
    episode, metrics = relative_scores(steps, rows, by_std=by_std, lone=options.lone_score)
    g = discounted_sums(steps.take(rows.rewards), steps.lengths, steps.discount(rows, options.gamma))
    of = group[steps.trajectory]  # [steps]
    anchor = rows.anchor[steps.row]
    if options.similar_anchors:
        if rows.anchor_texts is None:
            raise ConfigError("gigpo with similar_anchors compares texts: give StepRows.anchor_texts")
        anchor = similar_anchors(of, anchor, rows.anchor_texts, options.similarity)
    anchor = anchor.unique(return_inverse=True)[1]
    count = int(anchor.max()) + 1 if len(anchor) else 0
    state = (of * count + anchor).unique(return_inverse=True)[1]
    states = int(state.max()) + 1 if len(state) else 0
    step, sizes, _ = group_centred(g, state, states, by_std=by_std)
    metrics["anchor_groups"] = float(states)
    metrics["anchor_groups_of_one"] = float((sizes == 1).sum())
    metrics["anchor_group_size"] = float(len(g) / states) if states else 0.0

    a = steps.spread(episode[steps.trajectory] + options.step_advantage_weight * step)
    return Advantages(a, a.clone(), metrics)


def similar_anchors(group: torch.Tensor, anchor: torch.Tensor, texts: Sequence[str], similarity: float) -> torch.Tensor:
    """Return the anchors with similar ones replaced by the first of their cluster.

    Per group and in the order given, a text joins the first cluster whose first text it is similar to:
    ``SequenceMatcher(None, text, first).ratio() >= similarity``; otherwise it starts one. Equal texts have the same
    number and are compared once. Anchors are the numbers of texts; all tensors have shape [steps].

    >>> texts = ["You are in a kitchen. Step 1 of 50.", "You are in a kitchen. Step 2 of 50.", "A garden."]
    >>> similar_anchors(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 1]), texts, 0.95).tolist()
    [0, 0, 2, 1]
    """
    clusters: dict[int, list[tuple[int, SequenceMatcher[str]]]] = {}  # of each group: first anchor, and its text
    chosen: dict[tuple[int, int], int] = {}
    out = []
    for pair in zip(group.tolist(), anchor.tolist(), strict=True):
        if pair not in chosen:
            own, known = pair[1], clusters.setdefault(pair[0], [])
            chosen[pair] = next((first for first, m in known if _similar(texts[own], m, similarity)), own)
            if chosen[pair] == own:
                known.append((own, SequenceMatcher(None, "", texts[own])))
        out.append(chosen[pair])
    return torch.tensor(out, dtype=torch.int64)


def _similar(text: str, first: SequenceMatcher[str], similarity: float) -> bool:
    """Whether a text is similar to a cluster's first one; two upper bounds on the ratio come cheaper than itself."""
    first.set_seq1(text)
    return all(ratio() >= similarity for ratio in (first.real_quick_ratio, first.quick_ratio, first.ratio))
