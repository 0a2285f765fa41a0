"""Training and rollout engines of verl 0.9.1: those it has compose.

1. every engine's settings are those that verl's own configuration takes; `--dry-run` says what is not installed
2. without flash-attn rows are padded on GPUs, and a line says so
3. every engine that verl registers is known
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import composing
import pytest
from omegaconf import OmegaConf

from agent_envs.adapters.tiny import model as tiny_model
from agent_envs.adapters.verl.config import engines
from agent_envs.adapters.verl.config.composed import Composed
from agent_envs.adapters.verl.config.engines import ENGINES, ROLLOUTS, attention_notice, missing_engine
from agent_envs.adapters.verl.run.training import describe, train
from agent_envs.errors import ConfigError

MODEL = str(Path(tiny_model.__file__).parent / "base")


def composed(preset: str, *overrides: str) -> Composed:
    return composing.composed(*overrides, preset=preset, model=MODEL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("engine", "algo"), [("megatron", "steppo"), ("torchtitan", "grpo"), ("veomni", "steppo")])
def test_verl_takes_the_settings_of_every_engine(engine, algo):
    from verl.utils.config import omega_conf_to_dataclass

    run = composed(f"any/alfworld/{algo}", f"model_engine={engine}")
    verl = run.verl()
    for part in (verl.actor_rollout_ref.actor, verl.critic):
        made = omega_conf_to_dataclass(part)
        assert made.strategy == engine and made.optim.clip_grad == 1.0
        assert OmegaConf.select(part, f"{engine}.param_offload") in (True, None)
    assert verl.actor_rollout_ref.actor.optim.lr == 1e-6
    assert (missing_engine(verl) or "").startswith(f"model_engine={engine} needs the package {engine}")
    assert f"# before it can run: {missing_engine(verl)}\n" in describe(run)
    with pytest.raises(ConfigError, match=f"model_engine={engine} needs the package {engine}"):
        train(run)


MODELS = ("actor_rollout_ref.model", "critic.model")


def of_models(verl: Any, name: str) -> list[Any]:
    return [OmegaConf.select(verl, f"{model}.{name}") for model in MODELS]


def test_without_flash_attention_rows_are_padded(monkeypatch):
    attention, packed = "override_config.attn_implementation", "use_remove_padding"
    monkeypatch.setattr(engines, "_flash_attention", lambda: False)
    run = composed("any/alfworld/gae")
    verl = run.verl()
    assert of_models(verl, attention) == ["sdpa"] * 2 and of_models(verl, packed) == [False] * 2
    assert "# flash-attn is not installed: rows are padded" in describe(run)
    forced = composed("any/alfworld/gae", f"{MODELS[0]}.{packed}=True", f"+{MODELS[1]}.{attention}=eager").verl()
    assert of_models(forced, packed) == [True, False] and of_models(forced, attention) == ["sdpa", "eager"]
    assert "most of it is thrown away" in (attention_notice(forced) or "")
    split = composed("any/alfworld/grpo", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2").verl()
    assert of_models(split, packed)[0] is True  # a sequence that is split must be packed
    assert attention_notice(OmegaConf.merge(verl, {"trainer": {"device": "cpu"}})) is None
    monkeypatch.setattr(engines, "_flash_attention", lambda: True)
    verl = composed("any/alfworld/gae").verl()
    assert of_models(verl, attention) == [None] * 2 and of_models(verl, packed) == [True] * 2
    assert attention_notice(verl) is None


@pytest.mark.filterwarnings("ignore")
def test_every_engine_of_verl_is_known():
    import verl.trainer.config
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    folder = Path(next(iter(verl.trainer.config.__path__))) / "model_engine"
    assert {path.stem for path in folder.glob("*.yaml")} == set(ENGINES)
    assert {name for name, _ in _ROLLOUT_REGISTRY} | {"agentr1_cpu"} == set(ROLLOUTS)
