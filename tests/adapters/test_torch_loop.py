"""The loop in plain PyTorch; its gradients are those of verl's workers (test_loop_beside_verl.py).

1. micro-batches change nothing; mini-batches hold whole episodes and make up all of them
2. the state after a cut episode is what an actor would have been shown; one too long for the model is left out
3. a run leaves metrics and a model, goes on where it was stopped as if it had not been, and refuses other settings
4. broken episodes and steps without tokens are not trained
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from comparisons import assert_same_records, gradients, relative, weights_of, without_times  # noqa: E402
from small_runs import small_run  # noqa: E402
from toy_episodes import drawn_episodes, toy_episode  # noqa: E402

from agent_envs.adapters.batches import LAST_STATE, with_last_state  # noqa: E402
from agent_envs.adapters.losses import action_start  # noqa: E402
from agent_envs.adapters.tiny import warm_start  # noqa: E402
from agent_envs.adapters.tiny.model import save_model  # noqa: E402
from agent_envs.adapters.torch import distillation  # noqa: E402
from agent_envs.adapters.torch.loop import (  # noqa: E402
    Outputs,
    Scores,
    accumulate,
    actor_loss,
    assemble,
    credit,
    main,
    mean_log_ratio,
    score,
    token_log_probs,
    train,
    update,
)
from agent_envs.adapters.torch.run import Run, gigabytes  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.cli.main import main as agentr1  # noqa: E402
from agent_envs.episodes.record import Step, StopReason, read_episodes  # noqa: E402
from agent_envs.episodes.run_folder import locked_folder  # noqa: E402
from agent_envs.episodes.statistics import difference  # noqa: E402
from agent_envs.errors import BackendError, ConfigError, DataError  # noqa: E402
from agent_envs.http.pool import HTTPPool  # noqa: E402
from tests.helpers import full_disk, tells_the_last_prompt  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def config(**settings):
    return LoopConfig(env="Toy-v0", out="nowhere", gamma=0.95, lam=0.9, group=3, **settings)


def batch_of(episodes):
    return assemble([episode for _, _, episode in episodes], [group for group, _, _ in episodes])


# ------------------------------------------------------------------------------------------------ the loop itself


@pytest.fixture
def model(model_path):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_path).eval()


def test_the_cut_into_micro_batches_changes_nothing(model):
    c = config(loss="capo", entropy_coef=0.1)  # whose centre is that of all of them
    batch = batch_of(drawn_episodes(7, "mixed"))
    now = score(model, batch, c)
    noise = torch.randn(len(now), generator=torch.Generator().manual_seed(1)) * 0.1
    scores = Scores(torch.where(batch.step >= 0, now + noise, 0.0))  # the policy has moved
    advantages, _, _ = credit(batch, c, scores)
    weights = weights_of(batch, "trajectory")
    found = []
    for limit in (10_000, 60, 1):
        cut = dataclasses.replace(c, micro_tokens=limit)
        assert torch.allclose(score(model, batch, cut), now, atol=1e-5)
        centre = mean_log_ratio(model, batch, cut, scores.old, weights)
        of = partial(actor_loss, batch, cut, scores, advantages, mean_log_ratio=centre)
        total, metrics = accumulate(model, batch, weights, of, cut)
        found.append((total, gradients(model), int(metrics["ppo_kl"].count)))
    for total, grads, count in found[1:]:
        assert total == pytest.approx(found[0][0], abs=1e-6)
        assert count == found[0][2] == int((batch.step >= 0).sum())
        assert relative(grads, found[0][1]) <= 1e-5


def test_mini_batches_are_whole_episodes_and_all_of_them(model):
    c = config(epochs=2, mini_batches=2)
    batch = batch_of(drawn_episodes(8, "grow"))
    scores = Scores(score(model, batch, c))
    advantages, _, _ = credit(batch, c, scores)
    seen = []

    def loss_of(outputs, places, weights):
        seen.append(torch.zeros(len(batch.ids)).index_copy_(0, places, weights))
        return actor_loss(batch, c, scores, advantages, outputs, places, weights)

    metrics = update(model, torch.optim.SGD(model.parameters(), lr=0.1), batch, c, loss_of, seed=(1,))
    assert len(seen) == 4 and metrics["ratio/moved"] > 0  # from the second update on it is another policy
    owner = batch.steps.trajectory[batch.step]
    for first, second in (seen[:2], seen[2:]):
        assert float(first.sum()) == pytest.approx(1) and float(second.sum()) == pytest.approx(1)
        assert torch.equal((first != 0) ^ (second != 0), batch.step >= 0)
        assert not set(owner[first != 0].tolist()) & set(owner[second != 0].tolist())
    assert not torch.equal(seen[0] != 0, seen[2] != 0)

    seen.clear()  # a critic of the states before acting
    update(model, torch.optim.SGD(model.parameters(), lr=0.1), batch, c, loss_of, at_start=True)
    assert torch.equal((seen[0] != 0) | (seen[1] != 0), action_start(batch.step))
    assert float(seen[0].sum()) == pytest.approx(1)


def test_gradients_are_clipped(model):
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    c = config(mini_batches=1, grad_clip=1e-2)
    batch = batch_of(drawn_episodes(8, "grow"))
    scores = Scores(score(model, batch, c))
    loss_of = partial(actor_loss, batch, c, scores, credit(batch, c, scores)[0])
    metrics = update(model, torch.optim.SGD(model.parameters(), lr=1.0), batch, c, loss_of)
    moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert metrics["grad_norm"] > 0.1 and float(moved.norm()) == pytest.approx(1e-2, rel=1e-2)


def test_the_entropys_gradient_is_made_only_for_a_bonus():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for coefficient in (0.0, 0.1):
        log_probs, entropy = token_log_probs(Outputs(logits), torch.tensor([0, 4, 2]), config(entropy_coef=coefficient))
        assert log_probs.requires_grad and entropy.requires_grad == bool(coefficient)
    assert torch.allclose(entropy, torch.distributions.Categorical(logits=logits).entropy(), atol=1e-6)


def test_an_infos_own_last_state_is_a_step_like_others():
    (_, _, episode), *_ = drawn_episodes(3, "grow", groups=1, per_group=1)
    steps = tuple(dataclasses.replace(step, info={**step.info, "last_state": True}) for step in episode.steps)
    batch = assemble([dataclasses.replace(episode, steps=steps)], [0])
    assert bool(batch.steps.valid.all()) and int((batch.step >= 0).sum()) == sum(len(s.response_ids) for s in steps)


def test_the_columns_that_the_page_shows(root):
    """docs/torch_loop.md: prompt 1 2 answered with 3 4, then 9 with 5."""
    first = Step("o", "a", 0.0, False, False, {}, (1, 2), (3, 4), (-0.5, -0.5))
    last = Step("o", "a", 1.0, True, False, {}, (1, 2, 3, 4, 9), (5,), (-0.5,))
    batch = assemble([toy_episode("e", [first, last])], [0])
    columns = {"ids": batch.ids, "step": batch.step, "weight": weights_of(batch, "trajectory")}
    page = (root / "docs" / "torch_loop.md").read_text(encoding="utf-8")
    for name, column in columns.items():
        (cells,) = re.findall(rf"^\| `?{name}[^|]*\|(.*)\|$", page, flags=re.MULTILINE)
        assert [float(Fraction(cell)) for cell in cells.split("|")] == column.tolist()
    assert batch.row.tolist() == [0] * 6 and batch.start.tolist() == [2, 5]


def test_broken_episodes_and_steps_without_tokens_are_left_out():
    episodes = [episode for _, _, episode in drawn_episodes(9, "grow", groups=1, per_group=3)]
    episodes[1] = dataclasses.replace(episodes[1], stop_reason=StopReason.STEP_TIMEOUT)
    bare = dataclasses.replace(episodes[2].steps[0], prompt_ids=None, response_ids=None)
    episodes[2] = dataclasses.replace(episodes[2], steps=(bare, *episodes[2].steps))
    batch = assemble(episodes, [7, 8, 9], baselines=[1.0, 2.0, 3.0])
    assert batch.steps.group.unique().tolist() == [7, 9]
    assert batch.steps.names == [episodes[0].episode_id, episodes[2].episode_id]
    assert batch.steps.baseline.unique().tolist() == [1.0, 3.0]
    assert batch.steps.step[batch.steps.trajectory == 1].tolist() == list(range(1, len(episodes[2].steps)))
    assert int((batch.step >= 0).sum()) == sum(
        len(s.response_ids or ()) for e in (episodes[0], episodes[2]) for s in e.steps
    )


def test_the_state_after_a_cut_episode_is_what_an_actor_would_be_shown(model, model_path):
    from transformers import AutoTokenizer

    from agent_envs.policies import TransformersPolicy
    from agent_envs.rollout.many import run_episodes

    tokenizer = AutoTokenizer.from_pretrained(model_path)

    def played(limit, agent=None):
        policy = TransformersPolicy(model, tokenizer=tokenizer, temperature=1.0, max_tokens=8, context_length=2048,
                                    concurrency=1, seed=0)  # fmt: skip
        kwargs = {"size": 1, "max_episode_steps": limit}
        (episode,) = run_episodes("AgentR1/ALFWorld-v0", policy, 1, options={"index": 0}, progress=False, agent=agent,
                                  env_kwargs=kwargs)  # fmt: skip
        policy.close()
        return episode

    short, long = played(2), played(3)
    assert short.stop_reason is StopReason.TRUNCATED and short.steps == long.steps[:1] + short.steps[1:]
    state = with_last_state(short, tokenizer, 2048).steps[-1]
    assert state.info == {LAST_STATE: True} and state.prompt_ids == long.steps[2].prompt_ids
    assert with_last_state(short, tokenizer, len(state.prompt_ids)) is short  # no room left in the model
    done = dataclasses.replace(short, steps=(dataclasses.replace(short.steps[0], truncated=False),))
    assert with_last_state(done, tokenizer, 2048) is done

    told = played(2, agent=tells_the_last_prompt)
    after = with_last_state(told, tokenizer, 2048).steps[-1]
    assert after.prompt_ids == state.prompt_ids and after.time == 2 and after.info == {LAST_STATE: True}


def settings(out, start, **more):
    """With all that a run may have: evaluations, a critic and a reference."""
    full = {"eval_tasks": 2, "estimator": "gae", "kl": "reward", "entropy_coef": 0.1, "temperature": 0.7}
    return small_run(out, start, **{**full, **more})


def test_a_stopped_run_goes_on_as_if_it_had_not_been(model_path, tmp_path):
    whole = train(settings(tmp_path / "whole", model_path, steps=3))
    in_time = settings(tmp_path / "parts", model_path, steps=3, minutes=1e-6, eval_every=3)
    assert len(train(dataclasses.replace(in_time, save_every=9))) == 2  # stops after an iteration, with a checkpoint
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "stopped": "before its checkpoint"}\n{"step')  # as a kill leaves it
    parts = train(settings(tmp_path / "parts", model_path, steps=3))
    assert [record["step"] for record in whole] == [0, 1, 2, 3]
    assert_same_records(parts[2:], whole[2:])
    lines = (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2, 3]
    assert whole[-1]["val/episodes"] == 2 and whole[-1]["rollout/logprob_diff"] < 1e-4
    assert "critic/vpred_mean" in whole[-1] and whole[1]["actor/reward_kl_penalty"] == pytest.approx(0, abs=1e-6)
    assert whole[-1]["actor/reward_kl_penalty"] > 1e-6
    assert (tmp_path / "whole" / "checkpoint" / "model" / "tokenizer.json").exists()
    with pytest.raises(ConfigError, match="other settings.*seed was 0, now 1"):
        train(settings(tmp_path / "parts", model_path, steps=3, seed=1))
    assert without_times(train(settings(tmp_path / "parts", model_path, steps=3))) == without_times(parts)
    more = train(settings(tmp_path / "parts", model_path, steps=4, eval_every=2))
    assert ["val/success" in record for record in more] == [True, False, False, True, True]


def test_every_number_of_the_settings_is_finite():
    for field in dataclasses.fields(LoopConfig):
        if isinstance(field.default, float):
            for value in (math.nan, math.inf):
                with pytest.raises(ConfigError, match=f"{field.name}.* must be a number"):
                    LoopConfig(env="Toy-v0", out="x", teacher="expert", **{field.name: value})


def test_a_failed_evaluation_loses_no_iteration(model_path, tmp_path, monkeypatch):
    """What it would have said is said by the run that goes on."""
    from agent_envs.adapters.torch import loop as torch_loop

    run = small_run(tmp_path / "run", model_path, steps=2, eval_tasks=2, eval_every=2, save_every=9)
    really = torch_loop.evaluate

    def down(run, number):
        if number:
            raise BackendError("nothing answers")
        return really(run, number)

    monkeypatch.setattr(torch_loop, "evaluate", down)
    with pytest.raises(BackendError, match="nothing answers"):
        train(run)
    monkeypatch.setattr(torch_loop, "evaluate", really)
    records = train(run)
    assert_same_records(records, train(dataclasses.replace(run, out=str(tmp_path / "whole"))))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == records and "val/success" in records[2]


def test_environments_of_one_name_are_told_apart(monkeypatch):
    """In metrics by their namespaces; episodes record ids without the module that registers them."""
    from agent_envs.adapters.torch import tasks

    monkeypatch.setattr(tasks, "tasks_of", lambda one, name: tasks.Tasks(name, one, 1, [], None, f"tools of {one.env}"))
    c = LoopConfig(env=("mine:A/X-v0=1", "B/X-v0=1", "B/Y-v0=1"), out="x")
    own = tasks.RunTasks(c)
    assert [of.name for of in own.environments] == ["A/X-v0", "B/X-v0", "Y-v0"]
    assert own.tool_instructions(SimpleNamespace(env_id="A/X-v0")) == "tools of mine:A/X-v0"


def test_one_process_at_a_time_uses_a_folder(model_path, tmp_path):
    run = small_run(tmp_path / "run", model_path, steps=0)
    with locked_folder(tmp_path / "run"), pytest.raises(ConfigError, match="another process is using"):
        train(run)
    train(run)


def test_metrics_or_checkpoint_that_a_kill_or_a_user_took(model_path, tmp_path):
    run, folder = small_run(tmp_path / "run", model_path, steps=0), tmp_path / "run"
    train(run)
    shutil.rmtree(folder / "checkpoint")  # as a kill leaves it before the first one is there
    assert [record["step"] for record in train(run)] == [0] and (folder / "checkpoint" / "model").is_dir()
    before = train(run := dataclasses.replace(run, steps=1))
    (folder / "checkpoint").rename(folder / ".checkpoint.old")  # as one leaves it that comes while it is replaced
    assert train(run) == before and (folder / "checkpoint").is_dir()  # times and all: nothing is left to do
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match="cannot be resumed.*metrics.jsonl lacks its step, 1: put it back"):
        train(dataclasses.replace(run, steps=2))
    assert not (folder / "metrics.jsonl").exists()


def test_a_wrong_teacher_or_a_damaged_warm_start_is_one_message(model_path, tmp_path, monkeypatch, capsys):
    """What the run takes is said before anything is computed, and nothing is left that stands in the way."""
    monkeypatch.setattr(distillation, "HTTPPool", partial(HTTPPool, backoff=0.01))
    run = small_run(tmp_path / "run", "", steps=0, teacher="x@http://127.0.0.1:9/v1")
    with pytest.raises(BackendError):
        train(run)
    (tmp_path / "run" / ".start.warm-start.pt").write_bytes(b"damaged")
    assert not (tmp_path / "run" / "start").exists()
    (tmp_path / "run" / ".start.warm-start.pt").unlink()
    train(dataclasses.replace(run, teacher="expert"))
    warm = dataclasses.replace(run, out=str(tmp_path / "warm"), teacher="", warm_start=2, model=model_path)
    (tmp_path / "warm").mkdir()
    (tmp_path / "warm" / ".start.warm-start.pt").write_bytes(b"damaged")
    capsys.readouterr()
    with pytest.raises(DataError, match="start.warm-start.pt is damaged .* delete it"):
        train(warm)
    assert "memory: about" in capsys.readouterr().err


def test_the_memory_of_a_run_grows_with_the_episodes_played_at_once(model_path):
    run = settings("x", model_path, steps=1)
    few, many = (gigabytes(dataclasses.replace(run, tasks=64, concurrency=n), model_path) for n in (1, 65))
    text = transformers.AutoConfig.from_pretrained(model_path)
    head = text.hidden_size // text.num_attention_heads
    cache = 2 * 4 * text.num_hidden_layers * text.num_key_value_heads * head * run.max_tokens
    assert many - few == pytest.approx(64 * cache / 1e9)


def test_a_full_disk_is_one_message_and_the_last_checkpoint_stays(model_path, tmp_path, monkeypatch, capsys):
    run = small_run(tmp_path / "run", model_path, steps=2)
    train(dataclasses.replace(run, steps=1))
    files = {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoint").rglob("*.*")}
    model, optimizers = (max(len(files[p]) for p in files if p.suffix == kind) for kind in (".safetensors", ".pt"))
    assert 3000 < model < optimizers
    monkeypatch.setattr("agent_envs.adapters.torch.loop.read_command_line", lambda argv: run)
    for room in (3000, model // 2, optimizers - 1000):  # for a tokenizer, weights, the state of an optimizer
        with full_disk(room):
            assert main([]) == 1
        error = capsys.readouterr().err
        assert "the weights cannot be written: " in error and "File too large" in error and "Traceback" not in error
        assert {path: path.read_bytes() for path in (tmp_path / "run" / "checkpoint").rglob("*.*")} == files
        assert not (tmp_path / "run" / ".checkpoint.parts").exists()
    assert [record["step"] for record in train(run)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--estimator", "grop"], "got 'grop'. Did you mean 'grpo'?"),
        (["--loss", "x"], "the policy loss must be one of 'capo', 'cispo'"),
        (["--kl", "x"], "kl must be one of 'none', 'loss', 'reward', got 'x'"),
        (["--kl-kind", "x"], "kl_kind must be one of"),
        (["--weighting", "rows"], "got 'rows'. Did you mean 'row'?"),
        (["--gamma", "2"], "gamma must be a number from 0 to 1, got 2.0"),
        (["--tasks", "0"], "tasks must be an integer of at least 1, got 0"),
        (["--env-kwargs", "[1]"], "--env-kwargs must be a JSON object"),
        (["--env-kwargs", '{"split": "test"}'], "--split, --eval-split"),
        (["--env-kwargs", '{"levle": 1}'], "GSM8KEnv does not take 'levle'. Did you mean 'level'?"),
        (["--split", "tset"], "got 'tset'. Did you mean 'test'?"),
        (["--env", "AgentR1/Nothing-v0"], "unknown environment 'AgentR1/Nothing-v0'"),
        (["--device", "cuda:99"], "there is no device 'cuda:99' here"),
        (["--device", "gpu"], "there is no device 'gpu' here"),
        (["--model", "no/such/folder/here"], "'no/such/folder/here' has no Hugging Face tokenizer"),
    ],
)
def test_bad_settings_are_one_message(tmp_path, capsys, options, says):
    known = [] if "--env" in options else ["--env", "AgentR1/GSM8K-v0"]
    assert main([*known, "--out", str(tmp_path / "run"), *options]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"teacher": "solver"}, "the teacher is expert"),
        ({"teacher": "expert", "teacher_weight": 0.0}, "teacher_weight must be a number above 0"),
        ({"teacher": "expert", "teacher_mode": "only"}, "teacher_mode must be one of"),
        ({"teacher_until": 3}, "are a teacher's: add teacher=expert"),
        ({"teacher": "expert", "teacher_mode": "alone", "teacher_until": 3, "group": 1}, "group must be at least 2"),
        ({"teacher": "expert", "agent": "agent_envs.agents:loop"}, "leave out agent or teacher"),
        ({"train_roles": ("x",)}, "add agent"),
        ({"branch": "3-1:2"}, "branch is FIRST-LAST:COUNT"),
        ({"branch": "0:1"}, "branch is FIRST-LAST:COUNT"),
        ({"branch": "1:3", "group": 4}, "at least two times 4 episodes, got group=4"),
        ({"branch": "1:1", "estimator": "gae"}, "such as rloo; got 'gae'"),
        ({"branch": "1:1", "kl": "reward"}, "whose returns are the environment's: leave out kl"),
        ({"branch": "1:1", "step_timeout": 5.0}, "leave out step_timeout"),
        ({"branch": "1:1", "estimator": "gigpo", "gamma": 0.9}, "leave out gamma"),
        ({"entropy_coef": -5.0}, "entropy_coef must be a number of at least 0"),
        ({"demo_noise": -5.0}, "demo_noise must be a number from 0 to 1"),
        ({"curriculum": "fixed"}, "chooses among levels: add levels"),
        ({"levels": {"split": ["train", "test"]}}, "name the splits and the data with options of their own"),
        ({"refill": 3, "estimator": "gae"}, "refill is for estimators"),
        ({"refill": 3, "teacher": "expert", "teacher_mode": "silent"}, "leave out one"),
        ({"env": ("A-v0=1", "B-v0=1"), "warm_start": 5}, "of one environment: leave them out with several"),
        ({"env": ("A-v0", "B-v0")}, "several environments need weights: --env A-v0=0.5"),
        ({"env": ("A-v0=1", "B-v0=1"), "env_kwargs": {"level": 1}}, "several environments --env-kwargs is"),
    ],
)
def test_settings_that_do_not_go_together(settings, says, monkeypatch):
    monkeypatch.setattr("agent_envs.adapters.torch.settings.load_agent", lambda name: None)
    with pytest.raises(ConfigError, match=says):
        LoopConfig(**{"env": "Toy-v0", "out": "x", **settings})


def test_a_wrong_model_leaves_no_settings_that_stand_in_the_way(tmp_path, model_path, capsys):
    (tmp_path / "empty").mkdir()
    options = ["--env", "AgentR1/GSM8K-v0", "--out", str(tmp_path / "run"), "--steps", "0", "--eval-tasks", "0"]
    assert main([*options, "--model", str(tmp_path / "empty")]) == 2
    assert "has no Hugging Face tokenizer: the folder has no config.json" in capsys.readouterr().err
    assert main([*options, "--model", str(model_path), "--max-tokens", "1024"]) == 0


def test_ratios_that_never_leave_1_are_said_once(model_path, tmp_path, caplog):
    train(small_run(tmp_path / "run", model_path, steps=4, mini_batches=1, estimator="reinforce"))
    assert caplog.text.count("no ratio of the vanilla loss has left 1") == 1


def test_the_log_ratios_of_a_run_are_recorded_by_update(model_path, tmp_path):
    """Each update has the lengths of its steps, which are all that was trained; the first has not moved."""
    how = {"steps": 1, "mini_batches": 2, "epochs": 2, "loss": "capo", "entropy_coef": 1.0}
    record = train(small_run(tmp_path / "run", model_path, ratios_dir=str(tmp_path / "ratios"), **how))[-1]
    updates = dict[tuple[int, int], list[tuple[int, float]]]()
    for line in map(json.loads, next((tmp_path / "ratios").iterdir()).read_text().splitlines()):
        steps = zip(line["length"], line["log_ratio_sum"], strict=True)
        updates.setdefault((line["step"], line["update"]), []).extend(steps)
    assert sorted(updates) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert sum(length for steps in updates.values() for length, _ in steps) == 2 * record["env/tokens/trained"]
    moved = [max(abs(total) for _, total in updates[1, number]) for number in range(4)]
    assert moved[0] < 1e-5 < min(moved[1:])


def test_too_many_broken_episodes_stop_a_run(model_path, tmp_path, monkeypatch):
    """A quarter of every group breaks: the others are compared with each other, and the third iteration is the last."""
    from agent_envs.adapters.torch import loop as torch_loop
    from agent_envs.adapters.torch import playing

    really_play, really_assemble, groups = playing.play, torch_loop.assemble, []

    def play(*how):
        episodes = really_play(*how)
        down = {"stop_reason": StopReason.ERROR, "error": "Traceback ...\nx.BackendDownError: nothing answers"}
        return [dataclasses.replace(e, **(down if i % 4 == 1 else {})) for i, e in enumerate(episodes)]

    def assemble(episodes, *rest):
        batch = really_assemble(episodes, *rest)
        groups.append([len(batch.steps.trajectory[batch.steps.group == g].unique()) for g in (0, 1)])
        return batch

    monkeypatch.setattr(playing, "play", play)
    monkeypatch.setattr(torch_loop, "assemble", assemble)
    c = small_run(tmp_path / "run", model_path, steps=4, group=4, max_broken=0.24)
    with pytest.raises(
        BackendError, match="(?s)6 of the 24 .* last 3 steps broke, and 24%.*first of 6 BackendDownError"
    ):
        train(c)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    counts = {name: lines[-1][f"env/{name}"] for name in ("episodes", "broken", "broken/BackendDownError")}
    assert lines[-1]["step"] == 2 and counts == {"episodes": 6, "broken": 2, "broken/BackendDownError": 2}
    assert groups == [[3, 3]] * 2  # the third iteration does not train


def test_groups_and_greedy_baselines_go_with_their_episodes(model_path, tmp_path, monkeypatch):
    from agent_envs.adapters.torch import loop as torch_loop
    from agent_envs.adapters.torch import playing

    asked, seeds, assembled = [], [], []
    really_play, really_update, really_assemble = playing.play, torch_loop.update, torch_loop.assemble

    def play(run, of, number, split, tasks, per_task, temperature, taught=False):
        asked.append((split, len(tasks), per_task, temperature))
        episodes = really_play(run, of, number, split, tasks, per_task, temperature)
        if temperature:
            return episodes
        paid = [dataclasses.replace(e.steps[0], reward=float(i)) for i, e in enumerate(episodes)]
        return [dataclasses.replace(e, steps=(step,)) for e, step in zip(episodes, paid, strict=True)]

    def update(*args, seed, **kwargs):
        seeds.append(seed)
        return really_update(*args, seed=seed, **kwargs)

    def assemble(episodes, groups, baselines, *rest):
        assembled.append(([e.index for e in episodes], list(groups), baselines))
        return really_assemble(episodes, groups, baselines)

    monkeypatch.setattr(playing, "play", play)
    for function in (update, assemble):
        monkeypatch.setattr(torch_loop, function.__name__, function)
    train(small_run(tmp_path / "run", model_path, steps=2, estimator="remax", group=3))
    step = [("train", 2, 3, 1.0), ("train", 2, 1, 0.0)]
    assert [call for call in asked if call[0] == "train"] == step * 2 and seeds == [(0, 1), (0, 2)]
    for indices, groups, baselines in assembled:
        assert indices == [indices[0]] * 3 + [indices[3]] * 3 and indices[0] != indices[3]
        assert groups == [0, 0, 0, 1, 1, 1] and baselines == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def test_no_steps_leave_the_warm_start_as_a_checkpoint_to_go_on_from(tmp_path):
    config = LoopConfig(
        env="AgentR1/GSM8KTool-v0", env_kwargs={"level": 1, "max_episode_steps": 2}, out=str(tmp_path), steps=0,
        tasks=2, group=2, eval_tasks=2, warm_start=2, max_response_tokens=8,
    )  # fmt: skip
    (before,) = train(config)
    weights = [(tmp_path / of / "model.safetensors").read_bytes() for of in ("start", "checkpoint/model")]
    assert before["step"] == 0 and weights[0] == weights[1]
    assert [record["step"] for record in train(dataclasses.replace(config, steps=1))] == [0, 1]


@pytest.mark.parametrize(("capabilities", "dtype"), [({"avx512_bf16": True}, "bfloat16"), ({"avx2": True}, "float32")])
def test_a_processor_without_bfloat16_computes_in_float32(
    model_path, tmp_path, monkeypatch, capsys, capabilities, dtype
):
    """It would take up to 80 times as long; the setting is the same, so that another machine can resume the run."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    out = tmp_path / "run"
    config = LoopConfig(env="AgentR1/GSM8KTool-v0", model=model_path, out=str(out), dtype="bfloat16", device="cpu")
    assert Run(config).config.dtype == dtype
    assert ("float32 in place of bfloat16" in capsys.readouterr().err) == (dtype == "float32")
    settings = json.loads((out / "run.json").read_text())
    assert (settings["dtype"], settings["computed_in"]) == ("bfloat16", dtype)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    assert Run(config).config.dtype == "bfloat16"


def test_the_command_line_trains(model_path, tmp_path, capsys):
    out = tmp_path / "run"
    assert main([
        "--env", "AgentR1/ALFWorld-v0", "--env-kwargs", '{"size": 1, "max_episode_steps": 2}', "--out", str(out),
        "--model", model_path, "--steps", "1", "--tasks", "2", "--group", "2", "--eval-tasks", "3", "--estimator",
        "gigpo", "--max-response-tokens", "6", "--wrapper", "StepPenalty(penalty=0.1)", "--dtype", "bfloat16",
    ]) == 0  # fmt: skip
    said, noted = capsys.readouterr()
    assert "memory: about 0." in noted
    assert "on 3 held-out tasks" in said and "difference" in said and str(out / "metrics.jsonl") in said
    played = ["eval", "--checkpoint", str(out), "--n", "1", "--out", str(tmp_path / "eval"), "--quiet"]
    assert agentr1(played) == 0 and "StepPenalty(penalty=0.1)" in capsys.readouterr().err
    (episode,) = read_episodes(tmp_path / "eval" / "episodes.jsonl")
    assert episode.env_id == "AgentR1/ALFWorld-v0" and len(episode.steps) == 2
    assert max(len(step.response_ids) for step in episode.steps) <= 6


def test_the_pages_example_trains(root, model_path, tmp_path, monkeypatch, capsys):
    text = (root / "docs" / "torch_loop.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    small = f"steps=1, tasks=2, group=2, eval_tasks=2, max_response_tokens=8, model={model_path!r},"
    exec(compile(block.replace("steps=40,", small), "docs/torch_loop.md", "exec"), {})
    assert capsys.readouterr().out.split() == ["0.0", "0.0"]
    assert (tmp_path / "runs" / "loop" / "checkpoint" / "model" / "config.json").exists()


REBUILT = ("ChatMessages", "SlidingWindow(k=1)")


@pytest.mark.parametrize(
    ("kind", "sizes", "wrappers"),
    [
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 1024}, REBUILT),  # places are learned
        ("gemma2", {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 16}, ()),  # windows, capped logits
    ],
)
def test_other_models_and_rebuilt_prompts_train(model_path, tmp_path, kind, sizes, wrappers):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_path)
    common = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes = {**({} if kind == "gpt2" else common), **sizes}
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, vocab_size=len(tokenizer), **ids, **sizes))
    save_model(model, tokenizer, tmp_path / "start")
    c = small_run(
        tmp_path / "run", str(tmp_path / "start"), steps=1, wrappers=wrappers, max_tokens=1024, estimator="gae",
        env_kwargs={"size": 1, "max_episode_steps": 3},
    )  # fmt: skip
    if kind == "gpt2":
        with pytest.raises(ConfigError, match="takes 1024 tokens, but max_tokens is 2048"):
            train(dataclasses.replace(c, max_tokens=2048, out=str(tmp_path / "longer")))
    record = train(c)[-1]
    assert record["rollout/logprob_diff"] < 1e-5 and record["actor/grad_norm"] > 0 and record["env/broken"] == 0
    assert record["env/rows"] > 4 if wrappers else record["env/rows"] == 4


@pytest.mark.slow
def test_it_learns(tmp_path):
    """tiny-base, on tasks it has never seen."""
    torch.set_num_threads(2)
    records = train(LoopConfig(
        env="AgentR1/GSM8KTool-v0", env_kwargs={"level": 1}, wrappers=("FormatReward(weight=0.1)",),
        out=str(tmp_path / "run"), steps=20, eval_tasks=400, device="cpu",
    ))  # fmt: skip
    first, last = records[0]["val/success"], records[-1]["val/success"]
    assert difference(first, 400, last, 400).low > 0, (first, last)


@pytest.mark.parametrize("expert", [True, False])
def test_a_warm_start_shows_the_run_s_own_tasks_if_an_expert_knows_them(tmp_path, monkeypatch, capsys, expert):
    passages = [{"title": f"Painting {n}", "text": f"It hangs in room {n}."} for n in range(4)]
    rows = [{"id": str(n), "question": f"Where does painting {n} hang?", "answers": [f"room {n}"]} for n in range(4)]
    (tmp_path / "passages.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    for split in ("train", "test"):
        supported = [row | ({"supporting": [f"Painting {row['id']}"]} if expert else {}) for row in rows]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in supported))
    asked = []

    def encode(demonstrations, *args, **kwargs):
        asked.append(next(iter(demonstrations)).messages[1]["content"])
        raise ConfigError("seen enough")

    monkeypatch.setattr(warm_start, "encode", encode)
    config = LoopConfig(
        env="AgentR1/HotpotQA-v0", data=str(tmp_path), env_kwargs={"corpus": str(tmp_path / "passages.jsonl")},
        out=str(tmp_path / "run"), warm_start=1, steps=0,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="seen enough"):
        train(config)
    assert (asked[0] in [row["question"] for row in rows]) == expert
    assert ("generated ones are shown" in capsys.readouterr().err) == (not expert)


def test_several_environments_start_from_tiny_base(tmp_path):
    config = LoopConfig(
        env=("AgentR1/GSM8K-v0=0.5", "AgentR1/GSM8KTool-v0=0.5"), out=str(tmp_path), steps=0, eval_tasks=1,
        max_response_tokens=4,
    )  # fmt: skip
    assert train(config)[0]["val/episodes"] == 2
