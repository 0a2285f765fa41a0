"""Attack the reward of an environment with policies that do not do its task, and write a certificate.

Policies that do not do the task play it: they say nothing, the same, the question, what solves another task, every
answer at once, the form of an answer, or what a grader might print; they repeat what is paid, wait, and look for
answers in info, instructions, errors, tools, snapshots and options of reset. Episodes are compared over resets,
instances, snapshots and the order of play, splits with each other, and somebody must win. Each finding has the shortest
episode that shows it.

The exit status is 0 if nothing was found, 3 if something was, and 2 if the environment cannot be played, or ends the
process that it runs in, which is a process of its own. What it prints is not shown.

examples:
  agentr1 audit --env AgentR1/GSM8KTool-v0
  agentr1 audit --env my_task:Me/MyTask-v0 --out runs/audit          # then: agentr1 view runs/audit
  agentr1 audit --env AgentR1/GSM8KTool-v0 --env-kwargs '{"tool": "check_answer"}' --json
  agentr1 audit --env FrozenLake-v1                            # any environment over text or a few discrete actions
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent_envs.audit.guard import run_apart
from agent_envs.checks import json_object
from agent_envs.cli.options import EnvId, Folder, Json, Seconds, arguments_of, option
from agent_envs.errors import ConfigError


@dataclass(kw_only=True)
class Options:
    env: EnvId = option(..., "an id, such as AgentR1/GSM8KTool-v0, or your own as module:ID")
    env_kwargs: Json | None = option(None, "arguments of the environment, as a JSON object")
    tasks: int = option(100, "tasks to play")
    chance: float = option(0.0, "share of the tasks that a guess may solve, such as 0.25 for a choice among four")
    step_timeout: Seconds = option(120.0, "a reset or a step that takes longer is a finding, and ends the audit")
    out: Folder | None = option(None, "folder for certificate.json and the episodes of the findings")
    json: bool = option(False, "print the certificate as JSON instead of the table")
    quiet: bool = option(False, "show no progress bar")


def run(options: Options) -> str | tuple[str, int]:
    kwargs = json_object("--env-kwargs", options.env_kwargs)
    out = None if options.out is None else Path(options.out)
    if out and (out.is_file() or any(out.glob("*"))) and not (out / "certificate.json").is_file():
        raise ConfigError(f"--out {out} holds something else than an audit; choose another folder")
    return run_apart(partial(_audited, options, kwargs))


def _audited(options: Options, kwargs: dict[str, Any]) -> tuple[str, int]:
    from agent_envs.audit import audit

    settings = {**arguments_of(audit, options), "env_kwargs": kwargs}
    certificate = audit(options.env, **settings, progress=not options.quiet and sys.stderr.isatty())
    said = json.dumps(certificate.to_dict(), indent=1) if options.json else certificate.table()
    if options.out is not None:
        certificate.write(Path(options.out))
        if not options.json and certificate.findings:
            said += f"\n\nagentr1 view {options.out} shows the episodes"
    return said, 0 if certificate.passed else 3  # as the manual says
