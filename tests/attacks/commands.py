"""Commands that several attacks begin with."""

EVAL = [
    "eval", "--env", "AgentR1/GSM8KTool-v0", "--split", "test", "--policy", "expert", "--n", "2", "--quiet", "--out",
]  # fmt: skip
"""A run that the next argument names."""
