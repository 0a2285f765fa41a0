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
from agent_envs.adapters.verl.config.engines import ENGINES, ROLLOUTS, attention_notice, missing_engine
from agent_envs.cli.main import main

MODEL = str(Path(tiny_model.__file__).parent / "base")


def composed(preset: str, *overrides: str) -> Any:
    return composing.composed(*overrides, preset=preset, model=MODEL).verl()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("engine", "algo"), [("megatron", "steppo"), ("torchtitan", "grpo"), ("veomni", "steppo")])
def test_verl_takes_the_settings_of_every_engine(engine, algo):
    from verl.utils.config import omega_conf_to_dataclass

    verl = composed(f"any/alfworld/{algo}", f"model_engine={engine}")
    for part in (verl.actor_rollout_ref.actor, verl.critic):
        made = omega_conf_to_dataclass(part)
        assert made.strategy == engine and made.optim.clip_grad == 1.0
        assert OmegaConf.select(part, f"{engine}.param_offload") in (True, None)
    assert verl.actor_rollout_ref.actor.optim.lr == 1e-6
    assert (missing_engine(verl) or "").startswith(f"model_engine={engine} needs the package {engine}")


MODELS = ("actor_rollout_ref.model", "critic.model")


def of_models(verl: Any, name: str) -> list[Any]:
    return [OmegaConf.select(verl, f"{model}.{name}") for model in MODELS]


def test_without_flash_attention_rows_are_padded(monkeypatch, capsys):
    attention, packed = "override_config.attn_implementation", "use_remove_padding"
    monkeypatch.setattr(engines, "_flash_attention", lambda: False)
    verl = composed("any/alfworld/gae")
    assert of_models(verl, attention) == ["sdpa"] * 2 and of_models(verl, packed) == [False] * 2
    assert "rows are padded" in (attention_notice(verl) or "")
    forced = composed("any/alfworld/gae", f"{MODELS[0]}.{packed}=True", f"+{MODELS[1]}.{attention}=eager")
    assert of_models(forced, packed) == [True, False] and of_models(forced, attention) == ["sdpa", "eager"]
    assert "most of it is thrown away" in (attention_notice(forced) or "")
    split = composed("any/alfworld/grpo", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2")
    assert of_models(split, packed)[0] is True  # a sequence that is split must be packed
    assert attention_notice(composed("cpu-tiny")) is None
    words = ["train", "--preset", "any/gsm8k/grpo", "--model", MODEL, "--data", "generated", "--dry-run"]
    assert main(words) == 0 and "# flash-attn is not installed: rows are padded" in capsys.readouterr().out
    monkeypatch.setattr(engines, "_flash_attention", lambda: True)
    verl = composed("any/alfworld/gae")
    assert of_models(verl, attention) == [None] * 2 and of_models(verl, packed) == [True] * 2
    assert attention_notice(verl) is None


def test_a_dry_run_composes_and_says_what_is_missing(capsys):
    words = ["train", "--preset", "any/gsm8k/grpo", "--model", MODEL, "--data", "generated"]
    settings = ["model_engine=megatron", "actor_rollout_ref.rollout.name=sglang"]
    assert main([*words, "--dry-run", *settings]) == 0
    assert "# before it can run: model_engine=megatron needs the package megatron" in capsys.readouterr().out
    assert main([*words, *settings]) == 2
    assert "model_engine=megatron needs the package megatron" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_every_engine_of_verl_is_known():
    import verl.trainer.config
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    folder = Path(next(iter(verl.trainer.config.__path__))) / "model_engine"
    assert {path.stem for path in folder.glob("*.yaml")} == set(ENGINES)
    assert {name for name, _ in _ROLLOUT_REGISTRY} | {"agentr1_cpu"} == set(ROLLOUTS)
