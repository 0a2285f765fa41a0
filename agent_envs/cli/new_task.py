"""`agentr1 new-task NAME`: a small real task that works at once, as a package of the user's own, to be changed."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from agent_envs.errors import ConfigError
from agent_envs.files import write_text

__all__ = ["add_arguments", "check_name", "render", "run"]

_EPILOG = """\
The task it writes is played at once: orders in a shop, whose prices are asked for by commands, or with --tools by tool
calls with a process reward. It has generated data with disjoint splits, rows of files, an expert, a demonstrator that
errs, tests (the contract of text environments among them) and a page. Change it into yours.

examples:
  agentr1 new-task my_task                 # ./my_task with the id my_task:Me/MyTask-v0
  agentr1 new-task my_task --tools --namespace Lab --out ~/tasks/my_task
  cd my_task && pip install -e . && pytest
  agentr1 eval --env my_task:Me/MyTask-v0 --policy expert --n 100 --out runs/expert
  agentr1 new-task my_task --into-repo .   # contributors: into a checkout of this project

docs/tutorial_first_task.md explains the parts one by one.
"""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NAMESPACE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_IMPORTS = re.compile(r"^from agent_envs\S* import .+\n(?:from .+\n)*", re.MULTILINE)
_OWN = "AgentR1"
_ROW = re.compile(rf'^    "{_OWN}/(?P<name>\w+)-v\d+":', re.MULTILINE)
_RESERVED = frozenset({"agent_envs", "docs", "runs", "tests"})
_MAX_STEPS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 new-task`."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("name", metavar="NAME", help="the package's name in lower case, such as my_task")
    add("--tools", action="store_true", help="actions are tool calls (default: commands)")
    add("--namespace", default="Me", metavar="NS", help="what comes before the slash in the id (default: %(default)s)")
    add("--out", metavar="DIR", help="the folder to make; it must not exist (default: ./NAME)")
    add("--into-repo", metavar="DIR", help="add the task to a checkout of agent_envs instead, with an id of its own")


def run(arguments: argparse.Namespace) -> str:
    """Write the task; what to do next."""
    name, tools = check_name(arguments.name), arguments.tools
    if arguments.into_repo is not None:
        if arguments.out is not None or arguments.namespace != "Me":
            raise ConfigError("--into-repo decides where files go and what the id is: leave out --out and --namespace")
        return _into_repo(name, tools, Path(arguments.into_repo))
    namespace = arguments.namespace
    if not _NAMESPACE.fullmatch(namespace) or namespace == _OWN:
        raise ConfigError(f"--namespace is a name such as Me, and not {_OWN!r}, got {namespace!r}")
    target = Path(arguments.out or name)
    _refuse_installed(name)
    env_id = f"{namespace}/{_title(name)}-v0"
    _write_folder(target, render(name, env_id, tools=tools))
    where = os.path.relpath(target)
    return (
        f"{name}:{env_id} is in {where}. Now:\n"
        f"  cd {where}\n"
        "  pip install -e .\n"
        "  pytest\n"
        f"  agentr1 eval --env {name}:{env_id} --policy expert --n 100 --out runs/expert\n"
        "README.md says what each file is for."
    )


def check_name(name: str) -> str:
    """`name`, where it can be a package's.

    Raises:
        ConfigError: It cannot; the message has one that can where it is near.

    >>> check_name("my_task")
    'my_task'
    """
    if _NAME.fullmatch(name) and len(name) <= 40:
        if keyword.iskeyword(name) or name in _RESERVED or name in sys.stdlib_module_names:
            raise ConfigError(f"NAME {name!r} is taken by Python or by this project; choose another")
        return name
    near = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:40]).lower()).strip("_")
    hint = f"; did you mean {near!r}?" if _NAME.fullmatch(near) else ""
    raise ConfigError(
        f"NAME is at most 40 lower-case letters, digits and underscores, such as my_task, got {name[:60]!r}{hint}"
    )


def render(name: str, env_id: str, *, tools: bool, in_repo: bool = False) -> dict[str, str]:
    """The task's files: path within the folder, or within a checkout, to text.

    Args:
        name: The package's name, checked.
        env_id: The id that is registered.
        tools: Whether actions are tool calls.
        in_repo: Whether the files are for a checkout of this project.
    """
    kind = "tools" if tools else "commands"
    words = {
        "package": name,
        "dashed": name.replace("_", "-"),
        "name": _title(name),
        "title": name.replace("_", " ").capitalize(),
        "env_id": env_id,
        "made_as": env_id if in_repo else f"{name}:{env_id}",
        "max_steps": str(_MAX_STEPS),
        "env_module": f"agent_envs.envs.{name}" if in_repo else f"{name}.env",
        "dataset_module": f"agent_envs.datasets.{name}" if in_repo else f"{name}.dataset",
        "docs_page": f"{name}.md",
        "episode": _template(f"episode_{kind}").rstrip("\n"),
        "classes": ", ".join(f'"{each}"' for each in sorted((f"{_title(name)}Env", "PriceTool"))),
        "own_tests": _template(f"tests_{kind}.py").rstrip("\n") + "\n",
        "actions_in_words": {
            "tools": "Actions are calls of the tools `price` and `add_up`; a text without a call is the answer.",
            "commands": "Actions are the commands `price ITEM` and `answer NUMBER`.",
        }[kind],
    }
    places = (
        {
            f"agent_envs/envs/{name}.py": f"env_{kind}.py",
            f"datasets/{name}.py": "dataset.py",
            f"tests/test_{name}.py": "test_task.py",
            f"docs/{name}.md": "docs.md",
        }
        if in_repo
        else {
            "pyproject.toml": "pyproject.toml",
            ".gitignore": "gitignore",
            "README.md": "readme.md",
            f"{name}/__init__.py": "init.py",
            f"{name}/env.py": f"env_{kind}.py",
            f"{name}/dataset.py": "dataset.py",
            f"tests/test_{name}.py": "test_task.py",
            f"docs/{name}.md": "docs.md",
        }
    )
    return {path: _in_order(Template(_template(file)).substitute(words)) for path, file in places.items()}


def _in_order(text: str) -> str:
    """The text with the imports of this package and of the task sorted by module, which depends on the task's name."""
    return _IMPORTS.sub(lambda found: "".join(sorted(found[0].splitlines(keepends=True))), text)


def _title(name: str) -> str:
    """The name in the form of a class: my_task -> MyTask."""
    return "".join(part.capitalize() for part in name.split("_"))


def _template(name: str) -> str:
    folder = resources.files("agent_envs").joinpath("templates", "task")
    return folder.joinpath(f"{name}.txt").read_text(encoding="utf-8")


def _refuse_installed(name: str) -> None:
    """Refuse the name of a package that is there: one of the two could not be imported."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:
        raise ConfigError(f"a package {name!r} is installed already, at {spec.origin}; choose another NAME")


def _write_folder(target: Path, files: Mapping[str, str]) -> None:
    """Write the files into a new folder, which appears whole or not at all."""
    exists = ConfigError(f"{target} is there already, and nothing is overwritten; choose another NAME or --out")
    if target.exists() or target.is_symlink():
        raise exists
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name[:60]}-", dir=target.parent))
    except OSError as e:
        raise ConfigError(f"{target} cannot be written: {e.strerror}") from e
    try:
        for path, text in files.items():
            write_text(temporary / path, text)
        temporary.chmod(0o755)
        temporary.rename(target)
    except OSError as e:
        raise (exists if target.exists() else ConfigError(f"{target} cannot be written: {e.strerror}")) from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _into_repo(name: str, tools: bool, root: Path) -> str:
    """Write the task into a checkout and register its id."""
    registration = root / "agent_envs" / "registration.py"
    if not registration.is_file() or not (root / "setup.cfg").is_file():
        raise ConfigError(
            f"--into-repo {root}: not a checkout of agent_envs: it has no {registration.relative_to(root)}"
        )
    env_id = f"{_OWN}/{_title(name)}-v0"
    files = render(name, env_id, tools=tools, in_repo=True)
    there = [path for path in files if (root / path).exists()]
    text = registration.read_text(encoding="utf-8")
    if there or f'"{env_id}"' in text:
        raise ConfigError(
            f"{there[0] if there else env_id} is there already, and nothing is overwritten; choose another NAME"
        )
    before = [m.start() for m in _ROW.finditer(text) if m["name"] > _title(name)]
    at = before[0] if before else text.index("\n}\n", text.index("_SPECS")) + 1
    for path, content in files.items():
        write_text(root / path, content)
    write_text(registration, text[:at] + _row(name, env_id) + text[at:])
    return (
        f"{env_id} is in {', '.join(files)} and agent_envs/registration.py. Now:\n"
        "  python docs/generate.py\n"
        f"  python -m pytest tests/test_{name}.py\n"
        "  make test"
    )


def _row(name: str, env_id: str) -> str:
    """The id's row of the registration's table, in as few lines as the line length allows."""
    parts = [f'"entry_point": "agent_envs.envs.{name}:{_title(name)}Env"', f'"max_episode_steps": {_MAX_STEPS}']
    row = f'    "{env_id}": {{{", ".join(parts)}}},\n'
    if len(row) <= 121:
        return row
    return f'    "{env_id}": {{\n' + "".join(f"        {part},\n" for part in parts) + "    },\n"
