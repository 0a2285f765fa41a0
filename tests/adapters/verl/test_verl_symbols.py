"""The names of verl that the adapter relies on are where it says, and another version is told which have moved."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("verl")

import agent_envs.adapters.verl
from agent_envs.adapters.verl.run import version
from agent_envs.adapters.verl.run.symbols import SYMBOLS, Symbol, moved
from agent_envs.errors import ConfigError


def test_every_name_is_where_it_says() -> None:
    assert moved() == []
    assert len({(symbol.file, symbol.name) for symbol in SYMBOLS}) == len(SYMBOLS)
    assert all(symbol.purpose for symbol in SYMBOLS)


def test_what_has_moved_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [Symbol("trainer/nosuch.py", "main", "a run"), Symbol("trainer/main_ppo.py", "nosuch", "nothing")]
    assert moved([*gone, SYMBOLS[0]]) == gone
    monkeypatch.setattr(version, "moved", lambda: gone)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.10.0")
    with pytest.raises(
        ConfigError, match=r"found verl 0\.10\.0.*lacks trainer/nosuch.py: main \(a run\); trainer/main_ppo"
    ):
        version.check_version()


ADAPTER = Path(agent_envs.adapters.verl.__file__).parent
VERL = Path(next(iter(importlib.util.find_spec("verl").submodule_search_locations)))  # type: ignore[union-attr,arg-type]


def test_what_is_imported_of_verl_is_listed() -> None:
    """Each name under the file it is imported from, and each module that is waited for or patched."""
    listed = {(symbol.file, symbol.name.partition(".")[0]) for symbol in SYMBOLS}
    files = {symbol.file for symbol in SYMBOLS}
    for path in ADAPTER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "verl":
                for alias in node.names:
                    whole = file_of(f"{node.module}.{alias.name}")  # a module that is imported whole
                    found = whole in files if whole else (file_of(node.module or ""), alias.name) in listed
                    assert found, (path.name, node.module, alias.name)
            elif isinstance(node, ast.Import):
                assert not [a.name for a in node.names if a.name.startswith("verl.")], path.name
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
                run = node.value.partition(".")[2].replace(".", "/") + "/__main__.py"  # as python -m
                assert node.value in GROUPS or files & {file_of(node.value), run}, (path.name, node.value)


MODULE = re.compile(r"verl(\.\w+)+")
GROUPS = ("verl.plugins",)  # of entry points


def file_of(module: str) -> str | None:
    """The file of a module within verl; None if there is no such module."""
    path = Path(*module.split(".")[1:])
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if (VERL / found).is_file():
            return found.as_posix()
    return None


@pytest.mark.filterwarnings("ignore")
def test_methods_of_verl_that_are_overridden_or_called_are_listed() -> None:
    from agent_envs.adapters.verl.batch import asynchronous, phases, trainer, tree_engine
    from agent_envs.adapters.verl.rollout import agent_loop, cpu_rollout, ray_weights

    listed = {symbol.name for symbol in SYMBOLS}
    ours_all = (
        asynchronous,
        phases,
        trainer,
        tree_engine,
        agent_loop,
        cpu_rollout,
        ray_weights,
    )
    for module in ours_all:
        for ours in vars(module).values():
            if not isinstance(ours, type) or ours.__module__ != module.__name__:
                continue
            theirs = [c for c in ours.__mro__ if c.__module__.startswith("verl.")]
            used = {name for name, value in vars(ours).items() if inspect.isroutine(value)} | called(ours)
            for name in (name for name in used if not name.startswith("__")):
                at = [c.__name__ for c in theirs if inspect.isroutine(vars(c).get(name))]
                if at and (name.startswith("_") or "PPOTrainer" in at):
                    assert listed & {f"{c.__name__}.{name}" for c in theirs}, (ours.__name__, name, at)


def called(cls: type) -> set[str]:
    """The names that a class asks itself or its bases for."""
    out = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if isinstance(node, ast.Attribute):
            of = node.value.func if isinstance(node.value, ast.Call) else node.value
            if isinstance(of, ast.Name) and of.id in ("self", "super"):
                out.add(node.attr)
    return out
