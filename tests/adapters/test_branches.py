"""Groups that branch from inner states.

1. on a tabular game the expected update, over every way in which a group can turn out, is the gradient of the expected
   return to 1e-6
2. trees are cut at the states that they branch from: shared steps once, each continuation one part of what they count
3. a run plays and learns from them, and goes on where it was stopped; verl: test_loop_beside_verl.py
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from comparisons import assert_same_records  # noqa: E402
from small_runs import small_run, whole_and_in_parts  # noqa: E402
from toy_episodes import toy_episode  # noqa: E402

from agent_envs.adapters.branches import Branches, Tree, segments  # noqa: E402
from agent_envs.adapters.estimators import EstimatorOptions, get_estimator  # noqa: E402
from agent_envs.adapters.losses import token_weights  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.episodes.record import Step, StopReason  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Paths of actions from the start, with rewards at each step: some end early, and what an action is worth depends on
# how the game goes on.
GAME = {
    (0,): (0.3,), (1, 0, 0): (0.1, 0.0, 1.0), (1, 0, 1): (0.1, 0.0, -0.7), (1, 1): (0.1, 0.9), (2, 0): (0.0, 0.2),
    (2, 1, 0): (0.0, -0.4, 2.0), (2, 1, 1): (0.0, -0.4, 0.0),
}  # fmt: skip
STATES = sorted({path[:t] for path in GAME for t in range(len(path))})
ACTIONS = {state: sorted({path[len(state)] for path in GAME if path[: len(state)] == state and len(path) > len(state)})
           for state in STATES}  # fmt: skip
LOGITS = {state: torch.linspace(-0.6, 0.9, len(ACTIONS[state])).double() * (1 + i) for i, state in enumerate(STATES)}
BRANCHES = Branches(1, 2, 1)


def chance(path, after=0):
    """Probability of a path's actions from some step on."""
    parts = [LOGITS[path[:t]].softmax(0)[ACTIONS[path[:t]].index(path[t])] for t in range(after, len(path))]
    return float(torch.stack(parts).prod()) if parts else 1.0


def score_of(path, t):
    """Gradient of the log-probability of an action in the logits of all states."""
    grads = {state: torch.zeros(len(ACTIONS[state]), dtype=torch.float64) for state in STATES}
    state = path[:t]
    grads[state] = -LOGITS[state].softmax(0)
    grads[state][ACTIONS[state].index(path[t])] += 1
    return torch.cat([grads[state] for state in STATES])


def exact():
    """The gradient of the expected return."""
    return sum(chance(p) * sum(r) * sum(score_of(p, t) for t in range(len(p))) for p, r in GAME.items())


def episode(path, name):
    ids = [1]
    steps = []
    for t, (action, reward) in enumerate(zip(path, GAME[path], strict=True)):
        last = t == len(path) - 1
        steps.append(Step(str(path[:t]), str(action), reward, last, False, {}, tuple(ids), (2 + action,), (-1.0,)))
        ids += [2 + action, 9]
    return toy_episode(name, steps)


def outcomes():
    """Every way in which a tree can turn out: its probability, its step and its paths."""
    for step, trunk in itertools.product((1, 2), GAME):
        if len(trunk) <= step:
            yield 0.5 * chance(trunk), step, [trunk]
            continue
        for other in (path for path in GAME if path[:step] == trunk[:step]):
            yield 0.5 * chance(trunk) * chance(other, step), step, [trunk, other]


def test_the_gradient_is_unbiased():
    pairs = list(itertools.product(outcomes(), repeat=2))
    assert sum(one[0] * two[0] for one, two in pairs) == pytest.approx(1)
    trees = [
        Tree(step, [episode(path, f"{number}/{i}/{k}") for k, path in enumerate(paths)])
        for number, pair in enumerate(pairs)
        for i, (_, step, paths) in enumerate(pair)
    ]
    episodes, groups, counts, tasks = segments(trees, [number for number, pair in enumerate(pairs) for _ in pair])
    batch = assemble(episodes, groups, layout="merged", counts=counts, tasks=tasks)
    advantages = get_estimator("rloo")(batch.steps, EstimatorOptions()).advantages
    step_ids = torch.arange(len(advantages))
    weights = token_weights(
        "row", torch.ones_like(step_ids), batch.steps.trajectory, step_ids, batch.tasks, batch.counts
    )
    # a loss is a mean over a mini-batch: here each pair of trees is one, whose steps weigh what they count
    total = torch.zeros(len(pairs)).double().index_add_(0, batch.tasks, batch.counts.double())
    torch.testing.assert_close(weights.double() * total[batch.tasks], batch.counts.double(), rtol=1e-6, atol=0)
    taken = [step for part in episodes for step in part.steps]
    update = torch.zeros_like(exact())
    for i, step in enumerate(taken):
        state = tuple(int(x) for x in step.observation.strip("(),").replace(" ", "").split(",") if x)
        one, two = pairs[int(batch.tasks[i])]
        factor = one[0] * two[0] * float(batch.counts[i]) * float(advantages[i]) / 2  # two trunks
        update += factor * score_of((*state, int(step.action)), len(state))
    assert float(exact().abs().max()) > 0.05
    assert float((update - exact()).abs().max()) < 1e-6


def test_trees_are_cut_at_the_states_that_they_branch_from(caplog):
    long, other, short = episode((2, 1, 0), "a"), episode((2, 1, 1), "b"), episode((0,), "c")
    broken = toy_episode("d", long.steps, reason=StopReason.ERROR)
    episodes, groups, counts, tasks = segments(
        [Tree(2, [long, other, broken]), Tree(2, [short]), Tree(1, [broken, long])], [7, 7, 7]
    )
    assert [[s.reward for s in part.steps] for part in episodes] == [[0.0, -0.4 + 1.0], [2.0], [0.0], [0.3]]
    assert groups == [0, 1, 1, 0] and counts == [1.0, 0.5, 0.5, 1.0] and tasks == [7] * 4
    even = [Tree(1, [episode((2, 1, 0), "e"), episode((2, 1, 0), "f")]), Tree(9, [episode((2, 1, 0), "g")])]
    returns = [sum(s.reward for s in part.steps) for part in segments(even, [0, 0])[0]]
    assert returns[0] == pytest.approx(returns[3]), "trunks that return the same, one of which has branched"
    assert "no trunk was long enough to branch" not in caplog.text
    segments([Tree(9, [short]), Tree(9, [long])], [0, 0])
    assert "no trunk was long enough to branch" in caplog.text
    parts = segments([Tree(2, [long, other])], [0], "trajectory")[2]  # of the three steps of each episode
    assert parts == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def test_a_run_branches_and_goes_on_where_it_was_stopped(model_path, tmp_path):
    whole, parts = whole_and_in_parts(small_run(
        tmp_path, model_path, env_kwargs={"size": 1, "max_episode_steps": 3}, tasks=1, group=4, max_response_tokens=24,
        steps=2, estimator="rloo", branch="1-2:1", teacher="expert", wrappers=("InvalidActionPenalty(penalty=0.1)",),
    ))  # fmt: skip
    assert_same_records(parts, whole)
    first = whole[1]
    assert first["env/episodes"] == 4 and first["env/num_steps/mean"] == 3 and first["env/broken"] == 0
    tokens = first["env/tokens/response_per_episode"] * 4  # of whole episodes, which repeat what they share
    assert 0.5 * tokens < first["env/tokens/trained"] < 0.9 * tokens
    # the task, and the states that trunks branched from: 1 or 2, as some end before
    assert 1 < first["env/groups_compared"] <= 3 and first["env/groups_without_signal"] <= first["env/groups_compared"]
    assert first["actor/grad_norm"] > 0 and np.isfinite(first["actor/loss"])
