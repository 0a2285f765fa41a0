"""A tiny Qwen2 model, its tokenizer and its warm start: what the CPU preset trains if no model is given.

`tokenizer` makes a byte-level BPE with a tool-calling chat template, `model` makes a model of about 140 thousand
parameters, and `warm_start` teaches it a task's format on demonstrations. No trainer is imported here.
"""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("torch") is None:
    raise MissingExtraError("torch", extra="hf")
