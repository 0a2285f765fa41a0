"""The trainer's own parts, without workers.

1. requests carry the columns they read, and leave nothing on a batch for the next one; what they write is cut to the
   responses; mini-batches are of prompts, or of steps where that is asked for
2. what verl measures of rows does not take the place of what is measured of steps and episodes
3. stored episodes get the advantages of their tokens
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from composing import composed
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agent_envs.adapters.branches import Tree
from agent_envs.adapters.run import FailureBudget
from agent_envs.adapters.verl.batch import phases
from agent_envs.adapters.verl.batch.metrics import BatchPart, batch_metrics, endings
from agent_envs.adapters.verl.batch.rows import with_token_values
from agent_envs.adapters.verl.batch.table import step_table
from agent_envs.adapters.verl.batch.trainer import EnvTrainer
from agent_envs.adapters.verl.rollout.episode_rows import PADDING, episode_record, episode_rows, parts_of
from agent_envs.adapters.verl.run.folder import PhaseFile, PhaseWatch
from agent_envs.episodes.record import Episode, Step, StopReason
from agent_envs.errors import BackendError

pytestmark = pytest.mark.filterwarnings("ignore")


def record(name: str) -> dict:
    """A row of one step."""
    step = {"index": 0, "start": 0, "end": 2, "prompt_tokens": 3, "reward": float(name == "u_1"), "components": {},
            "terminated": True, "truncated": False, "anchor": ""}  # fmt: skip
    episode = Episode(
        env_id="e", episode_id=name, group_id="u", seed=None, index=0, instructions="", tools=(), reset_info={},
        steps=(Step("o", "a", 1.0, True, False, {"success": True}, prompt_ids=(1, 2, 3), response_ids=(4, 5)),),
        final_observation="", stop_reason=StopReason.TERMINATED,
    )  # fmt: skip
    timing = {"generate_sequences": [0.1], "tool_calls": [0.2], "total": 0.3, "queued": 0.0}
    return {"kind": "step", "trajectory": name, "steps": [step], "value_at": -1, "timing": timing,
            "record": episode_record(episode)}  # fmt: skip


def trainer_of(out: Path, *overrides: str) -> EnvTrainer:
    run = composed(*overrides, env="AgentR1/GSM8K-v0", algo="grpo", steps=2, out=str(out), model="m")
    return EnvTrainer(run.verl())


@pytest.mark.parametrize("name", ["_compute_old_log_prob", "_compute_ref_log_prob", "_compute_values"])
def test_a_request_carries_what_it_reads_and_leaves_nothing_for_the_next(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    asked = []

    def verls_own(self: PPOTrainerSync, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        batch.extra_info.update(compute_loss=False, no_lora_adapter=True)  # verl/trainer/ppo/v1/trainer_base.py:1704
        asked.append(batch)
        return KVBatchMeta()

    monkeypatch.setattr(PPOTrainerSync, name, verls_own)
    given = KVBatchMeta(["u_0_0"], [{"seq_len": 4}], "train", extra_info={"temperature": 1.0})
    trainer = object.__new__(EnvTrainer)
    trainer.phase = PhaseFile(None)
    for trainer.sees in (False, True):
        batch = getattr(trainer, name)(given, {})
        assert batch is given and batch.extra_info == {"temperature": 1.0} and batch.fields is None
        assert asked[-1].keys == batch.keys and asked[-1].extra_info["temperature"] == 1.0
        assert {"input_ids", "response_mask"} <= set(asked[-1].fields) and "extra_fields" not in asked[-1].fields
        assert ("multi_modal_inputs" in asked[-1].fields) == trainer.sees


class Queue:
    """TransferQueue's columns by name, one row."""

    def __init__(self, columns: dict) -> None:
        self.columns = columns

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        return TensorDict({name: self.columns[name] for name in select_fields}, batch_size=len(keys))

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        self.columns.update(fields.items())
        return KVBatchMeta()


def test_a_token_baseline_gets_the_sums_of_squares_of_the_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor writes them at the position before each token of prompt and response, as it does log-probabilities."""
    jagged = torch.nested.nested_tensor_from_jagged
    queue = Queue({"response_mask": jagged(torch.tensor([1, 0, 1, 1]), torch.tensor([0, 3, 4]))})

    def verls_own(self: PPOTrainerSync, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        assert batch.extra_info["calculate_sum_pi_squared"] is True
        queue.columns["sum_pi_squared"] = jagged(torch.arange(8.0), torch.tensor([0, 5, 8]))  # prompts of 2 tokens
        return KVBatchMeta()

    monkeypatch.setattr(PPOTrainerSync, "_compute_old_log_prob", verls_own)
    monkeypatch.setattr(phases, "tq", queue)
    given = KVBatchMeta(["u_0_0", "u_1_0"], [{"seq_len": 5}, {"seq_len": 3}], "train")
    trainer = object.__new__(EnvTrainer)
    trainer.sees = False
    trainer.phase, trainer.squares = PhaseFile(None), True
    trainer._compute_old_log_prob(given, {})
    assert [x.tolist() for x in queue.columns["sum_pi_squared"].unbind()] == [[1.0, 2.0, 3.0], [6.0]]


@pytest.mark.parametrize(("counts_rows", "mini_batches"), [(True, 3), (False, 2)])
def test_mini_batches_are_of_steps_or_of_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts_rows: bool, mini_batches: int
) -> None:
    """Two prompts of two episodes of three steps each; a mini-batch is one prompt, or two rows per episode of it."""
    trainer = trainer_of(
        tmp_path, "data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "+agentr1.layout=steps",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={2 if counts_rows else 1}",
        f"agentr1.mini_batches_of_rows={counts_rows}",
    )  # fmt: skip
    trainer.global_steps, trainer.prompts = 1, {"a": 0, "b": 1}
    trainer.actor_rollout_wg = SimpleNamespace(_query_dispatch_info=lambda mesh: [0])
    monkeypatch.setattr(
        trainer, "_padding_rows", lambda batch, count: ([f"pad_{i}_0" for i in range(count)], [{"seq_len": 2}] * count)
    )
    keys = [f"{uid}_{session}_{row}" for uid in "ab" for session in range(2) for row in range(3)]
    out = trainer._balance_batch(KVBatchMeta(keys, [{"seq_len": 4}] * 12, "train"), {})
    assert trainer.actor_mini_batches == mini_batches == trainer.layout.mini_batches
    size = len(out.keys) // mini_batches
    parts = [
        [key for key in out.keys[i : i + size] if not key.startswith("pad")] for i in range(0, len(out.keys), size)
    ]
    assert [len(part) for part in parts] == ([4] * 3 if counts_rows else [6] * 2)
    if not counts_rows:
        assert all(len({key[0] for key in part}) == 1 for part in parts)  # whole groups
    wanted = trainer.actor_mini_batches
    assert trainer._update_info(trainer.config.actor_rollout_ref.actor, wanted)["mini_batch_size"] == size


def test_a_trainer_says_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = PhaseWatch(tmp_path / "phase.json", None)
    trainer = trainer_of(tmp_path)
    trainer.global_steps = 3
    trainer.timing_raw = {}
    trainer.checkpoint_manager = SimpleNamespace(sleep_replicas=lambda: None, update_weights=lambda steps: None)
    trainer.curr_step_profile = False
    said = []
    for act in (trainer.on_init_end, trainer.on_validate_begin, trainer.on_step_begin, trainer.on_sample_end,
                trainer.on_step_end):  # fmt: skip
        act()
        watch.look()
        said.append((watch.phase, watch.step))
    assert [phase for phase, _ in said] == ["syncing", "validating", "generating", "updating", "syncing"]
    assert {step for _, step in said} == {3}
    written = []
    monkeypatch.setattr(trainer.phase, "progress", written.append)
    monkeypatch.setattr(trainer, "liveness", SimpleNamespace(check=lambda: None), raising=False)
    trainer.replay_buffer.partitions["train"]["u_0_0"] = {}
    trainer.replay_buffer._wait_for_next_poll("train", 0.0)
    assert written == [1] and trainer.replay_buffer.poll_interval == 0.05


def test_a_checkpoint_follows_the_metrics_of_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    trainer = object.__new__(EnvTrainer)
    trainer.logger = SimpleNamespace(log=lambda data, step: said.append((data, step)))
    monkeypatch.setattr(PPOTrainerSync, "on_train_begin", lambda self: None)
    monkeypatch.setattr(trainer, "_save_if_due", lambda: said.append("saved"))
    trainer.on_train_begin()
    trainer.logger.log(data={"x": 1}, step=3)
    assert said == [({"x": 1}, 3), "saved"]


def test_metrics_of_rows_do_not_replace_those_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {
        "critic/rewards/mean": 1.0, "critic/values/max": 2.0, "critic/vf_explained_var": 0.5, "env/return/mean": 3.0,
        "env/return/max": 3.0, "env/return/min": 3.0, "num_turns/mean": 4.0, "prompt_length/clip_ratio": 0.0,
        "response_length_non_aborted/clip_ratio": 0.25,
    }  # fmt: skip
    left_to_verl = {"critic/advantages/mean": -7.0, "timing_s/step": -7.0}

    def verls_own(self: PPOTrainerSync, batch: object, metrics: dict, *more: object) -> None:
        metrics.update({**dict.fromkeys(ours, -7.0), **left_to_verl, "env/return/mean": 3.0})

    monkeypatch.setattr(PPOTrainerSync, "_compute_metrics", verls_own)
    metrics = dict(ours)
    object.__new__(EnvTrainer)._compute_metrics(KVBatchMeta(["u_0_0"], [{"seq_len": 4}], "train"), metrics, {}, 1, 0)
    kept = {name: value for name, value in ours.items() if not name.startswith("env/")}
    assert {name: metrics[name] for name in (*kept, *left_to_verl)} == {**kept, **left_to_verl}


def test_metrics_of_a_step_take_padding_and_broken_episodes_into_account() -> None:
    """They are the same whether the step has one update or two."""
    rows = [record("u_0"), record("u_1"), {**PADDING}, {**record("u_2"), "kind": "masked"}]
    limits = OmegaConf.create({"max_prompt_length": 3, "max_response_length": 9})
    whole = BatchPart(rows, [5, 5, 2, 5], [0.0, 1.0], trained=4, nodes=None, lines=[])
    halves = [
        BatchPart(rows[:1], [5], [0.0], trained=2, nodes=None, lines=[]),
        BatchPart(rows[1:], [5, 2, 5], [1.0], trained=2, nodes=None, lines=[]),
    ]
    metrics = batch_metrics([whole], limits)
    assert metrics == batch_metrics(halves, limits)
    assert metrics["prompt_length/clip_ratio"] == 1.0 and metrics["response_length/clip_ratio"] == 0.0
    assert metrics["env/masked_episodes"] == 1.0 and metrics["env/episodes"] == 3.0
    assert metrics["num_turns/mean"] == 2.0 and metrics["env/pad_row_share"] == 0.25


def test_broken_episodes_are_counted_once_and_stop_a_run() -> None:
    def rows(*reasons: StopReason) -> list[dict]:
        errors = {StopReason.ERROR: "Traceback\nOSError: gone", StopReason.STEP_TIMEOUT: "it was here"}
        return [
            {"kind": kind, "trajectory": f"u_{i}", "error": errors.get(reason, "") if last else "",
             "record": {"stop_reason": reason.value}}
            for i, reason in enumerate(reasons)
            for kind, last in (("masked" if reason.broken else "step", False), ("padding", False), ("value", True))
        ]  # fmt: skip

    good, error, late = StopReason.TERMINATED, StopReason.ERROR, StopReason.STEP_TIMEOUT
    budget = FailureBudget(0.4, steps=2)
    counts = budget.note(endings(rows(good, error, late, good)))
    assert counts == {"broken": 2.0, "broken/OSError": 1.0, "broken/step_timeout": 1.0}
    with pytest.raises(BackendError, match="(?s)5 of the 9 .*OSError: gone.*it was here"):
        budget.note(endings(rows(error, error, late, good, good)))


def test_stored_episodes_get_the_advantages_masks_and_entropies_of_their_tokens() -> None:
    table = step_table([record("u_0"), record("u_1")], ["u", "u"], torch.tensor([0, 2, 4]), {"u": 0})
    steps = (Step("o", "a", 1.0, True, False, {"score": 1.0}, (1,), (2, 3), (-0.5, -0.5)),)
    played = Episode("e", "u_1", "u", None, 0, "", (), {}, steps, "end", StopReason.TERMINATED)
    other = dataclasses.replace(played, episode_id="u_9")
    trained = torch.tensor([True, True, True, False])
    stored, advantages = [played.to_json(), other.to_json()], torch.tensor([1.0, 1.0, -0.25, 0.5])
    lines = with_token_values(stored, table, advantages, trained)
    changed, kept = (Episode.from_dict(json.loads(line)) for line in lines)
    assert changed.steps[0].info == {"score": 1.0, "response_advantages": [-0.25, 0.5], "response_mask": [1, 0]}
    assert kept == other
    line, _ = with_token_values(stored, table, advantages, trained, torch.tensor([0.0, 0.0, 0.125, 2.0]))
    assert json.loads(line)["steps"][0]["info"]["response_entropies"] == [0.125, 2.0]


def test_what_training_made_of_an_agents_steps_is_at_these_steps() -> None:
    """A call of each role, one that is not trained, and another: in the file they are steps 0 to 3."""
    how = [{"role": "white"}, {"role": "black"}, {"trained": False, "role": "white"}, {"role": "white"}]
    steps = tuple(
        Step("o", "a", 1.0, False, n == 3, {}, (n, 1), (2, 3), (-0.5, -0.5), time=n, **own) for n, own in enumerate(how)
    )
    played = Episode("e", "u_0", "u", None, 0, "", (), {}, steps, "end", StopReason.TRUNCATED)
    rows = [row for part, own in parts_of(Tree(0, [played]), 1.0)[0] for row in episode_rows(part, filler_id=0, **own)]
    extra = [row.fields("u_0") for row in rows]
    offsets = torch.tensor([0, *np.cumsum([len(row.tokens.response_ids) for row in rows])])
    table = step_table(extra, ["u"] * len(rows), offsets, {"u": 0})
    values = torch.zeros(int(offsets[-1]))
    for row, begin in zip(rows, offsets.tolist(), strict=False):  # the first token of a step gets its prompt's number
        for step in row.steps:
            values[begin + step["start"]] = step["time"]
    (line,) = with_token_values([played.to_json()], table, values, torch.ones(len(values), dtype=torch.bool))
    seen = [step["info"].get("response_advantages") for step in json.loads(line)["steps"]]
    assert seen == [[0.0, 0.0], [1.0, 0.0], None, [3.0, 0.0]]


def test_groups_that_never_differ_are_not_played_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl refills a batch of filtered groups without end, and its max_num_gen_batches is read by nobody."""
    trainer = trainer_of(
        tmp_path, "algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward",
        "algorithm.filter_groups.max_num_gen_batches=3",
    )  # fmt: skip
    monkeypatch.setattr(PPOTrainerSync, "_submit_batch_to_rollout", lambda self, batch: len(batch))
    trainer.global_steps = 1
    batch = TensorDict({"uid": torch.arange(16)}, batch_size=16)
    assert [trainer._submit_batch_to_rollout(batch.clone()) for _ in range(3)] == [16] * 3
    with pytest.raises(BackendError, match="step 1 played 3 batches, and fewer than 16 of its groups"):
        trainer._submit_batch_to_rollout(batch.clone())
