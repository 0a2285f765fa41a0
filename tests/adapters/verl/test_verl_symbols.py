"""What the adapter touches of verl is where it looks for it: a new release of verl is tried here first.

1. every name that is imported, and every module that is waited for, run or named
2. every attribute of a module that the plugin reads or patches
3. every method that is overridden, called or patched, by the class of verl that has it
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import agent_envs.adapters.verl

_LOOP = "experimental/agent_loop/agent_loop.py"
_BUFFER = "trainer/ppo/v1/replay_buffer.py"
METHODS = {
    ("trainer/ppo/v1/trainer_base.py", "PPOTrainer"): (
        "__init__ _setup on_init_end on_sample_end on_step_begin on_step_end on_train_begin on_validate_begin "
        "get_llm_client _add_async_warmup_batches _add_batch_to_generate _submit_batch_to_rollout _balance_batch "
        "_compute_old_log_prob _compute_ref_log_prob _compute_values _compute_advantage _update_critic _update_actor "
        "_compute_metrics _val_metrics_update _save_checkpoint _load_checkpoint _build_replay_buffer"
    ),
    (_LOOP, "AgentLoopWorker"): "_compute_multi_modal_inputs _compute_position_ids",
    (_BUFFER, "ReplayBuffer"): "_wait_for_next_poll",
    (_BUFFER, "ReplayBufferAsync"): "_materialize_batch _sync_metadata_from_transfer_queue",
    ("trainer/ppo/v1/agent_loop_tq.py", "AgentLoopWorkerTQ"): "_agent_loop_postprocess",
    ("workers/rollout/replica.py", "RolloutReplicaRegistry"): "register",
    ("workers/rollout/llm_server.py", "LLMServerClient"): "generate",
    ("workers/rollout/llm_server.py", "LLMServerManager"): "_init_global_load_balancer",
    ("workers/engine_workers.py", "TrainingWorker"): "reset",
}
"""The methods by the file and the class that have them, or inherit them within the file."""

ADAPTER = Path(agent_envs.adapters.verl.__file__).parent
VERL = Path(next(iter(importlib.util.find_spec("verl").submodule_search_locations)))  # type: ignore[union-attr,arg-type]
MODULE = re.compile(r"verl(\.\w+)+")
GROUPS = ("verl.plugins",)  # of entry points


@functools.cache
def names_of(file: str) -> set[str]:
    """The names that a file defines or imports at its top, and the methods of its classes."""
    names: set[str] = set()
    methods: dict[str, set[str]] = {}
    for node in ast.parse((VERL / file).read_text(encoding="utf-8")).body:
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


def file_of(module: str) -> str | None:
    """The file of a module within verl; None if there is no such module."""
    path = Path(*module.split(".")[1:])
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if (VERL / found).is_file():
            return found.as_posix()
    return None


def test_what_is_imported_of_verl_is_there():
    for path in ADAPTER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "verl":
                for alias in node.names:
                    file = file_of(node.module or "")
                    found = file_of(f"{node.module}.{alias.name}") or (file and alias.name in names_of(file))
                    assert found, (path.name, node.module, alias.name)
            elif isinstance(node, ast.Import):
                assert not [a.name for a in node.names if a.name.startswith("verl.")], path.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
                run = VERL / node.value.partition(".")[2].replace(".", "/") / "__main__.py"  # as python -m
                assert node.value in GROUPS or file_of(node.value) or run.is_file(), (path.name, node.value)


def test_what_the_plugin_patches_is_there():
    tree = ast.parse((ADAPTER / "run" / "plugin.py").read_text(encoding="utf-8"))
    patches = [each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    waits = [(call, each) for each in patches for call in each.decorator_list if isinstance(call, ast.Call)]
    assert len(waits) > 15
    for call, patch in waits:
        module, *replaced = (ast.literal_eval(argument) for argument in call.args)
        file = file_of(module)
        assert set(replaced) <= names_of(file), (patch.name, file, replaced)
        for node in ast.walk(patch):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "module":
                assert node.attr in names_of(file), (patch.name, file, node.attr)


@pytest.mark.filterwarnings("ignore")
def test_methods_of_verl_that_are_overridden_or_called_are_there():
    from agent_envs.adapters.verl.batch import asynchronous, phases, trainer, tree_engine
    from agent_envs.adapters.verl.rollout import agent_loop, cpu_rollout, ray_weights

    listed = {(file, f"{cls}.{name}") for (file, cls), names in METHODS.items() for name in names.split()}
    assert not [(file, name) for file, name in listed if name not in names_of(file)]
    for module in (asynchronous, phases, trainer, tree_engine, agent_loop, cpu_rollout, ray_weights):
        for ours in vars(module).values():
            if not isinstance(ours, type) or ours.__module__ != module.__name__:
                continue
            theirs = [c for c in ours.__mro__ if c.__module__.startswith("verl.")]
            used = {name for name, value in vars(ours).items() if inspect.isroutine(value)} | called(ours)
            for name in (name for name in used if not name.startswith("__")):
                at = [c.__name__ for c in theirs if inspect.isroutine(vars(c).get(name))]
                if at and (name.startswith("_") or "PPOTrainer" in at):
                    known = {method for _, method in listed}
                    assert known & {f"{c.__name__}.{name}" for c in theirs}, (ours.__name__, name, at)


def called(cls: type) -> set[str]:
    """The names that a class asks itself or its bases for."""
    out = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if isinstance(node, ast.Attribute):
            of = node.value.func if isinstance(node.value, ast.Call) else node.value
            if isinstance(of, ast.Name) and of.id in ("self", "super"):
                out.add(node.attr)
    return out
