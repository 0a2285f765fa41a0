"""List every environment: the step limit, the data on this machine, the extras that are not installed, and the task.

Every environment of this package plays generated tasks out of the box, without a network; those listed last play
another package's. For official data, run `agentr1 prepare TASK`
and then use data="official", or --data official; the path of files in the released format works too. An extra comes
with `pip install 'agent-envs[EXTRA]'`; --json says what each is for, how to get the data, and which tools there are.

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
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from agent_envs.cli.options import option
from agent_envs.errors import AgentEnvsError, ConfigError, DataError, did_you_mean
from agent_envs.registration import ENV_IDS, FOREIGN_IDS, PICTURE_IDS
from agent_envs.wrapping.specs import make_text_env


class Need(NamedTuple):
    """What an environment can use: an extra of this package, a module that it installs, and what it is needed for."""

    extra: str
    module: str
    purpose: str


_DATA = Need("data", "datasets", "parquet files, and fetching official data from the hub")
_NUMBA = Need("search", "numba", "fast search in large corpora")
_SEARCHED = (
    _NUMBA,
    Need("search", "faiss", "search by dense vectors"),
    Need("hf", "transformers", "retriever='dense:FOLDER', which encodes queries"),
    Need("lucene", "pyserini", "retriever='lucene'"),
    _DATA,
)
NEEDS = {
    "AgentR1/ALFWorld-v0": (Need("alfworld", "alfworld", "engine='textworld', the original engine"),),
    "AgentR1/Gem-v0": (Need("gem", "gem", "the games of the package gem-llm"),),
    "AgentR1/HelpDesk-v0": (),
    "AgentR1/HotpotQA-v0": _SEARCHED,
    "AgentR1/MCP-v0": (Need("mcp", "mcp", "the tools of servers of the Model Context Protocol"),),
    "AgentR1/MathCode-v0": (Need("math", "math_verify", "released problems of mathematics"), _DATA),
    "AgentR1/MuSiQue-v0": _SEARCHED,
    "AgentR1/OpenEnv-v0": (Need("suites", "openenv", "environments of OpenEnv servers"),),
    "AgentR1/PaperSearch-v0": (_NUMBA, _DATA),
    "AgentR1/RLVE-v0": (Need("suites", "Gym.environment", "the problems of the package rlve-gym"),),
    "AgentR1/ReasoningGym-v0": (Need("suites", "reasoning_gym", "the generators of the package reasoning-gym"),),
    "AgentR1/ScienceWorld-v0": (Need("suites", "scienceworld", "the simulator of the package scienceworld"),),
    "AgentR1/SkyRLGym-v0": (Need("suites", "skyrl_gym", "the environments of the package skyrl-gym"),),
    "AgentR1/TauBench-v0": (Need("openai", "openai", "customer='llm', a model that plays the customer"),),
    "AgentR1/TextArena-v0": (Need("suites", "textarena", "the games of the package textarena"),),
    "AgentR1/TextWorld-v0": (Need("suites", "textworld", "the text adventures of the package textworld"),),
    "AgentR1/TwoWikiMultihopQA-v0": _SEARCHED,
    "AgentR1/Verifiers-v0": (Need("suites", "verifiers", "the environments of the package verifiers"),),
    "AgentR1/WebShop-v0": (Need("suites", "spacy", "tagger='spacy', the original's nouns"),),
}
"""What environments can use; those that are not named here can use the extra `data`."""


@dataclass(kw_only=True)
class Options:
    """Which environments are listed, and how."""

    names: list[str] = option(..., "part of an id, or your own as module:ID", "names", nargs="*", metavar="NAME")
    json: bool = option(False, "print a JSON array instead")


def run(options: Options) -> str:
    rows = [describe(env_id) for env_id in _chosen(options.names)]
    if options.json:
        return json.dumps(rows, indent=1)
    lines = [("id", "steps", "data here", "missing extras", "task"), *map(_cells, rows)]
    for env_id in () if options.names else FOREIGN_IDS:
        missing = ",".join(need.extra for need in NEEDS[env_id] if not _installed(need.module))
        lines.append((env_id, "", "", missing, _description(gym.spec(env_id))))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return "\n".join("  ".join([*map(str.ljust, line, widths), line[-1]]) for line in lines)


def describe(env_id: str) -> dict[str, Any]:
    """Describe an environment.

    Returns:
        `id`, `description`, `max_episode_steps` (or None), `tools` (names; None if the environment cannot be made),
        `data`: `{"generated": bool, "official": {"in_place": bool, "note": how to get it} or None}` (None for an
        environment that takes no data), and `extras`: a list of `{"extra", "purpose", "installed", "install"}`.
    """
    tools, generated, note = _made(env_id, {})
    spec = gym.spec(env_id.rpartition(":")[2])
    entry = _entry(spec)  # whose arguments are also those of its bases
    classes = [cls for cls in inspect.getmro(entry) if cls is not object] if inspect.isclass(entry) else [entry]
    takes_data = any("data" in inspect.signature(cls).parameters for cls in classes)
    _, official, official_note = _made(env_id, {"data": "official"}) if takes_data else (None, False, "")
    data: dict[str, Any] | None = {"generated": generated, "official": None} if takes_data else None
    if data and (official or official_note.startswith("data: ")):
        data["official"] = {"in_place": official, "note": official_note.removeprefix("data: ")}
    return {
        "id": spec.id,
        "description": _description(spec),
        "max_episode_steps": spec.max_episode_steps,
        "tools": tools,
        "data": data,
        "extras": [
            {
                "extra": need.extra,
                "purpose": need.purpose,
                "installed": _installed(need.module),
                "install": f"pip install 'agent-envs[{need.extra}]'",
            }
            for need in NEEDS.get(spec.id, (_DATA,) if spec.id in ENV_IDS else ())
        ],
        **({"problem": note} if note else {}),
    }


def _chosen(names: list[str]) -> list[str]:
    found: list[str] = []
    for name in names or [""]:
        ids = (*ENV_IDS, *PICTURE_IDS, *(FOREIGN_IDS if name else ()))
        known = [env_id for env_id in ids if name.lower() in env_id.lower()]
        if ":" in name or (not known and name in gym.registry):
            known = [name]
        if not known:
            raise ConfigError(f"no id contains {name!r}.{did_you_mean(name, (*ENV_IDS, *PICTURE_IDS))}")
        found += [env_id for env_id in known if env_id not in found]
    return found


def _made(env_id: str, kwargs: dict[str, Any]) -> tuple[list[str] | None, bool, str]:
    """Return the tools' names, whether the environment can be made, and why not ("data: ..." if data is missing)."""
    try:
        env = make_text_env(env_id, kwargs, ())
    except DataError as e:
        return None, False, f"data: {e}"
    except AgentEnvsError as e:
        if env_id.rpartition(":")[2] not in gym.registry:
            raise
        # prepared data may lack the split that is played by default
        return None, "has no split" in str(e), str(e)
    tools = env.get_wrapper_attr("tools") if env.has_wrapper_attr("tools") else []
    env.close()
    return [tool["function"]["name"] for tool in tools], True, ""


def _entry(spec: Any) -> Any:
    return spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)


def _description(spec: Any) -> str:
    doc = inspect.getdoc(_entry(spec)) or ""
    paragraphs = (" ".join(part.split()) for part in doc.split("\n\n"))
    return next((part for part in paragraphs if not part.startswith("#")), "")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    data = row["data"] or {"generated": False, "official": None}
    kinds = ["generated"] * data["generated"] + ["official"] * bool((data["official"] or {}).get("in_place"))
    missing = dict.fromkeys(each["extra"] for each in row["extras"] if not each["installed"])
    task = f"{row['description']} Problem: {row['problem']}" if "problem" in row else row["description"]
    return row["id"], str(row["max_episode_steps"] or ""), ", ".join(kinds), ",".join(missing), task
