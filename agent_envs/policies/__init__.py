"""Policies: what plays the environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_envs.policies.base import Actor, Policy, Response
from agent_envs.policies.best_of import BestOfN
from agent_envs.policies.expert import ExpertPolicy
from agent_envs.policies.human import HumanPolicy
from agent_envs.policies.random import RandomPolicy
from agent_envs.policies.scripted import ScriptedPolicy

if TYPE_CHECKING:
    from agent_envs.policies.local.transformers import TransformersPolicy
    from agent_envs.policies.local.vllm import VLLMPolicy
    from agent_envs.policies.openai.policy import OpenAIPolicy

__all__ = [
    "Actor",
    "BestOfN",
    "ExpertPolicy",
    "HumanPolicy",
    "OpenAIPolicy",
    "Policy",
    "RandomPolicy",
    "Response",
    "ScriptedPolicy",
    "TransformersPolicy",
    "VLLMPolicy",
]

_LAZY = {
    "OpenAIPolicy": "agent_envs.policies.openai.policy",
    "TransformersPolicy": "agent_envs.policies.local.transformers",
    "VLLMPolicy": "agent_envs.policies.local.vllm",
}


def __getattr__(name: str) -> Any:
    """Policies with modules of their own to load, when they are first asked for."""
    if name in _LAZY:
        from importlib import import_module

        return import_module(_LAZY[name]).__dict__[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
