"""Groups that branch from inner states.

1. on a tabular game the expected update, over every way in which a group can turn out, is the gradient of the expected
   return to 1e-6; a baseline per turn index is not
2. trees are cut at the states that they branch from: shared steps once, each continuation one part of what they count
3. a run plays and learns from them, and goes on where it was stopped
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agent_envs.adapters.branches import Branches, Tree, segments  # noqa: E402
from agent_envs.adapters.estimators import EstimatorOptions, get_estimator  # noqa: E402
from agent_envs.adapters.losses import token_weights  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.adapters.torch.loop import train  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.episodes.record import Episode, Step, StopReason  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402

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
    return Episode("Game", name, "g", None, 0, "", (), {}, tuple(steps), "", StopReason.TERMINATED)


def outcomes():
    """Every way in which a tree can turn out: its probability, its step and its paths."""
    for step, trunk in itertools.product((1, 2), GAME):
        if len(trunk) <= step:
            yield 0.5 * chance(trunk), step, [trunk]
            continue
        for other in (path for path in GAME if path[:step] == trunk[:step]):
            yield 0.5 * chance(trunk) * chance(other, step), step, [trunk, other]


def test_the_gradient_is_unbiased_and_with_a_baseline_per_turn_it_is_not():
    pairs = list(itertools.product(outcomes(), repeat=2))
    assert sum(one[0] * two[0] for one, two in pairs) == pytest.approx(1)
    trees = [
        Tree(number, step, [episode(path, f"{number}/{i}/{k}") for k, path in enumerate(paths)])
        for number, pair in enumerate(pairs)
        for i, (_, step, paths) in enumerate(pair)
    ]
    cut = segments(trees)
    batch = assemble(cut.episodes, cut.groups, layout="merged", counts=cut.counts, tasks=cut.tasks)
    advantages = get_estimator("rloo")(batch.steps, EstimatorOptions()).advantages
    step_ids = torch.arange(len(advantages))
    weights = token_weights(
        "row", torch.ones_like(step_ids), batch.steps.trajectory, step_ids, batch.tasks, batch.counts
    )
    # a loss is a mean over a mini-batch: here each pair of trees is one, whose steps weigh what they count
    total = torch.zeros(len(pairs)).double().index_add_(0, batch.tasks, batch.counts.double())
    torch.testing.assert_close(weights.double() * total[batch.tasks], batch.counts.double(), rtol=1e-6, atol=0)
    taken = [step for part in cut.episodes for step in part.steps]
    update = torch.zeros_like(exact())
    for i, step in enumerate(taken):
        state = tuple(int(x) for x in step.observation.strip("(),").replace(" ", "").split(",") if x)
        one, two = pairs[int(batch.tasks[i])]
        factor = one[0] * two[0] * float(batch.counts[i]) * float(advantages[i]) / 2  # two trunks
        update += factor * score_of((*state, int(step.action)), len(state))
    assert float(exact().abs().max()) > 0.05
    assert float((update - exact()).abs().max()) < 1e-6

    biased = torch.zeros_like(update)
    for one, two in pairs:
        members = [(path, 1 / len(paths)) for _, _, paths in (one, two) for path in paths]
        for i, (path, share) in enumerate(members):
            for t in range(len(path)):
                others = [sum(GAME[p][t:]) for j, (p, _) in enumerate(members) if j != i and len(p) > t]
                advantage = sum(GAME[path][t:]) - (sum(others) / len(others) if others else 0.0)
                biased += one[0] * two[0] * share * advantage / 2 * score_of(path, t)
    assert float((biased - exact()).abs().max()) > 0.01


def test_trees_are_cut_at_the_states_that_they_branch_from():
    long, other, short = episode((2, 1, 0), "a"), episode((2, 1, 1), "b"), episode((0,), "c")
    broken = Episode("Game", "d", "g", None, 0, "", (), {}, long.steps, "", StopReason.ERROR)
    cut = segments([Tree(7, 2, [long, other, broken]), Tree(7, 2, [short]), Tree(7, 1, [broken, long])])
    assert [[s.reward for s in part.steps] for part in cut.episodes] == [[0.0, -0.4 + 1.0], [2.0], [0.0], [0.3]]
    assert cut.groups == [0, 1, 1, 0] and cut.counts == [1.0, 0.5, 0.5, 1.0] and cut.tasks == [7] * 4
    parts = segments([Tree(0, 2, [long, other])], "trajectory").counts  # of the three steps of each episode
    assert parts == pytest.approx([2 / 3, 1 / 6, 1 / 6])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"branch": "3-1:2"}, "branch is FIRST-LAST:COUNT"),
        ({"branch": "0:1"}, "branch is FIRST-LAST:COUNT"),
        ({"branch": "1:3", "group": 4}, "at least two times 4 episodes, got group=4"),
        ({"branch": "1:1", "estimator": "gae"}, "such as rloo; got 'gae'"),
        ({"branch": "1:1", "step_timeout": 5.0}, "leave out agent, score and step_timeout"),
    ],
)
def test_bad_settings(settings, says):
    with pytest.raises(ConfigError, match=says):
        LoopConfig(env="Toy-v0", out="x", **settings)


def test_a_run_branches_and_goes_on_where_it_was_stopped(model_path, tmp_path):
    def run(out, **more):
        return LoopConfig(
            env="AgentR1/ALFWorld-v0", env_kwargs={"size": 1, "max_episode_steps": 3}, out=str(tmp_path / out),
            model=model_path, tasks=2, group=4, eval_tasks=0, max_response_tokens=24, save_every=1, warmup=0, steps=2,
            concurrency=1, device="cpu", estimator="rloo", branch="1-2:1", teacher="expert",
            wrappers=("InvalidActionPenalty(penalty=0.1)",), **more,
        )  # fmt: skip

    whole = train(run("whole"))
    train(run("parts", minutes=1e-6))
    parts = train(run("parts"))
    for got, want in zip(parts, whole, strict=True):
        assert {k: v for k, v in got.items() if "seconds" not in k} == pytest.approx(
            {k: v for k, v in want.items() if "seconds" not in k}, rel=1e-3, abs=1e-4
        )
    first = whole[1]
    assert first["train/episodes"] == 8 and first["train/steps"] == 3 and first["train/broken"] == 0
    tokens = first["train/length"] * 8  # of whole episodes, which repeat what they share
    assert 0.5 * tokens < first["train/sampled_tokens"] < 0.9 * tokens
    # the two tasks, and the states that trunks branched from: 1 to 4, as some end before
    assert 2 < first["groups_compared"] <= 6 and first["groups_without_signal"] <= first["groups_compared"]
    assert first["actor/grad_norm"] > 0 and np.isfinite(first["actor/loss"])
