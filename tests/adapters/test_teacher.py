"""The solver as on-policy teacher.

1. one update on policy gradient and labels has the gradient of a row for each labelled state, in every layout, in one
   pass and in many, to 1e-6 in float64; a label that is what was done costs no token, another one on trees its own
2. a label's tokens are those that the rollout makes of the same response, in every state of an episode
3. there is no label where the expert has none, at an episode's end, and where the policy could not write it
4. with "silent" only groups without a signal are taught; the weight falls in a straight line
5. a run is taught, alone and beside an estimator, and goes on where it was stopped
"""

from __future__ import annotations

import dataclasses
from functools import partial
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from comparisons import assert_same_records, weights_of  # noqa: E402
from small_runs import small_run, whole_and_in_parts  # noqa: E402
from toy_episodes import toy_episode, toy_model  # noqa: E402

from agent_envs.adapters.estimators import say_once  # noqa: E402
from agent_envs.adapters.losses import WEIGHTINGS, token_weights  # noqa: E402
from agent_envs.adapters.teacher import Labels, labels_in  # noqa: E402
from agent_envs.adapters.tiny.model import load_base  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.adapters.torch.loop import Scores, accumulate, actor_loss, credit, train  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.episodes.record import Step  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402
from agent_envs.policies import ExpertPolicy  # noqa: E402
from agent_envs.prompts.builder import PromptBuilder  # noqa: E402
from agent_envs.rollout.demonstrations import demonstrate  # noqa: E402
from agent_envs.wrappers import ExpertLabels  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def model():
    return toy_model()


def played(seed=0, groups=3, size=3):
    """Episodes of drawn tokens, and labels by (episode, step): some are what was done, some begin so, some are none."""
    rng, episodes, labels = np.random.default_rng(seed), [], {}
    for group in range(groups):
        start = (1, 7 + group, *rng.integers(2, 12, 5).tolist())
        for member in range(size):
            context, steps, name = start, [], f"g{group}_{member}"
            for t in range(int(rng.integers(1, 4))):
                response = tuple(rng.integers(2, 5, int(rng.integers(1, 4))).tolist())
                reward = round(float(rng.normal()), 2) if group else 1.0
                steps.append(Step("o", "a", reward if not t else 0.0, False, False, {}, context, response, None))
                other = (*response[:1], *rng.integers(5, 9, 2).tolist())
                labels[name, t] = ((), response, other, other)[int(rng.integers(4))]
                context = (*context, *response, *rng.integers(5, 7, 2).tolist())
            episodes.append(toy_episode(name, steps, f"g{group}"))
    return episodes, [int(e.group_id[1:]) for e in episodes], labels


def gradient(model):
    found = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    return found


@pytest.mark.parametrize("layout", ["steps", "merged", "tree"])
@pytest.mark.parametrize(("weighting", "micro_tokens"), [*((weighting, 0) for weighting in WEIGHTINGS), ("row", 30)])
def test_one_update_has_the_gradient_of_a_row_for_each_labelled_state(model, weighting, layout, micro_tokens):
    episodes, groups, labels = played()
    c = LoopConfig(env="Toy-v0", out="x", weighting=weighting, group=3, micro_tokens=micro_tokens)
    labels_of = lambda states: [labels[e.episode_id, e.steps.index(step)] for e, step, _ in states]  # noqa: E731

    def policy_part(batch, **more):
        scores = Scores(torch.zeros(len(batch.ids), dtype=torch.float64))
        advantages, _, _ = credit(batch, c, scores)
        loss_of = partial(actor_loss, batch, c, scores, advantages)
        accumulate(model, batch, weights_of(batch, weighting), loss_of, c, **more)
        return gradient(model)

    batch = assemble(episodes, groups, layout=layout, labels_of=labels_of)
    taught = Labels(batch.label, 0.7).weights(weighting, batch.steps.trajectory, torch.zeros(len(batch.start)).long())
    assert float(taught.sum()) == pytest.approx(0.7)
    together = policy_part(batch, taught=taught)
    expected = policy_part(assemble(episodes, groups, layout="steps"))
    states = [(n, s, labels[e.episode_id, t]) for n, e in enumerate(episodes) for t, s in enumerate(e.steps)]
    known = [state for state in states if state[2]]
    of_steps = token_weights(
        weighting,
        torch.tensor([len(ids) for *_, ids in known]),
        torch.tensor([n for n, *_ in known]),
        torch.arange(len(known)),
    )
    for weight, (_, step, ids) in zip(of_steps, known, strict=True):  # a row each, by itself
        row = torch.tensor([[*step.prompt_ids, *ids]])
        log_probs = model(row).logits.log_softmax(-1)[0, len(step.prompt_ids) - 1 : -1]
        (-0.7 * weight * log_probs.gather(1, row[0, len(step.prompt_ids) :, None]).sum()).backward()
    expected += gradient(model)
    assert float(expected.norm()) > 0.01
    assert float((together - expected).abs().max()) < 1e-6
    if layout == "tree":
        bare = assemble(episodes, groups, layout=layout)
        new = sum(len(ids) for _, step, ids in states if ids != step.response_ids)
        assert 0 < batch.trees.nodes - bare.trees.nodes <= new
        same = {n: s.response_ids for n, s in enumerate(s for e in episodes for s in e.steps)}
        copied = assemble(episodes, groups, layout=layout, labels_of=lambda states: [*same.values()])
        assert len(copied.ids) == len(bare.ids) and copied.label.equal(copied.step)


ENVS = [
    ("AgentR1/GSM8KTool-v0", {"level": 2}),
    ("AgentR1/HotpotQA-v0", {"style": "react"}),
    ("AgentR1/ALFWorld-v0", {"size": 1}),
]


def label_of(builder, info, most):
    """The tokens of the label of a state without a prompt, by its info."""
    state = SimpleNamespace(episode_id="e"), SimpleNamespace(prompt_ids=()), info
    return labels_in([state], lambda episode: builder, most, 10_000)[0]


@pytest.mark.parametrize(("env_id", "kwargs"), ENVS)
def test_a_labels_tokens_are_those_that_the_rollout_makes(env_id, kwargs):
    """An expert's demonstration as a conversation of tokens, against the labels on its way."""
    _, tokenizer = load_base()
    env = ExpertLabels(gym.make(env_id, **kwargs))
    infos = []
    really_reset, really_step = env.reset, env.step

    def reset(**how):
        observation, info = really_reset(**how)
        infos.append(info)
        return observation, info

    def step(action):
        result = really_step(action)
        infos.append(result[-1])
        return result

    env.reset, env.step = reset, step
    (demonstration,) = demonstrate(env, ExpertPolicy(), 0)
    builder = PromptBuilder.of_env(env, tokenizer)
    ids, spans = builder.conversation(demonstration.messages, len(demonstration.opening))
    labels = [label_of(builder, info, 1000) for info in infos]
    assert demonstration.success and len(spans) > 1 and labels[-1] == ()
    # the last response of a conversation has nothing after it, so the end of its turn is that of a user's
    assert labels[:-1] == [tuple(ids[start:end]) for start, end in spans]
    assert label_of(builder, infos[0], len(labels[0]) - 1) == () and label_of(builder, {}, 9) == ()


def test_a_call_ends_as_the_template_ends_calls():
    """Where a template ends a call otherwise than an answer, so does a label."""

    class Builder:
        def response(self, text, after=()):
            return [1, 2 if any(m["role"] == "tool" for m in after) else 3]

    said = {"expert_action": "x", "expert_calls": True}
    assert label_of(Builder(), said, 5) == (1, 2)
    assert label_of(Builder(), {**said, "expert_calls": False}, 5) == (1, 3)


def test_there_is_no_label_where_the_expert_has_none():
    env = ExpertLabels(gym.make("AgentR1/GSM8KTool-v0", level=1))
    _, info = env.reset(options={"question": "What is 2 + 2?"})
    assert "expert_action" not in info and "expert_calls" not in info
    _, info = env.reset(seed=0)
    assert info["expert_calls"] is True and info["expert_action"] == env.unwrapped.expert_action()
    *_, info = env.step(info["expert_action"])
    assert info["expert_calls"] is False
    _, _, terminated, _, info = env.step(info["expert_action"])
    assert terminated and info["success"] and "expert_action" not in info


def test_only_groups_without_a_signal_are_taught():
    step, group = torch.tensor([0, 0, 1, 2, -1, 3]), torch.tensor([7, 7, 2, 2])
    labels = Labels(torch.tensor([0, -1, 1, -1, 2, 3]), 1.0)
    silent = labels.without_signal(group, step, torch.tensor([0.0, 0, 0, 0.5, 9, 0]))
    assert silent.step.tolist() == [0, -1, 1, -1, -1, -1]
    assert labels.metrics(step) == {"labels": 4, "weight": 1.0, "agreement": 0.75}


def run(out, model_path, **more):
    how = {"env_kwargs": {"size": 1, "max_episode_steps": 3}, "max_response_tokens": 24, "learning_rate": 1e-2}
    return small_run(out, model_path, **{**how, "teacher": "expert:oracle", **more})


def test_labels_that_the_policy_could_not_write_are_missed(model_path, tmp_path, caplog):
    say_once.cache_clear()
    train(run(tmp_path, model_path, steps=1, max_response_tokens=1))
    assert "no state of a batch has a label" in caplog.text


def test_an_environment_without_an_expert_is_refused(model_path, tmp_path, monkeypatch):
    monkeypatch.setattr("agent_envs.envs.alfworld.env.ALFWorldEnv.expert_action", lambda self: None)
    with pytest.raises(ConfigError, match="has no expert for the first task of its split 'train'"):
        train(run(tmp_path, model_path, steps=1))


def test_a_run_is_taught_and_goes_on_where_it_was_stopped(model_path, tmp_path):
    config = run(tmp_path, model_path, steps=4, teacher_until=4)
    whole, parts = whole_and_in_parts(config)
    first, last = whole[1], whole[4]
    assert [r["teacher/weight"] for r in whole[1:]] == [1.0, 0.75, 0.5, 0.25] and first["teacher/labels"] > 4
    assert last["actor/label_loss"] < 0.8 * first["actor/label_loss"] and "actor/ratio/mean" in first
    assert_same_records(parts, whole)
    with pytest.raises(ConfigError, match="other settings.*teacher_until"):
        train(dataclasses.replace(config, out=str(tmp_path / "parts"), teacher_until=0))
    *_, alone = train(run(tmp_path / "alone", model_path, steps=1, teacher_mode="alone"))
    assert alone["actor/label_loss"] > 0 and "actor/ratio/mean" not in alone
