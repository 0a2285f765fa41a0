"""tiny-base and tiny-vision, the pretrained models that a CPU trains if no model is given.

`base` loads tiny-base, `vision` gives it eyes and loads tiny-vision, `warm_start` teaches either the form of a task of
one's own: `model` and `demonstrations` are its parts, `supervised` is the loop. benchmarks/pretraining made both models
and their tokenizer. No trainer is imported here.
"""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("torch") is None:
    raise MissingExtraError("torch", extra="hf")
