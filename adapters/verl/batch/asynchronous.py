"""Training while the next batches are played: verl's asynchronous trainers over steps, and the buffer between them.

Batches are first in, first out. Update s trains exactly the prompts that were submitted as batch s, which started
``lookahead`` updates before, so a batch has the same lengths and the same tasks as in synchronous training. verl's own
buffer takes whatever has finished, and its strategy ``drop`` throws away what was slow (replay_buffer.py:505, :576):
both prefer short episodes. Here an update waits for the slowest episode of its batch, which has had ``lookahead``
updates of time; what must not take longer gets a time limit, and is trained as a truncated episode.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

from agent_envs.adapters.verl.batch.trainer import POLL_SECONDS, StepTrainer
from agent_envs.adapters.verl.rollout.resuming import ResumingClient


class FirstInFirstOut(ReplayBufferAsync):
    """Gives the prompts to training in the order in which they were submitted, and waits for those that are due."""

    def __init__(self, submitted: Callable[[], dict[str, int]], *, poll_interval: float, **options: Any) -> None:
        """Take verl's place, polling every ``poll_interval`` seconds.

        ``submitted`` returns the number of each prompt, by uid, that has not been trained; those whose episodes left no
        row are taken out of it.
        """
        super().__init__(max_off_policy_threshold=None, max_off_policy_strategy="wait", **options)
        self.poll_interval = poll_interval
        self._submitted = submitted

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Wait for the ``batch_size`` prompts that were submitted first; return their rows, and metrics."""
        if partition_id == "val":
            return super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
        numbers = self._submitted()
        due = sorted(numbers, key=numbers.__getitem__)[:batch_size]
        began = asked = time.time()
        while True:
            self._sync_metadata_from_transfer_queue()
            ended = self.finished_keys[partition_id] | self.failure_keys[partition_id]
            if ended.issuperset(due):
                break
            asked = self._wait_for_next_poll(partition_id, asked)
        batch = self._materialize_batch(partition_id, due, dict(self.partitions[partition_id]))
        for uid in {*due} - {key.rsplit("_", 2)[0] for key in batch.keys}:
            del numbers[uid]
        if not batch.keys:
            raise RuntimeError(f"none of the {batch_size} prompts of step {global_steps} has a row; see the log")
        return batch, {"env/async/wait_seconds": time.time() - began, "env/async/ready_groups": float(len(ended))}


class AsyncStepTrainer(StepTrainer):
    """What both asynchronous trainers add to training over steps."""

    def _build_replay_buffer(self) -> FirstInFirstOut:
        return FirstInFirstOut(
            lambda: self.prompts,
            poll_interval=POLL_SECONDS,
            trainer_mode=self.trainer_mode,
            trainer_config=self.config.trainer.v1.get(self.trainer_mode, {}),
            sampler_kwargs=self.config.trainer.v1.sampler.sampler_kwargs,
        )

    def _add_async_warmup_batches(self, num_warmup_batches: float) -> None:
        """Add none: the first step submits all batches that are under way at once."""

    def _load_checkpoint(self) -> Any:
        loaded = super()._load_checkpoint()
        prompts = [key for key, tag in (tq.kv_list("train") or {}).get("train", {}).items() if tag.get("is_prompt")]
        if prompts:
            data = tq.kv_batch_get(keys=prompts, partition_id="train", select_fields=["prompt_number"])
            self.prompts = dict(zip(prompts, (int(number) for number in data["prompt_number"]), strict=True))
        return loaded

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["versions"])
        metrics.update(staleness(torch.cat(list(data["versions"].unbind())), self.global_steps - 1))
        return batch


@register_trainer("agentr1_colocate")
class EnvColocateTrainer(AsyncStepTrainer, PPOTrainerColocateAsync):
    """Plays on the trainer's own devices, except during an update: only the environments go on meanwhile."""

    verl_mode = "colocate_async"

    def get_llm_client(self) -> Any:
        """Return the client that the agent loops generate with."""
        return self.llm_server_manager.get_client(client_cls=ResumingClient)

    def _take_devices(self) -> None:
        self.checkpoint_manager.abort_replicas()
        super()._take_devices()

    def _give_devices_back(self) -> None:
        super()._give_devices_back()
        self.checkpoint_manager.resume_generation_replicas()


@register_trainer("agentr1_separate")
class EnvSeparateTrainer(AsyncStepTrainer, PPOTrainerSeparateAsync):
    """Plays on devices of its own, which stop for new weights alone; every step has several updates.

    A step's updates are verl's triggers (trainer_base.py:549): each takes the next prompts in order, one mini-batch of
    them. The weights go out after the last.
    """

    verl_mode = "separate_async"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        triggers = int(self.config.trainer.v1.separate_async.parameter_sync_step)
        for name in ("actor_mini_batches", "critic_mini_batches"):
            setattr(self, name, max(1, getattr(self, name) // triggers))

    def _take_devices(self) -> None:
        """Take none: the trainer has its own."""

    _give_devices_back = _take_devices


def staleness(versions: torch.Tensor, newest: int) -> dict[str, float]:
    """Return by how many updates the weights that sampled each token lag behind the ones that it trains.

    `versions` are of shape [tokens], -1 where the policy did not write the token.

    >>> staleness(torch.tensor([-1, 2, 1, 2, -1]), 2)
    {'env/async/staleness/mean': 0.3333333432674408, 'env/async/staleness/max': 1.0}
    """
    lags = newest - versions[versions >= 0].float()
    if not len(lags):
        return {}
    return {"env/async/staleness/mean": float(lags.mean()), "env/async/staleness/max": float(lags.max())}
