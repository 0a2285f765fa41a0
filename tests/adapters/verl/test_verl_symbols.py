"""Every name of verl that the adapter touches beyond its configuration, and that each is where it looks for it.

A new release of verl is tried here first: the tests say which of these names have moved, and the table what for.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch")
pytest.importorskip("verl")

import agent_envs.adapters.verl


class Symbol(NamedTuple):
    """A name of verl."""

    file: str
    """Its file within verl."""
    name: str
    """``function``, ``Class`` or ``Class.method``; a name that is assigned to counts too."""
    purpose: str
    """What it is needed for."""


_BASE = "trainer/ppo/v1/trainer_base.py"
_TRAINER = {
    "__init__": "the configuration is checked before it",
    "_setup": "the losses are set after it",
    "on_init_end": "the phase",
    "on_sample_end": "the phase",
    "on_step_begin": "a step's records begin",
    "on_step_end": "the phase",
    "on_train_begin": "checkpoints are saved after logging",
    "on_validate_begin": "the phase",
    "get_llm_client": "responses that new weights cut go on",
    "_add_async_warmup_batches": "batches that are played ahead",
    "_add_batch_to_generate": "batches that are played ahead",
    "_submit_batch_to_rollout": "prompts are numbered",
    "_balance_batch": "the layout of rows over ranks and mini-batches",
    "_compute_old_log_prob": "requests with the columns they read",
    "_compute_ref_log_prob": "requests with the columns they read",
    "_compute_values": "requests with the columns they read",
    "_compute_advantage": "estimators over steps",
    "_update_critic": "mini-batches of whole groups",
    "_update_actor": "mini-batches of whole groups",
    "_compute_metrics": "metrics over episodes",
    "_val_metrics_update": "metrics over episodes",
    "_save_checkpoint": "this adapter's state is saved beside verl's",
    "_load_checkpoint": "and loaded",
}
_LOOP = "experimental/agent_loop/agent_loop.py"
_BUFFER = "trainer/ppo/v1/replay_buffer.py"
_FSDP = "workers/engine/fsdp/transformer_impl.py"

SYMBOLS: tuple[Symbol, ...] = (
    *(Symbol(_BASE, f"PPOTrainer.{name}", purpose) for name, purpose in _TRAINER.items()),
    Symbol(_BASE, "PPOTrainer._build_replay_buffer", "how often finished episodes are looked for"),
    Symbol(_BASE, "register_trainer", "the trainers of this package by name"),
    Symbol("trainer/ppo/v1/trainer_sync.py", "PPOTrainerSync", "the synchronous trainer"),
    Symbol("trainer/ppo/v1/trainer_colocate_async.py", "PPOTrainerColocateAsync", "an asynchronous trainer"),
    Symbol("trainer/ppo/v1/trainer_separate_async.py", "PPOTrainerSeparateAsync", "the other one"),
    Symbol(_LOOP, "AgentLoopWorker._compute_multi_modal_inputs", "the pictures of a row"),
    Symbol(_LOOP, "AgentLoopWorker._compute_position_ids", "the positions of a row with pictures"),
    Symbol("models/transformers/monkey_patch.py", "apply_monkey_patch", "log-probabilities of models that see"),
    Symbol("models/transformers/qwen2_vl.py", "_get_input_embeds", "rows without pictures of models that see"),
    Symbol("models/transformers/qwen2_vl.py", "qwen2_vl_attn_forward", "packed rows without FlashAttention"),
    Symbol("models/transformers/qwen2_vl.py", "unpack_visual_output", "rows without pictures of models that see"),
    Symbol(_BUFFER, "ReplayBuffer._wait_for_next_poll", "progress of generation"),
    Symbol(_BUFFER, "ReplayBufferAsync._materialize_batch", "batches in the order of their submission"),
    Symbol(_BUFFER, "ReplayBufferAsync._sync_metadata_from_transfer_queue", "batches in the order of their submission"),
    Symbol("trainer/ppo/v1/agent_loop_tq.py", "AgentLoopWorkerTQ._agent_loop_postprocess", "several rows per episode"),
    Symbol("trainer/ppo/padding_utils.py", "construct_minimal_padding_template", "padding rows"),
    Symbol("trainer/ppo/rollout_corr_helper.py", "compute_rollout_correction_and_add_to_batch", "rollout correction"),
    Symbol("trainer/main_ppo.py", "main", "a run"),
    Symbol("utils/config.py", "validate_config", "what verl refuses is refused before anything starts"),
    Symbol("trainer/ppo/utils.py", "need_critic", "what verl refuses is refused before anything starts"),
    Symbol("trainer/ppo/utils.py", "need_reference_policy", "what verl refuses is refused before anything starts"),
    Symbol(_LOOP, "AgentLoopBase", "playing episodes"),
    Symbol(_LOOP, "AgentLoopMetrics", "an episode's times"),
    Symbol(_LOOP, "AgentLoopOutput", "an episode's rows"),
    Symbol(_LOOP, "_agent_loop_registry", "the agent loop by name"),
    Symbol("workers/rollout/base.py", "BaseRollout", "weights for generation on a CPU"),
    Symbol("workers/rollout/base.py", "_ROLLOUT_REGISTRY", "generation on a CPU by name"),
    Symbol("workers/rollout/replica.py", "RolloutReplica", "the server of generation on a CPU"),
    Symbol("workers/rollout/replica.py", "RolloutReplicaRegistry.register", "generation on a CPU by name"),
    Symbol("workers/rollout/vllm_rollout/utils.py", "vLLMColocateWorkerExtension", "weights for vLLM on a CPU"),
    Symbol("workers/rollout/replica.py", "TokenOutput", "a response"),
    Symbol("workers/rollout/utils.py", "ensure_async_iterator", "weights as they come"),
    Symbol("workers/rollout/llm_server.py", "LLMServerClient.generate", "requests"),
    Symbol("workers/rollout/llm_server.py", "FullyAsyncLLMServerClient", "responses that new weights cut go on"),
    Symbol("checkpoint_engine/base.py", "CheckpointEngine", "weights for servers on devices of their own"),
    Symbol("checkpoint_engine/base.py", "CheckpointEngineRegistry", "weights for servers on devices of their own"),
    Symbol(
        "workers/rollout/llm_server.py", "LLMServerManager._init_global_load_balancer", "one server without balancer"
    ),
    Symbol("workers/engine/base.py", "EngineRegistry", "engines that train on prefix trees"),
    Symbol("workers/engine_workers.py", "TrainingWorker", "engines that train on prefix trees"),
    Symbol("workers/engine_workers.py", "TrainingWorker.reset", "new layers are drawn with the run's seed"),
    Symbol(_FSDP, "FSDPEngineWithLMHead", "engines that train on prefix trees"),
    Symbol(_FSDP, "FSDPEngineWithValueHead", "engines that train on prefix trees"),
    Symbol("models/transformers/monkey_patch.py", "is_trl_available", "critics beside a TRL without its old PPO"),
    Symbol("model_merger/__main__.py", "main", "checkpoints as Hugging Face folders"),
    Symbol("utils/fsdp_utils.py", "fsdp2_sharded_save_to_cpu", "weights that are put aside on a CPU"),
    Symbol("utils/model.py", "load_valuehead_model", "critics without FlashAttention"),
    Symbol("utils/distributed.py", "initialize_global_process_group_ray", "process groups on a CPU"),
    Symbol("utils/torch_functional.py", "logprobs_from_logits_v2", "log-probabilities without FlashAttention"),
    Symbol("utils/config.py", "omega_conf_to_dataclass", "the workers' configuration"),
    Symbol("trainer/ppo/core_algos.py", "POLICY_LOSS_REGISTRY", "losses that were written for verl's rows"),
    Symbol("workers/utils/losses.py", "ppo_loss", "losses that were written for verl's rows"),
    Symbol("workers/utils/padding.py", "response_from_nested", "sums of squared probabilities of the responses"),
    Symbol("utils/metric/__init__.py", "AggregationType", "metrics of the losses"),
    Symbol("utils/metric/__init__.py", "Metric", "metrics of the losses"),
    Symbol("utils/seqlen_balancing.py", "log_seqlen_unbalance", "metrics of the layout"),
    Symbol("utils/tensordict_utils.py", "list_of_dict_to_tensordict", "padding rows"),
    Symbol("utils/dataset/multiturn_sft_dataset.py", "MultiTurnSFTDataset", "fine-tuning on recorded episodes"),
    Symbol("plugin/platform/__init__.py", "PlatformBase", "training on a CPU"),
    Symbol("plugin/platform/__init__.py", "PlatformRegistry", "training on a CPU"),
    Symbol("protocol.py", "DataProto", "rollout correction"),
)
"""The names, by what they are for."""


def moved(symbols: Iterable[Symbol] = SYMBOLS) -> list[Symbol]:
    """Return the symbols that the installed verl does not have at their place; all if it is not installed.

    A class has the methods of the classes in its file that it inherits from.
    """
    spec = importlib.util.find_spec("verl")
    root = Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None
    known: dict[str, set[str]] = {}
    out = []
    for symbol in symbols:
        if symbol.file not in known:
            path = None if root is None else root / symbol.file
            known[symbol.file] = _names(path) if path is not None and path.is_file() else set()
        if symbol.name not in known[symbol.file]:
            out.append(symbol)
    return out


def _names(path: Path) -> set[str]:
    """The names that a file defines or imports at its top, and the methods of its classes."""
    names: set[str] = set()
    methods: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            own = {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}
            inherited = (methods.get(base.id, set()) for base in node.bases if isinstance(base, ast.Name))
            methods[node.name] = own.union(*inherited)
            names |= {node.name, *(f"{node.name}.{method}" for method in methods[node.name])}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names


def test_every_name_is_where_it_says():
    assert moved() == []
    assert len({(symbol.file, symbol.name) for symbol in SYMBOLS}) == len(SYMBOLS)
    assert all(symbol.purpose for symbol in SYMBOLS)


ADAPTER = Path(agent_envs.adapters.verl.__file__).parent
VERL = Path(next(iter(importlib.util.find_spec("verl").submodule_search_locations)))  # type: ignore[union-attr,arg-type]


def test_what_is_imported_of_verl_is_listed():
    """Each name under the file it is imported from, and each module that is waited for or patched."""
    listed = {(symbol.file, symbol.name.partition(".")[0]) for symbol in SYMBOLS}
    files = {symbol.file for symbol in SYMBOLS}
    for path in ADAPTER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "verl":
                for alias in node.names:
                    whole = file_of(f"{node.module}.{alias.name}")  # a module that is imported whole
                    found = whole in files if whole else (file_of(node.module or ""), alias.name) in listed
                    assert found, (path.name, node.module, alias.name)
            elif isinstance(node, ast.Import):
                assert not [a.name for a in node.names if a.name.startswith("verl.")], path.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
                run = node.value.partition(".")[2].replace(".", "/") + "/__main__.py"  # as python -m
                assert node.value in GROUPS or files & {file_of(node.value), run}, (path.name, node.value)


MODULE = re.compile(r"verl(\.\w+)+")
GROUPS = ("verl.plugins",)  # of entry points


def file_of(module: str) -> str | None:
    """The file of a module within verl; None if there is no such module."""
    path = Path(*module.split(".")[1:])
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if (VERL / found).is_file():
            return found.as_posix()
    return None


@pytest.mark.filterwarnings("ignore")
def test_methods_of_verl_that_are_overridden_or_called_are_listed():
    from agent_envs.adapters.verl.batch import asynchronous, phases, trainer, tree_engine
    from agent_envs.adapters.verl.rollout import agent_loop, cpu_rollout, ray_weights

    listed = {symbol.name for symbol in SYMBOLS}
    ours_all = (
        asynchronous,
        phases,
        trainer,
        tree_engine,
        agent_loop,
        cpu_rollout,
        ray_weights,
    )
    for module in ours_all:
        for ours in vars(module).values():
            if not isinstance(ours, type) or ours.__module__ != module.__name__:
                continue
            theirs = [c for c in ours.__mro__ if c.__module__.startswith("verl.")]
            used = {name for name, value in vars(ours).items() if inspect.isroutine(value)} | called(ours)
            for name in (name for name in used if not name.startswith("__")):
                at = [c.__name__ for c in theirs if inspect.isroutine(vars(c).get(name))]
                if at and (name.startswith("_") or "PPOTrainer" in at):
                    assert listed & {f"{c.__name__}.{name}" for c in theirs}, (ours.__name__, name, at)


def called(cls: type) -> set[str]:
    """The names that a class asks itself or its bases for."""
    out = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if isinstance(node, ast.Attribute):
            of = node.value.func if isinstance(node.value, ast.Call) else node.value
            if isinstance(of, ast.Name) and of.id in ("self", "super"):
                out.add(node.attr)
    return out
