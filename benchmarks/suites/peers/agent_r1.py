"""Agent-R1, which is no package: its rows are counted, and nothing else."""

from __future__ import annotations

from probe import row_per_step

TASK = "none"
_NO = "is no package that pip installs: a checkout beside verl 0.7.0 and vLLM, with a GPU"
WHY = dict.fromkeys(
    ("IMPORT", "task", "loop", "gymnasium_env", "tool_limit", "program", "hostile_texts", "hostile_calls", "expert"),
    _NO,
)
LAYOUT = "computed: a row of every step, with that step's whole prompt, as its documentation describes"
processed = row_per_step
