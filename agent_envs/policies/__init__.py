"""Policies: what plays the environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_envs.per_process import lazy_names
from agent_envs.policies.model import MadePolicy
from agent_envs.policies.policy import Actor, Policy, Response
from agent_envs.policies.scripted import ExpertPolicy, RandomPolicy, ScriptedPolicy

if TYPE_CHECKING:
    from agent_envs.policies.local.transformers import TransformersPolicy
    from agent_envs.policies.local.vllm import VLLMPolicy
    from agent_envs.policies.openai.policy import OpenAIPolicy

__all__ = [
    "Actor", "ExpertPolicy", "MadePolicy", "OpenAIPolicy", "Policy", "RandomPolicy",
    "Response", "ScriptedPolicy", "TransformersPolicy", "VLLMPolicy",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {"OpenAIPolicy": "openai.policy", "TransformersPolicy": "local.transformers", "VLLMPolicy": "local.vllm"},
)
