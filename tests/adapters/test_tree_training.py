"""The PyTorch loop on prefix trees trains what it trains on a row per step.

1. log-probabilities, values, losses, metrics and gradients are equal for every kind of estimator, loss and weighting,
   with entropy bonus and KL, for trees of any shape: equal episodes, ones that begin others, single and broken ones,
   rebuilt prompts; in one pass and cut into many
2. mini-batches are whole groups, the same ones in every layout; episodes where there are too few groups
3. a run trains, and goes on in another layout where it was stopped
"""

import dataclasses
import json
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from comparisons import step_order, unlike_estimators, weights_of  # noqa: E402
from toy_episodes import toy_episode, toy_model  # noqa: E402

from agent_envs.adapters.batches import LAST_STATE  # noqa: E402
from agent_envs.adapters.estimators import get_estimator  # noqa: E402
from agent_envs.adapters.losses import POLICY_LOSSES, WEIGHTINGS, action_start  # noqa: E402
from agent_envs.adapters.torch.loop import (  # noqa: E402
    Scores,
    accumulate,
    actor_loss,
    assemble,
    credit,
    critic_loss,
    main,
    score,
    update,
)
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.episodes.record import Step, StopReason  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def models():
    return toy_model(), toy_model("TokenClassification")


def episode(number, group, words, seed=0, *, broken=False, cut=False, critic=False):
    """An episode of given steps, (prompt, response) tokens, with rewards that its number draws."""
    rng, steps = np.random.default_rng([seed, number]), []
    for t, (prompt, response) in enumerate(words):
        last = t == len(words) - 1
        steps.append(Step(
            "o", "a", round(float(rng.normal()), 2), last and not cut, last and cut,
            {"anchor": f"{group}/{rng.integers(2)}"}, tuple(prompt), tuple(response), (-1.0,) * len(response),
        ))  # fmt: skip
    if cut and critic and words:
        final = (*words[-1][0], *words[-1][1], 9)
        steps.append(Step("", "", 0.0, False, False, {LAST_STATE: True}, final, (0,)))
    reason = StopReason.ERROR if broken else StopReason.TRUNCATED if cut else StopReason.TERMINATED
    return toy_episode(f"g{group}_{number}", steps, f"g{group}", reason, {"anchor": f"{group}/0"})


def random_words(rng, start, longest=4):
    """Steps of few different tokens, so that episodes part late; some prompts are rebuilt."""
    context, words = start, []
    for t in range(int(rng.integers(1, longest + 1))):
        if t and rng.integers(4) == 0:
            context = (1, *rng.integers(2, 4, 2).tolist())
        response = tuple(rng.integers(2, 5, int(rng.integers(1, 4))).tolist())
        words.append((context, response))
        context = (*context, *response, *rng.integers(5, 7, int(rng.integers(0, 3))).tolist())
    return words


def group_of(seed, *, critic, groups=3, size=4):
    rng, out = np.random.default_rng(seed), []
    for group in range(groups):
        start = (1, 7 + group, *rng.integers(2, 12, 6).tolist())
        found = [random_words(rng, start) for _ in range(size)]
        found[1] = found[0]  # the same episode twice
        found[2] = found[0][:-1] or found[0]  # one that ends where another goes on
        for i, words in enumerate(found):
            number = group * size + i
            out.append((group, episode(number, group, words, seed, broken=number == 7, cut=i == 3, critic=critic)))
    return out


def settings_of(**more):
    return LoopConfig(
        env="Toy-v0", out="nowhere", gamma=0.95, lam=0.9, entropy_coef=0.01, kl="loss", kl_coef=0.1, **more
    )


def drawn(batch, seed):
    """A number for every trained token that depends on its step and place alone."""
    at, out = step_order(batch), torch.zeros(len(batch.ids))
    out[at] = torch.randn(len(at), generator=torch.Generator().manual_seed(seed)) * 0.2
    return out


class Laid:
    """A batch in a layout, with what its models say."""

    def __init__(self, episodes, layout, models, c, *, critic):
        self.model, self.critic = models
        groups = [group for group, _ in episodes]
        self.batch = assemble([e for _, e in episodes], groups, [0.1 * g for g in groups], layout)
        self.old = score(self.model, self.batch, c)
        self.squares = score(self.model, self.batch, c, of="squares")
        self.values = score(self.critic, self.batch, c, of="values") if critic else None

    def trained(self, c, at_start):
        """Losses, metrics and gradients of policy and critic."""
        batch, scores = self.batch, Scores(
            self.old + drawn(self.batch, 1), self.old + drawn(self.batch, 2),
            None if self.values is None else self.values + drawn(self.batch, 3), self.squares,
        )  # fmt: skip
        advantages, returns, _ = credit(batch, c, scores)
        of_actor = partial(actor_loss, batch, c, scores, advantages)
        out = [self._gradients(self.model, c, batch.step, of_actor)]
        if scores.values is not None:
            step = torch.where(action_start(batch.step), batch.step, -1) if at_start else batch.step
            out.append(self._gradients(self.critic, c, step, partial(critic_loss, scores.values, returns)))
        return out

    def _gradients(self, model, c, step, loss_of):
        loss, metrics = accumulate(model, self.batch, weights_of(self.batch, c.weighting, step), loss_of, c)
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        model.zero_grad()
        return loss, metrics, gradient


def assert_same(one, other):
    for (loss, metrics, gradient), (loss2, metrics2, gradient2) in zip(one, other, strict=True):
        assert loss == pytest.approx(loss2, rel=1e-5, abs=1e-6)
        assert metrics.keys() == metrics2.keys()
        for name, tally in metrics.items():
            assert float(tally.total) == pytest.approx(float(metrics2[name].total), rel=1e-4, abs=1e-4)
            assert int(tally.count) == int(metrics2[name].count)
        assert float(gradient.norm()) > 1e-6
        assert float((gradient - gradient2).norm()) <= 1e-5 * float(gradient.norm())


@pytest.fixture(scope="module")
def laid(models):
    """The same episodes in three layouts, the trees in one pass and in many; with and without a critic."""
    c = settings_of()
    out = {}
    for critic in (False, True):
        episodes = group_of(0, critic=critic)
        out[critic] = {
            layout: Laid(episodes, layout, models, c, critic=critic) for layout in ("steps", "merged", "tree")
        }
    return out


@pytest.mark.parametrize("critic", [False, True])
def test_models_say_the_same_of_every_token(laid, critic):
    steps = laid[critic]["steps"]
    for other in (laid[critic]["merged"], laid[critic]["tree"]):
        for name in ("old", "values")[: 1 + critic]:
            one, two = (getattr(x, name)[step_order(x.batch)] for x in (steps, other))
            assert float(one.abs().min()) > 0
            assert torch.allclose(one, two, atol=1e-6)
    merged, trees = laid[critic]["merged"].batch, laid[critic]["tree"].batch
    assert trees.trees.nodes < 0.6 * len(merged.ids) < 0.6 * len(steps.batch.ids)


CORE = ("gspo", "reinforce", "vanilla")  # one of each kind: per step, without a ratio, per token
# Estimators know nothing of losses: each with one of the three, and all losses with one estimator.
PAIRS = [
    *((estimator, CORE[i % 3]) for i, estimator in enumerate(unlike_estimators())),
    *(("grpo", loss) for loss in sorted({*POLICY_LOSSES} - {"gpg", "steppo"})),  # other names of two others
]
# Weights know nothing of estimators and losses: the pairs take them in turn, and two pairs have all.
CASES = {
    *((*pair, WEIGHTINGS[i % len(WEIGHTINGS)]) for i, pair in enumerate(PAIRS)),
    *product(("gae",), ("vanilla", "gspo"), WEIGHTINGS),
}


@pytest.mark.parametrize(("estimator", "loss", "weighting"), sorted(CASES))
def test_losses_and_gradients_are_those_of_step_rows(laid, estimator, loss, weighting):
    found = get_estimator(estimator)
    c = settings_of(estimator=estimator, loss=loss, weighting=weighting, group=4)
    of = laid[found.needs_critic]
    steps = of["steps"].trained(c, found.critic_at_action_start)
    assert_same(steps, of["tree"].trained(c, found.critic_at_action_start))
    if loss == "vanilla":  # in any cut, and with the KL in the reward
        few = dataclasses.replace(c, micro_tokens=40, kl="reward")
        assert_same(
            of["merged"].trained(few, found.critic_at_action_start),
            of["tree"].trained(few, found.critic_at_action_start),
        )


@st.composite
def trees_of_episodes(draw):
    """Groups of any number of episodes, empty and equal ones among them, over three tokens."""
    token = st.integers(2, 4)
    response, said = st.lists(token, min_size=1, max_size=3), st.lists(token, max_size=2)
    out = []
    for group in range(draw(st.integers(1, 2))):
        for _ in range(draw(st.integers(1, 4))):
            context, words = [1, *draw(st.lists(token, max_size=2))], []
            for _ in range(draw(st.integers(0, 3))):
                if words and draw(st.booleans()) and draw(st.booleans()):
                    context = [1, *draw(said)]
                answer = draw(response)
                words.append((list(context), answer))
                context = [*context, *answer, *draw(said)]
            out.append((group, episode(len(out), group, words, 3)))
    return out


@settings(max_examples=25, deadline=None)
@given(trees_of_episodes(), st.sampled_from(["steppo", "vanilla"]), st.sampled_from([1, 12, 10_000]))
def test_trees_of_any_shape(models, episodes, loss, limit):
    c = settings_of(estimator="reinforce", loss=loss, micro_tokens=limit)
    if not any(e.steps for _, e in episodes):
        return
    steps, trees = (Laid(episodes, layout, models, c, critic=False) for layout in ("steps", "tree"))
    one, two = (x.old[step_order(x.batch)] for x in (steps, trees))
    assert torch.allclose(one, two, atol=1e-6)
    assert_same(steps.trained(c, False), trees.trained(c, False))


def test_mini_batches_are_whole_groups_in_every_layout(models):
    episodes, seen = group_of(1, critic=False), {}
    for layout in ("merged", "tree"):
        for count in (3, 5):
            c = settings_of(mini_batches=count, epochs=2)
            laid = Laid(episodes, layout, models, c, critic=False)
            found = []

            def loss_of(outputs, indices, weights, laid=laid, found=found):
                steps = laid.batch.step[indices][weights != 0]
                found.append(sorted(set(laid.batch.steps.trajectory[steps].tolist())))
                return outputs.all.sum() * 0, {}

            update(models[0], torch.optim.SGD(models[0].parameters(), lr=0.0), laid.batch, c, loss_of, seed=(4,))
            seen[layout, count] = found
    assert seen["merged", 3] == seen["tree", 3] and seen["merged", 5] == seen["tree", 5]
    whole = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 10]]  # the eighth episode is broken
    assert sorted(seen["tree", 3][:3]) == whole and sorted(seen["tree", 3][3:]) == whole
    assert len(seen["tree", 5]) == 10 and sorted(x for part in seen["tree", 5][:5] for x in part) == list(range(11))


def test_a_run_trains_on_trees_and_goes_on_in_another_layout(model_path, tmp_path, capsys):
    words = ["--env", "AgentR1/GSM8KTool-v0", "--model", model_path, "--out", str(tmp_path / "run"),
             "--tasks", "2", "--group", "2", "--eval-tasks", "0", "--max-response-tokens", "4", "--kl", "loss",
             "--mini-batches", "1", "--save-every", "1", "--estimator", "gae"]  # fmt: skip
    for layout, steps in (("tree", "1"), ("merged", "2"), ("tree", "3")):
        assert main([*words, "--layout", layout, "--steps", steps]) == 0, capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    tokens = [line["env/tokens/processed"] for line in lines if line["step"]]
    assert max(tokens[0], tokens[2]) < tokens[1]
    assert all(line["rollout/logprob_diff"] < 1e-4 for line in lines if line["step"])
