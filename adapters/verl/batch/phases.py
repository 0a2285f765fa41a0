"""A trainer of verl that says what it is doing (``agent_envs.adapters.verl.run.folder``), and asks for no more.

While it waits for rows, it notices when who should write them is dead.

What the workers compute is written beside the rows. Each request gets a batch of its own: with the fields that it
reads, since every episode's JSON line is another, and with settings that the next request must not inherit (with LoRA
the reference is the actor without its adapter, and the critic has none).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import ray
import transfer_queue as tq
from ray.exceptions import ActorDiedError
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.workers.utils.padding import response_from_nested

from agent_envs.adapters.verl.batch import rows
from agent_envs.adapters.verl.config.models import sees_pictures
from agent_envs.adapters.verl.config.settings import Settings
from agent_envs.adapters.verl.run.folder import PhaseFile
from agent_envs.errors import BackendError


class Liveness:
    """Asks actors, by name, whether they are there, and never waits for an answer: a dead one fails.

    The rows of a worker that the system has killed, for want of memory as a rule, never come, and no call fails.
    """

    def __init__(self, actors: Mapping[str, Any]) -> None:
        self._actors = dict(actors)
        self._asked = {name: actor.__ray_ready__.remote() for name, actor in self._actors.items()}

    def check(self) -> None:
        """Read the answers that there are, and ask again."""
        for name, answer in self._asked.items():
            if not ray.wait([answer], timeout=0)[0]:
                continue
            try:
                ray.get(answer)
            except ActorDiedError as e:
                raise BackendError(f"{name} died, and with it what it was doing: {' '.join(str(e).split())}") from e
            self._asked[name] = self._actors[name].__ray_ready__.remote()


class PhasedTrainer(PPOTrainer):
    """A phase and small requests, before one of verl's trainers in the order of bases."""

    settings: Settings
    global_steps: int
    """The step that is trained, from 1."""
    squares = False
    """Whether the sums of squared probabilities are wanted with the old log-probabilities."""

    def __init__(self, config: Any) -> None:
        self.phase = PhaseFile(self.settings.phase_file)
        super().__init__(config)
        buffer: Any = self.replay_buffer
        wait = buffer._wait_for_next_poll

        def note_and_wait(partition_id: str, last_debug_time: float) -> float:
            self.phase.progress(len(buffer.partitions[partition_id]))
            self.liveness.check()
            return float(wait(partition_id, last_debug_time))

        buffer._wait_for_next_poll = note_and_wait

    @cached_property
    def liveness(self) -> Liveness:
        """What plays episodes and generates; nothing fails if it dies, but rows are waited for."""
        workers, servers = self.agent_loop_manager.agent_loop_workers, self.llm_server_manager.server_handles
        return Liveness(
            {f"agent-loop worker {i}": worker for i, worker in enumerate(workers)}
            | {f"rollout server {i}": server for i, server in enumerate(servers)}
        )

    @cached_property
    def sees(self) -> bool:
        """Whether the model takes pictures, which are in a column of their own."""
        return sees_pictures(self.config.actor_rollout_ref.model.path)

    def on_init_end(self) -> None:
        self.phase.enter("syncing", self.global_steps)
        super().on_init_end()

    def on_validate_begin(self) -> None:
        self.phase.enter("validating", self.global_steps)
        super().on_validate_begin()

    def on_step_begin(self) -> None:
        self.phase.enter("generating", self.global_steps)
        super().on_step_begin()

    def on_sample_end(self) -> None:
        self.phase.enter("updating", self.global_steps)
        super().on_sample_end()

    def on_step_end(self) -> None:
        self.phase.enter("syncing", self.global_steps)
        super().on_step_end()

    def asked(self, batch: KVBatchMeta, *columns: str) -> KVBatchMeta:
        """Return the batch with only what models read and ``columns``: workers do not need records and messages."""
        return dataclasses.replace(batch, fields=[*rows.TOKENS, *([rows.INPUTS] if self.sees else []), *columns])

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        asked = self.asked(batch)
        if self.squares:
            asked.extra_info["calculate_sum_pi_squared"] = True
        super()._compute_old_log_prob(asked, metrics)
        if self.squares:
            names = ["sum_pi_squared", "response_mask"]
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
            data["sum_pi_squared"] = response_from_nested(data["sum_pi_squared"], data["response_mask"])
            tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data.select("sum_pi_squared"))
        self.phase.progress()
        return batch

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        super()._compute_ref_log_prob(self.asked(batch), metrics)
        self.phase.progress()
        return batch

    def _compute_values(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        super()._compute_values(self.asked(batch), metrics)
        self.phase.progress()
        return batch
