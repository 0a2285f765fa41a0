"""`agentr1 audit`: attack the reward of an environment, and write a certificate of what was found."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from agent_envs.audit.guard import run_apart
from agent_envs.checks import json_object
from agent_envs.errors import ConfigError

__all__ = ["add_arguments", "run"]

_FOUND = 3
_EPILOG = """\
Policies that do not do the task play it: they say nothing, the same, the question, what solves another task, every
answer at once, the form of an answer, or what a grader might print; they repeat what is paid, wait, and look for
answers in info, instructions, errors, tools, snapshots and options of reset. Episodes are compared over resets,
instances, snapshots and the order of play, splits with each other, and somebody must win. Each finding has the shortest
episode that shows it.

The exit status is 0 if nothing was found, 3 if something was, and 2 if the environment cannot be played, or ends the
process that it runs in, which is a process of its own. What it prints is not shown.

examples:
  agentr1 audit AgentR1/GSM8KTool-v0
  agentr1 audit my_task:Me/MyTask-v0 --out runs/audit          # then: agentr1 view runs/audit
  agentr1 audit AgentR1/GSM8KTool-v0 --env-kwargs '{"tool": "check_answer"}' --json
  agentr1 audit FrozenLake-v1                                  # any environment over text or a few discrete actions
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("env", metavar="ENV", help="an id, such as AgentR1/GSM8KTool-v0, or your own as module:ID")
    add("--env-kwargs", metavar="JSON", help="arguments of the environment, as a JSON object")
    add("--tasks", type=int, default=100, metavar="N", help="tasks to play (default: %(default)s)")
    add(
        "--chance", type=float, default=0.0, metavar="P",
        help="share of the tasks that a guess may solve, such as 0.25 for a choice among four (default: 0)",
    )  # fmt: skip
    add(
        "--step-timeout", type=float, default=120.0, metavar="SECONDS",
        help="a reset or a step that takes longer is a finding, and ends the audit (default: %(default)g)",
    )  # fmt: skip
    add("--out", metavar="DIR", help="folder for certificate.json and the episodes of the findings")
    add("--json", action="store_true", help="print the certificate as JSON instead of the table")
    add("--quiet", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> str | tuple[str, int]:
    if arguments.tasks < 1:
        raise ConfigError(f"--tasks must be at least 1, got {arguments.tasks}")
    kwargs = json_object("--env-kwargs", arguments.env_kwargs)
    return run_apart(lambda: _audited(arguments, kwargs))


def _audited(arguments: argparse.Namespace, kwargs: dict[str, Any]) -> tuple[str, int]:
    from agent_envs.audit import audit

    certificate = audit(
        arguments.env,
        env_kwargs=kwargs,
        tasks=arguments.tasks,
        chance=arguments.chance,
        step_timeout=arguments.step_timeout,
        progress=not arguments.quiet and sys.stderr.isatty(),
    )
    said = json.dumps(certificate.to_dict(), indent=1) if arguments.json else certificate.table()
    if arguments.out is not None:
        certificate.write(Path(arguments.out))
        if not arguments.json and certificate.findings:
            said += f"\n\nagentr1 view {arguments.out} shows the episodes"
    return said, 0 if certificate.passed else _FOUND
