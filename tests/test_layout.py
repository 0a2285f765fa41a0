"""The promises of docs/architecture: who imports whom, no import circles, budgets of lines, exact public names.

Imports inside functions and under TYPE_CHECKING count: they tie modules together just as well. One more promise is the
Makefile's: `make bench` runs what needs no arguments.
"""

from __future__ import annotations

import ast
import configparser
import doctest
import importlib
import re
import shutil
import subprocess
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

TOP = ("adapters", "datasets", "wrappers")
ROOT_MODULES = 16
MODULE_LINES = 400

# A room may import itself and the rooms on the lines above its own.
LINES = (
    ("base",),
    ("parsers", "retrieval", "rewards", "sandbox"),
    ("tools",),
    ("env classes",),
    ("datasets", "prompts"),
    ("policies",),
    ("envs",),
    ("episodes", "testing"),
    ("wrapping",),
    ("wrappers",),
    ("serving",),
    ("agents",),
    ("rollout",),
    ("audit", "recording", "vector"),
    ("agent_envs",),  # the package itself: it re-exports public names
    ("adapters",),
    ("viewer",),
    ("cli",),
    ("__main__",),
)
LINE_OF = {room: number for number, rooms in enumerate(LINES) for room in rooms}
ROOT_ROOMS = {
    "base": (
        "http",
        "_version",
        "checks",
        "errors",
        "files",
        "json_stream",
        "messages",
        "per_process",
        "pictures",
        "registration",
        "spaces",
        "text",
        "threads",
    ),
    "env classes": ("branching", "problem_env", "tasks", "text_env", "tool_env"),
    "testing": ("testing",),
}
# Tasks are reached by the ids of their environments: only these rooms name them.
MAY_NAME = {"envs": {"envs", "cli"}, "datasets": {"datasets", "envs", "cli"}}
TRAINERS = ("skyrl", "torch", "trl", "verifiers", "verl")

# Lines of source in each room, docstrings and blank lines included. A budget may only fall: a feature pays for its
# lines within its room. The names are folders; "agent_envs" stands for the modules at its top.
BUDGETS = {
    ("agent_envs",): 4071,
    ("agent_envs/pictures", "agent_envs/prompts"): 1871,
    ("agent_envs/parsers", "agent_envs/rewards"): 2038,
    ("agent_envs/tools",): 1747,
    ("agent_envs/retrieval",): 4147,
    ("agent_envs/sandbox",): 2367,
    ("agent_envs/envs",): 12347,
    ("agent_envs/agents",): 1739,
    ("agent_envs/policies",): 3522,
    ("agent_envs/rollout",): 2162,
    ("agent_envs/episodes",): 1836,
    ("agent_envs/vector", "agent_envs/viewer"): 1527,
    ("agent_envs/serving",): 2909,
    ("agent_envs/recording",): 1075,
    ("agent_envs/audit",): 1954,
    ("agent_envs/cli",): 3945,
    ("datasets",): 9324,
    ("agent_envs/wrapping", "wrappers"): 2734,
    ("adapters/verl",): 6066,
    ("adapters/estimators", "adapters/losses"): 2730,
    ("adapters/torch", "adapters/trees"): 1976,
    ("adapters/tiny",): 712,
    ("adapters",): 2685,
}
TOTAL = 75_484
"""What all rooms have together may only fall too: code that moves to another room takes its budget along."""
SLACK = 30
"""A budget that lies further than this above its room is lowered."""
LONG_MODULES: dict[str, str] = {
    "agent_envs/envs/papersearch/env.py": "the manual is a third of it",
}


def module_files(root: Path) -> dict[str, Path]:
    """Module name -> file, of the whole package, the linked folders included."""
    files = {}
    for folder in ("agent_envs", *TOP):
        for path in sorted((root / folder).rglob("*.py")):
            if folder == "agent_envs" and path.relative_to(root / folder).parts[0] in TOP:
                continue
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts if folder == "agent_envs" else ("agent_envs", *parts))
            files[name.removesuffix(".__init__")] = path
    return files


@pytest.fixture(scope="module")
def imports(root) -> dict[str, set[str]]:
    """Each module and the modules of this project that it imports anywhere in its text."""
    files = module_files(root)
    found: dict[str, set[str]] = {name: set() for name in files}
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                while name and name not in files:  # a name within a module, or somebody else's package
                    name = name.rpartition(".")[0]
                if name and name != module:
                    found[module].add(name)
    return found


def room_of(module: str) -> str:
    """The room a module lies in.

    >>> room_of("agent_envs.envs.qa.env"), room_of("agent_envs.checks"), room_of("agent_envs")
    ('envs', 'base', 'agent_envs')
    """
    parts = module.split(".")
    if len(parts) == 1:
        return "agent_envs"
    return next((room for room, modules in ROOT_ROOMS.items() if parts[1] in modules), parts[1])


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972).

    >>> circles({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    [['b', 'c']]
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                found.append(sorted(component))

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_every_room_has_a_line(root):
    rooms = {room_of(module) for module in module_files(root)}
    assert rooms <= set(LINE_OF), "name the new room in LINES"


def test_imports_point_down(imports):
    wrong = [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in sorted(others)
        if room_of(module) != room_of(other) and LINE_OF[room_of(module)] <= LINE_OF[room_of(other)]
    ]
    assert wrong == []


def test_tasks_are_reached_by_id(imports):
    wrong = [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in sorted(others)
        if room_of(module) not in MAY_NAME.get(room_of(other), {room_of(module)})
    ]
    assert wrong == []


def test_no_adapter_imports_another(imports):
    """Each trainer's adapter uses what all share, and neither knows another trainer's."""

    def trainer(module: str) -> str:
        parts = module.split(".")
        return parts[2] if parts[1:2] == ["adapters"] and len(parts) > 2 and parts[2] in TRAINERS else ""

    wrong = [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in sorted(others)
        if room_of(module) == "adapters" and trainer(other) and trainer(other) != trainer(module)
    ]
    assert wrong == []


def test_no_import_circles(imports):
    assert circles(imports) == []


def test_a_task_has_the_same_name_everywhere(root):
    tasks = [
        {path.parent.name for path in (root / folder).glob("*/__init__.py")}
        for folder in ("agent_envs/envs", "datasets")
    ]
    assert tasks[0] == tasks[1]


def test_modules_are_short(root):
    lengths = {p.relative_to(root).as_posix(): _lines(p) for p in module_files(root).values()}
    assert {name: n for name, n in lengths.items() if n > MODULE_LINES and name not in LONG_MODULES} == {}
    in_root = [p.name for p in (root / "agent_envs").glob("*.py") if not p.name.startswith("_")]
    assert len(in_root) <= ROOT_MODULES, in_root


def test_rooms_keep_their_budgets(root):
    room_of_folder = {folder: room for room in BUDGETS for folder in room}
    lines = dict.fromkeys(BUDGETS, 0)
    for path in module_files(root).values():
        parents = (parent.relative_to(root).as_posix() for parent in (path, *path.parents))
        lines[next(room_of_folder[parent] for parent in parents if parent in room_of_folder)] += _lines(path)
    over = {room: f"{n} lines, {n - BUDGETS[room]} over" for room, n in lines.items() if n > BUDGETS[room]}
    assert over == {}
    assert sum(lines.values()) <= TOTAL
    loose = {room: n for room, n in lines.items() if n < BUDGETS[room] - SLACK}
    assert loose == {}, "these rooms have shrunk: lower their budgets to these numbers"


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_top_folders_are_linked_and_datasets_stays_a_namespace(root):
    if not (root / ".git").exists():
        pytest.skip("an sdist has no links")
    for name in TOP:
        link = root / "agent_envs" / name
        assert link.is_symlink() and not Path(link.readlink()).is_absolute()
        assert link.resolve() == root / name
    assert not (root / "datasets" / "__init__.py").exists()
    assert (root / "adapters" / "__init__.py").exists()  # without it `import verl` from the root would be ours


def test_setup_cfg_lists_every_package(root):
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    listed = config["options"]["packages"].split()
    files = module_files(root).items()
    assert set(listed) == {name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in files}
    assert sorted(listed) == listed


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_bench_runs_what_needs_no_arguments_and_all_of_it(root):
    """Each script either runs by itself, or the Makefile names it among those that are left out."""
    printed = subprocess.run(["make", "-pnq", "bench"], cwd=root, capture_output=True, text=True, timeout=60).stdout
    lists = dict(re.findall(r"^(BENCHMARKS|NOT_TIMED) := (.*)$", printed, re.MULTILINE))
    run = set(re.findall(r"benchmarks/(\w+)\.py", lists["BENCHMARKS"]))
    files = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in (root / "benchmarks").glob("*.py")}
    assert run == files.keys() - set(lists["NOT_TIMED"].split()) and set(lists["NOT_TIMED"].split()) < files.keys()
    assert {"threads", "sandbox"} <= run and not {"asynchronous", "pictures_learning"} & run  # these train for long
    for name, tree in files.items():
        by_itself = _has_main(tree) and not any(map(_is_required, ast.walk(tree)))
        assert by_itself or name not in run, f"benchmarks/{name}.py needs arguments, so `make bench` cannot run it"


def _has_main(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" for node in tree.body)


def _is_required(node: ast.AST) -> bool:
    """Whether a call adds a command-line argument that must be given."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if any(keyword.arg == "required" for keyword in node.keywords):
        return True
    names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    positional = node.func.attr == "add_argument" and not any(name.startswith("-") for name in names)
    return positional and all(keyword.arg != "nargs" for keyword in node.keywords)


def _public_modules() -> list[str]:
    names = module_files(Path(__file__).resolve().parents[1])
    return [n for n in names if "agent_envs.adapters.verl" not in n and not n.endswith("__main__")]


@pytest.mark.parametrize("name", _public_modules())
def test_all_is_sorted_and_exact_and_examples_run(name):
    try:
        module = importlib.import_module(name)
        for attribute in getattr(module, "__all__", ()):  # lazy names are imported here
            getattr(module, attribute)
    except ImportError as e:
        pytest.skip(f"needs an extra: {e}")
    public = getattr(module, "__all__", None)
    assert (public is None) or hasattr(module, "__path__"), "a package lists its names; in a module, those without _"
    if public is not None:
        # Sorted as ruff sorts: constants, classes, the rest.
        assert sorted(public, key=lambda n: (not n.isupper(), not n[:1].isupper(), n)) == list(public)
        assert len(set(public)) == len(public)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            doctest.testmod(module, optionflags=doctest.ELLIPSIS, raise_on_error=True)
        except doctest.DocTestFailure as e:
            pytest.fail(f"{e}: expected {e.example.want}, got {e.got}")
        except doctest.UnexpectedException as e:
            if isinstance(e.exc_info[1], ImportError):
                pytest.skip(f"an example needs an extra: {e.exc_info[1]}")
            raise e.exc_info[1] from None
