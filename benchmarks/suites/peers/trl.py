"""TRL: a trainer, whose environments are classes of the user's; its tool loop is inside GRPOTrainer."""

from __future__ import annotations

from probe import unique_tokens

IMPORT = "from trl import GRPOTrainer"
TASK = "none"
_NONE = "has no environments of its own"
_INSIDE = "its tool loop is a part of GRPOTrainer, between generations of a model"
WHY = {
    **dict.fromkeys(("task", "gymnasium_env", "hostile_texts", "expert"), _NONE),
    **dict.fromkeys(("loop", "tool_limit", "program", "hostile_calls"), _INSIDE),
}
LAYOUT = "computed: one row for a rollout, to which results are appended; rebuilt prompts do not fit"


def processed(steps: int) -> int:
    return unique_tokens(steps)
