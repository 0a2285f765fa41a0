"""Write a small working task as a package of your own (environment, data, tests, a page), to be changed.

The task works as written: orders in a shop, whose prices the policy asks for by commands, or with --tools by tool
calls with a process reward. It has generated data with disjoint splits, rows from files, an expert, a demonstrator that
makes mistakes, tests (including the contract of text environments) and a docs page. Change it into yours.

examples:
  agentr1 new-task my_task                 # ./my_task with the id my_task:Me/MyTask-v0
  agentr1 new-task my_task --tools --namespace Lab --out ~/tasks/my_task
  cd my_task && pip install -e '.[dev]' && pytest
  agentr1 eval --env my_task:Me/MyTask-v0 --policy expert --n 100 --out runs/expert

docs/tutorial_first_task.md explains the parts one by one.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from agent_envs.cli.options import Folder, option
from agent_envs.errors import ConfigError
from agent_envs.files import write_text

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NAMESPACE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_OWN = "AgentR1"
_RESERVED = frozenset({"agent_envs", "docs", "runs", "tests"})
_MAX_STEPS = 10


@dataclass(kw_only=True)
class Options:
    name: str = option(..., "name of the package in lower case, such as my_task", "name")
    tools: bool = option(False, "actions are tool calls (default: commands)")
    namespace: str = option("Me", "namespace of the id", metavar="NS")
    out: Folder | None = option(None, "folder to create; it must not exist (default: ./NAME)")


def run(options: Options) -> str:
    name, namespace = check_name(options.name), options.namespace
    if not _NAMESPACE.fullmatch(namespace) or namespace == _OWN:
        raise ConfigError(f"--namespace must be a name such as Me, other than {_OWN!r}, got {namespace!r}")
    target = Path(options.out or name)
    if (found := importlib.util.find_spec(name)) and found.origin is not None:  # only one of the two could be imported
        raise ConfigError(f"a package {name!r} is already installed at {found.origin}; choose another NAME")
    env_id = f"{namespace}/{_title(name)}-v0"
    _write_folder(target, render(name, env_id, tools=options.tools))
    where = os.path.relpath(target)
    return (
        f"{name}:{env_id} is in {where}. Now:\n"
        f"  cd {where}\n"
        "  pip install -e '.[dev]'\n"
        "  pytest\n"
        f"  agentr1 eval --env {name}:{env_id} --policy expert --n 100 --out runs/expert\n"
        "README.md describes the files."
    )


def check_name(name: str) -> str:
    """Return `name` if it can name a package; else a ConfigError suggests a similar name that can."""
    if _NAME.fullmatch(name) and len(name) <= 40:
        if keyword.iskeyword(name) or name in _RESERVED or name in sys.stdlib_module_names:
            raise ConfigError(f"NAME {name!r} is used by Python or by this project; choose another")
        return name
    near = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:40]).lower()).strip("_")
    hint = f"; did you mean {near!r}?" if _NAME.fullmatch(near) else ""
    raise ConfigError(
        f"NAME must be at most 40 lower-case letters, digits and underscores, such as my_task, got {name[:60]!r}{hint}"
    )


def render(name: str, env_id: str, *, tools: bool) -> dict[str, str]:
    """Return the texts of the task's files by path, relative to the folder; its actions are `tools` or commands."""
    kind = "tools" if tools else "commands"
    words = {
        "package": name,
        "dashed": name.replace("_", "-"),
        "name": _title(name),
        "title": name.replace("_", " ").capitalize(),
        "env_id": env_id,
        "made_as": f"{name}:{env_id}",
        "max_steps": str(_MAX_STEPS),
        "episode": _template(f"episode_{kind}").rstrip("\n"),
        "own_tests": _template(f"tests_{kind}.py").rstrip("\n") + "\n",
        "actions_in_words": _template(f"words_{kind}").rstrip("\n"),
    }
    templates = {
        "pyproject.toml": "pyproject.toml",
        ".gitignore": "gitignore",
        "README.md": "readme.md",
        f"{name}/__init__.py": "init.py",
        f"{name}/env.py": f"env_{kind}.py",
        f"{name}/dataset.py": "dataset.py",
        f"tests/test_{name}.py": "test_task.py",
        f"docs/{name}.md": "docs.md",
    }
    return {path: Template(_template(file)).substitute(words) for path, file in templates.items()}


def _title(name: str) -> str:
    """Return the name in class form: my_task -> MyTask."""
    return "".join(part.capitalize() for part in name.split("_"))


def _template(name: str) -> str:
    return resources.files("agent_envs").joinpath("templates", "task", f"{name}.txt").read_text(encoding="utf-8")


def _write_folder(target: Path, files: Mapping[str, str]) -> None:
    """Write the files into a new folder, either all of them or none."""
    if os.path.lexists(target):
        raise ConfigError(f"{target} already exists, and nothing is overwritten; choose another NAME or --out")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name[:60]}-", dir=target.parent) as temporary:
            folder = Path(temporary) / "task"
            for path, text in files.items():
                write_text(folder / path, text)
            folder.rename(target)
    except OSError as e:
        raise ConfigError(f"{target} cannot be written: {e.strerror}") from e
