"""Low-rank adapters in training: what verl leaves on a batch does not reach the critic, which has no adapter."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("torch")
with warnings.catch_warnings():  # verl warns of every engine that is not installed
    warnings.simplefilter("ignore")
    pytest.importorskip("verl")
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from agent_envs.adapters.verl.trainer import EnvTrainer

pytestmark = pytest.mark.filterwarnings("ignore")


class Batch:
    """What travels with a batch to the workers."""

    def __init__(self) -> None:
        self.extra_info: dict[str, object] = {"temperature": 1.0}


def test_the_reference_without_its_adapter_is_no_matter_of_the_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    def verls_own(self: PPOTrainerSync, batch: Batch, metrics: dict) -> Batch:
        batch.extra_info.update(compute_loss=False, no_lora_adapter=True)  # verl/trainer/ppo/v1/trainer_base.py:1704
        return batch

    monkeypatch.setattr(PPOTrainerSync, "_compute_ref_log_prob", verls_own)
    trainer = object.__new__(EnvTrainer)
    batch = trainer._compute_ref_log_prob(Batch(), {})
    assert batch.extra_info == {"temperature": 1.0, "compute_loss": False}
