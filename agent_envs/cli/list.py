"""List every environment: the step limit, the data on this machine, the extras that are not installed, and the task.

Every environment of this package plays generated tasks out of the box, without a network; those listed last play
another package's. For official data, run `agentr1 prepare TASK`
and then use data="official", or --data official; the path of files in the released format works too. An extra comes
with `pip install 'agent-envs[EXTRA]'`; --json says what it installs, how to get the data, and which tools there are.

examples:
  agentr1 list
  agentr1 list qa webshop            # those whose id contains one of the words
  agentr1 list my_package:Mine/Task-v0
  agentr1 list --json | jq -r '.[].id'
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.checks import argument_names
from agent_envs.cli.options import option
from agent_envs.errors import AgentEnvsError, ConfigError, DataError, did_you_mean
from agent_envs.registration import ENV_IDS, FOREIGN_IDS, PICTURE_IDS, env_maker_of
from agent_envs.wrapping.specs import make_text_env

_SEARCHED = {"numba": "search", "faiss": "search", "transformers": "hf", "pyserini": "lucene", "datasets": "data"}
NEEDS: dict[str, dict[str, str]] = {
    "AgentR1/ALFWorld-v0": {"alfworld": "alfworld"},
    "AgentR1/Gem-v0": {"gem": "gem"},
    "AgentR1/HelpDesk-v0": {},
    "AgentR1/HotpotQA-v0": _SEARCHED,
    "AgentR1/MCP-v0": {"mcp": "mcp"},
    "AgentR1/MathCode-v0": {"math_verify": "math", "datasets": "data"},
    "AgentR1/MuSiQue-v0": _SEARCHED,
    "AgentR1/OpenEnv-v0": {"openenv": "suites"},
    "AgentR1/PaperSearch-v0": {"numba": "search", "datasets": "data"},
    "AgentR1/RLVE-v0": {"Gym.environment": "suites"},
    "AgentR1/ReasoningGym-v0": {"reasoning_gym": "suites"},
    "AgentR1/ScienceWorld-v0": {"scienceworld": "suites"},
    "AgentR1/SkyRLGym-v0": {"skyrl_gym": "suites"},
    "AgentR1/TauBench-v0": {"openai": "openai"},
    "AgentR1/TextArena-v0": {"textarena": "suites"},
    "AgentR1/TextWorld-v0": {"textworld": "suites"},
    "AgentR1/TwoWikiMultihopQA-v0": _SEARCHED,
    "AgentR1/Verifiers-v0": {"verifiers": "suites"},
    "AgentR1/WebShop-v0": {"spacy": "suites"},
}
"""The modules that environments can use, and the extra that installs each; those not named can use `datasets`."""


@dataclass(kw_only=True)
class Options:
    names: list[str] = option(..., "part of an id, or your own as module:ID", "names", nargs="*", metavar="NAME")
    json: bool = option(False, "print a JSON array instead")


def run(options: Options) -> str:
    chosen: list[str] = []
    for name in options.names or [""]:
        ids = (*ENV_IDS, *PICTURE_IDS, *(FOREIGN_IDS if name else ()))
        known = [env_id for env_id in ids if name.lower() in env_id.lower()]
        if ":" in name or (not known and name in gym.registry):
            known = [name]
        if not known:
            raise ConfigError(f"no id contains {name!r}.{did_you_mean(name, (*ENV_IDS, *PICTURE_IDS))}")
        chosen += [env_id for env_id in known if env_id not in chosen]
    rows = [describe(env_id) for env_id in chosen]
    if options.json:
        return json.dumps(rows, indent=1)
    lines = [("id", "steps", "data here", "missing extras", "task"), *map(_cells, rows)]
    for env_id in () if options.names else FOREIGN_IDS:
        missing = ",".join(extra for module, extra in NEEDS[env_id].items() if not _installed(module))
        lines.append((env_id, "", "", missing, _description(gym.spec(env_id))))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "\n".join("  ".join([*map(str.ljust, line, widths), line[-1]]) for line in lines)


def describe(env_id: str) -> dict[str, Any]:
    """Describe an environment.

    Returns:
        `id`, `description`, `max_episode_steps` (or None), `tools` (names; None if the environment cannot be made),
        `data`: `{"generated": bool, "official": {"in_place": bool, "note": how to get it} or None}` (None for an
        environment that takes no data), and `extras`: a list of `{"module", "installed", "extra", "install"}`.
    """
    tools, problem = _made(env_id, {})
    spec = gym.spec(env_id.rpartition(":")[2])
    data: dict[str, Any] | None = None
    if "data" in argument_names(env_maker_of(spec)):
        data = {"generated": problem is None, "official": None}
        _, why = _made(env_id, {"data": "official"})
        # Prepared data may lack the split that is played by default.
        in_place = why is None or (isinstance(why, ConfigError) and "has no split" in str(why))
        if in_place or isinstance(why, DataError):
            data["official"] = {"in_place": in_place, "note": str(why or "")}
    return {
        "id": spec.id,
        "description": _description(spec),
        "max_episode_steps": spec.max_episode_steps,
        "tools": tools,
        "data": data,
        "extras": [
            {
                "module": module,
                "installed": _installed(module),
                "extra": extra,
                "install": f"pip install 'agent-envs[{extra}]'",
            }
            for module, extra in NEEDS.get(spec.id, {"datasets": "data"} if spec.id in ENV_IDS else {}).items()
        ],
        **({"problem": str(problem)} if problem else {}),
    }


def _made(env_id: str, kwargs: dict[str, Any]) -> tuple[list[str] | None, AgentEnvsError | None]:
    """Return the names of the tools, or why the environment cannot be made."""
    try:
        env = make_text_env(env_id, kwargs, ())
    except AgentEnvsError as e:
        if env_id.rpartition(":")[2] not in gym.registry:
            raise
        return None, e
    tools = env.get_wrapper_attr("tools") if env.has_wrapper_attr("tools") else []
    env.close()
    return [tool["function"]["name"] for tool in tools], None


def _description(spec: Any) -> str:
    paragraphs = (" ".join(part.split()) for part in (inspect.getdoc(env_maker_of(spec)) or "").split("\n\n"))
    return next((part for part in paragraphs if not part.startswith("#")), "")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    data = row["data"] or {"generated": False, "official": None}
    here = {"generated": data["generated"], "official": (data["official"] or {}).get("in_place")}
    missing = dict.fromkeys(each["extra"] for each in row["extras"] if not each["installed"])
    task = f"{row['description']} Problem: {row['problem']}" if "problem" in row else row["description"]
    kinds = ", ".join(kind for kind, is_here in here.items() if is_here)
    return row["id"], str(row["max_episode_steps"] or ""), kinds, ",".join(missing), task
