"""tiny-base and tiny-vision, the pretrained models that a CPU trains if no model is given.

`model` loads tiny-base, `vision` gives it eyes and loads tiny-vision, `warm_start` teaches either the form of a task of
one's own by demonstrations, and `supervised` is the loop. benchmarks/pretraining made both models and their tokenizer.
No trainer is imported here.
"""

from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch  # noqa: F401
