"""Asynchronous training: batches in order, responses that an update of the weights has cut, and the settings.

Whole runs are in test_train_slow.py; here the parts are real, and the processes between them are not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from composing import composed
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import replay_buffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from agent_envs.adapters.tiny.model import base_folder
from agent_envs.adapters.verl.batch.asynchronous import EnvColocateTrainer, FirstInFirstOut
from agent_envs.adapters.verl.config.settings import Settings
from agent_envs.adapters.verl.rollout.cpu_rollout import ROLLOUT_NAME, CPURolloutServer, OnlyServer
from agent_envs.adapters.verl.rollout.resuming import ResumingClient, token_versions

pytestmark = pytest.mark.filterwarnings("ignore")


class Queue:
    """TransferQueue with what the buffer asks of it; every look at it ends the next prompts in `ends`."""

    def __init__(self, prompts: list[str], ends: list[list[str]]) -> None:
        self.rows: dict[str, dict[str, Any]] = {
            uid: {"is_prompt": True, "status": "running", "global_steps": 1} for uid in prompts
        }
        self.ends, self.looks = ends, 0

    def kv_list(self, *args: Any) -> dict[str, dict[str, Any]]:
        for uid in self.ends[self.looks] if self.looks < len(self.ends) else []:
            self.rows[uid]["status"] = "failure" if uid == "d" else "finished"
            self.rows |= {f"{uid}_{session}_0": {"status": "success"} for session in range(2)}
        self.looks += 1
        return {"train": self.rows}

    def kv_clear(self, partition_id: str, keys: list[str]) -> None:
        for key in keys:
            del self.rows[key]


def test_batches_are_what_was_submitted_whoever_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last prompts end first, a failed one keeps its place, and nothing is left out."""
    queue = Queue(["a", "b", "c", "d", "e", "f"], [["f", "e"], ["d"], ["a"], ["c"], ["b"]])
    monkeypatch.setattr(replay_buffer, "tq", queue)
    numbers = {uid: 10 + i for i, uid in enumerate("abcdef")}
    options = {"trainer_mode": "colocate_async", "trainer_config": None, "sampler_kwargs": None}
    buffer = FirstInFirstOut(lambda: numbers, poll_interval=0.0, **options)
    for batch, looks in (("ab", 5), ("cd", 6), ("ef", 7)):
        taken, metrics = buffer.sample(1, "train", 2)
        assert sorted(taken.keys) == [f"{uid}_{session}_0" for uid in batch for session in range(2)]
        assert queue.looks == looks and metrics["env/async/wait_seconds"] >= 0
        for key in taken.keys:
            numbers.pop(key[0], None)
            queue.kv_clear("train", [key])
    assert not queue.rows and not numbers


@pytest.mark.parametrize("lost", ["b", "ab", "bc", "ef"])
def test_a_prompt_without_rows_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    queue = Queue(list("abcdef"), [])
    monkeypatch.setattr(replay_buffer, "tq", queue)
    for uid in "abcdef":
        queue.rows[uid]["status"] = "failure" if uid in lost else "finished"
        queue.rows |= {} if uid in lost else {f"{uid}_0_0": {"status": "success"}}
    numbers = {uid: i for i, uid in enumerate("abcdef")}
    options = {"trainer_mode": "colocate_async", "trainer_config": None, "sampler_kwargs": None}
    buffer = FirstInFirstOut(lambda: numbers, poll_interval=0.0, **options)
    monkeypatch.setattr(buffer, "_wait_for_next_poll", lambda *args: pytest.fail("it waits for what has ended"))
    for step, batch in enumerate(("ab", "cd", "ef")):
        if left := [uid for uid in batch if uid not in lost]:
            taken, _ = buffer.sample(step, "train", 2)
            assert sorted(taken.keys) == [f"{uid}_0_0" for uid in left]
            for uid in left:
                del numbers[uid]
        else:
            with pytest.raises(RuntimeError, match=f"none of the 2 prompts of step {step} has a row"):
                buffer.sample(step, "train", 2)
    assert not numbers


def test_no_more_batches_are_submitted_than_there_are_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = object.__new__(EnvColocateTrainer)
    trainer.settings = Settings(mode="colocate", lookahead=2)
    trainer.batches, trainer.total_training_steps = 0, 5
    seen: list[int] = []
    monkeypatch.setattr(PPOTrainer, "_add_batch_to_generate", lambda self: seen.append(self.batches))
    for trainer.global_steps, submitted in ((1, 3), (2, 4), (3, 5), (4, 5), (5, 5)):
        trainer._add_batch_to_generate()
        assert trainer.batches == submitted
    assert seen == [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def server() -> CPURolloutServer:
    config = {"response_length": 40, "max_model_len": 256, "prompt_length": 200, "max_num_seqs": 4, "seed": 0,
              "dtype": "float32"}  # fmt: skip
    return CPURolloutServer(str(base_folder()), OmegaConf.create(config), 0, False)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The one event loop that a server lives on."""
    with asyncio.Runner() as runner:
        yield runner


def client(server: CPURolloutServer) -> ResumingClient:
    handle = SimpleNamespace(generate=SimpleNamespace(remote=server.generate))
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": ROLLOUT_NAME, "response_length": 40}}})
    return ResumingClient(config, OnlyServer("here", handle))


PARAMS = {"temperature": 1.0, "seed": 3, "max_tokens": 40, "ignore_eos": True}


async def cut(server: CPURolloutServer, meanwhile: Any) -> Any:
    """A response that is cut after some of its tokens, and goes on after `meanwhile`."""
    whole = asyncio.create_task(client(server).generate("r", prompt_ids=[5, 6, 7], sampling_params=PARAMS))
    while not server.server._engine._running:
        await asyncio.sleep(0)
    await asyncio.sleep(0.005)
    await server.abort_all_requests()
    late = asyncio.create_task(client(server).generate("s", prompt_ids=[8, 9], sampling_params=PARAMS))
    await asyncio.sleep(0.05)
    assert not late.done() and not server.server._engine.busy  # it waits, and nothing is written
    await meanwhile()
    await server.resume_generation()
    await late
    return await whole


def test_a_response_cut_and_resumed_is_the_uncut_one_and_knows_its_weights(
    server: CPURolloutServer, runner: asyncio.Runner
) -> None:
    weights = {name: tensor.clone() for name, tensor in server.server._engine.model.state_dict().items()}

    async def play() -> tuple[Any, Any]:
        await server.load_weights(weights, 7)
        uncut = await client(server).generate("r", prompt_ids=[5, 6, 7], sampling_params=PARAMS)
        return uncut, await cut(server, lambda: server.load_weights(weights, 8))  # the same ones

    uncut, resumed = runner.run(play())
    assert len(uncut.token_ids) == 40 and token_versions(uncut) == [7] * 40
    assert resumed.token_ids == uncut.token_ids
    assert resumed.log_probs == pytest.approx(uncut.log_probs, abs=1e-5)
    (first, before), (second, after) = resumed.extra_fields["parts"]
    assert (first, second, before + after) == (7, 8, 40) and after > 0
    assert token_versions(resumed) == [7] * before + [8] * after


def test_older_weights_are_corrected_unless_told_otherwise() -> None:
    threshold = "algorithm.rollout_correction.rollout_is_threshold=5.0"
    config = composed("agentr1.mode=colocate", "agentr1.lookahead=3", threshold).verl()
    correction = config.algorithm.rollout_correction
    assert config.trainer.v1.trainer_mode == "agentr1_colocate" and not correction.bypass_mode
    assert (correction.rollout_is, correction.rollout_is_threshold) == ("token", 5.0)
    assert composed("agentr1.mode=colocate", "agentr1.lookahead=0").verl().algorithm.rollout_correction.bypass_mode
    own = composed("agentr1.mode=colocate", "algorithm.rollout_correction.bypass_mode=True").verl()
    assert own.algorithm.rollout_correction.bypass_mode and own.algorithm.rollout_correction.rollout_is is None


def test_generation_gets_devices_of_its_own() -> None:
    config = composed("agentr1.mode=separate", "actor_rollout_ref.actor.ppo_mini_batch_size=4").verl()
    assert config.trainer.v1.trainer_mode == "agentr1_separate"
    assert config.trainer.v1.separate_async.parameter_sync_step == 4  # of 16 tasks
    assert config.actor_rollout_ref.rollout.checkpoint_engine.backend == "agentr1_ray"
    assert (config.actor_rollout_ref.rollout.nnodes, config.ray_kwargs.ray_init.num_gpus) == (1, 2)
