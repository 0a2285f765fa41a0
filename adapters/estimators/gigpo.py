"""GiGPO: a second comparison, among the steps of a group that start from the same state."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import torch

from agent_envs.adapters.estimators.groups import relative_scores
from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.adapters.estimators.segments import discounted_sums, group_centred, lay_out
from agent_envs.errors import ConfigError


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
