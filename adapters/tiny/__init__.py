"""tiny-base and tiny-vision, the pretrained models that a CPU trains if no model is given, and what made them.

`base` loads tiny-base, `warm_start` teaches it the form of a task of one's own, `pretrain` makes it anew: `tokenizer`,
`model` and `demonstrations` are its parts, `supervised` is the loop. `vision` gives it eyes; `seeing` taught
tiny-vision to use them. No trainer is imported here.
"""

from importlib.util import find_spec

from agent_envs.errors import MissingExtraError

if find_spec("torch") is None:
    raise MissingExtraError("torch", extra="hf")
