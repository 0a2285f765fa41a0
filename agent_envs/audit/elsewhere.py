"""Plays the same episodes in processes with other seeds of hashes, where sets have another order.

Such a process runs this module: it reads a request from standard input and answers on standard output.

    ask     {"env": "AgentR1/GSM8K-v0", "env_kwargs": {}, "plays": [[3, ["#### 7"]]]}
    reply   [[instructions, tools, transcript of each play], ...]
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent_envs.audit.conduct import difference
from agent_envs.audit.findings import Finding
from agent_envs.audit.play import Arena, scripted
from agent_envs.audit.study import Study
from agent_envs.checks import load_function
from agent_envs.rollout.panel import named

_SEEDS = ("1", "2")
_TASKS = 8
_SECONDS = 300.0


def hash_seeds(arena: Arena, study: Study) -> tuple[str, list[Finding]]:
    """Return what was compared, and a finding if two processes with other seeds of hashes are told otherwise."""
    name = named(arena.source)
    if "<" in name or name.startswith("__main__:"):
        return "not compared: other processes cannot make it by its name", []
    plays = []
    for task in arena.tasks[:_TASKS]:
        known = study.experts.get(task)
        plays += [(task, ["0 zz"]), *([] if known is None else [(task, known.actions)])]
    try:
        request = json.dumps({"env": name, "env_kwargs": dict(arena.env_kwargs), "plays": plays})
    except (TypeError, ValueError):
        return "not compared: the arguments cannot be given to another process", []
    try:
        with ThreadPoolExecutor(len(_SEEDS)) as pool:
            answers = list(pool.map(functools.partial(_answer, request), _SEEDS))
    except subprocess.TimeoutExpired:
        return f"not compared: another process did not play them in {_SECONDS:g} seconds", []
    except (OSError, ValueError):
        return "not compared: another process cannot make it", []
    said = f"the same {len(plays)} episodes in processes with other seeds of hashes"
    for (task, actions), (*told, before), (*retold, after) in zip(plays, *answers, strict=True):
        if told == retold and before == after:
            continue
        why = "the instructions or the tools depend" if told != retold else f"{difference(before, after)}: it depends"
        played = arena.play(task, scripted(actions), patient=True)
        why += " on the order of sets, or on the process"
        return said, [Finding("nondeterminism", "two seeds of hashes", why, played)]
    return f"nothing found: {said}", []


def _answer(request: str, seed: str) -> list[Any]:
    """Return what a process with that seed of hashes replies; a ValueError if it ends without a reply."""
    command = [sys.executable, "-m", "agent_envs.audit.elsewhere"]
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    ran = subprocess.run(
        command, input=request, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        errors="surrogatepass", timeout=_SECONDS, check=False,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
    )  # fmt: skip
    return json.loads(ran.stdout)


def _replies(request: Mapping[str, Any]) -> list[Any]:
    name, env_kwargs = request["env"], request["env_kwargs"]
    try:
        arena = Arena(name, env_kwargs, 1)
    except Exception:  # noqa: BLE001  what is no id may be a function
        arena = Arena(load_function(name, "env"), env_kwargs, 1)
    try:
        played = [arena.play(task, scripted(actions), patient=True) for task, actions in request["plays"]]
        return [[one.instructions, one.tools, one.transcript] for one in played]
    finally:
        arena.close()


if __name__ == "__main__":
    answer = os.dup(1)
    os.dup2(2, 1)  # what the environment prints is no answer
    text = json.dumps(_replies(json.load(sys.stdin)))
    with open(answer, "w", encoding="utf-8") as out:
        out.write(text)
