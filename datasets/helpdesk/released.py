"""A shop of a checkout of tau-bench: its tasks, policy, tables and the descriptions of its tools.

    tau_bench/envs/airline/tasks_test.py    Task(user_id="...", instruction="You are ...", outputs=["..."],
                                                 actions=[Action(name="cancel_reservation", kwargs={...}), ...])

Tasks and descriptions are Python there (https://github.com/sierra-research/tau-bench, MIT). They are parsed and never
run: only literals are read, and a call stands for the mapping of its keyword arguments.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent_envs.checks import choice
from agent_envs.datasets.fields import as_list, as_object, as_texts, data_text, text_field
from agent_envs.datasets.paths import user_path
from agent_envs.errors import DataError
from agent_envs.files import read_object
from agent_envs.tasks import FileStamp, ListedTasks, file_stamps

SPLITS = {"airline": ("test",), "retail": ("train", "dev", "test")}
TABLES = {"airline": ("flights", "reservations", "users"), "retail": ("orders", "products", "users")}


class ReleasedTask(NamedTuple):
    """A task as it was released."""

    task_id: str
    instruction: str
    """What the customer knows and wants, addressed to whoever plays the customer."""
    actions: tuple[tuple[str, Mapping[str, Any]], ...]
    """The calls that are right: the tool's name and its arguments."""
    outputs: tuple[str, ...]
    """What the customer has to be told, letter by letter."""


class ReleasedShop(NamedTuple):
    """What all tasks of a domain share."""

    policy: str
    tables: Mapping[str, Mapping[str, Any]]
    """The rows of each table by id."""
    tools: tuple[Mapping[str, Any], ...]
    """The name, description and parameters of each tool."""


def released_tasks(data: str, domain: str, split: str) -> ListedTasks[ReleasedTask]:
    """Return the tasks of a split.

    Args:
        data: The folder of the checkout.
        domain, split: A key of `SPLITS`, and one of its splits.

    Raises:
        ConfigError: The domain has no such split.
        DataError: The file is not there or not of this form.
    """
    choice(f"split of {domain}", split, SPLITS[domain])
    path = _folder(data, domain) / f"tasks_{split}.py"
    return ListedTasks(_tasks(file_stamps([path]), f"{domain}/{split}"), data, split)


def released_shop(data: str, domain: str, tools: Sequence[str]) -> ReleasedShop:
    """Return the policy, the tables and the tools of a domain, read once in a process; see `released_tasks`."""
    folder = _folder(data, domain)
    tables = [folder / "data" / f"{name}.json" for name in TABLES[domain]]
    specs = [folder / "tools" / f"{name}.py" for name in tools]
    return _shop(file_stamps([folder / "wiki.md", *tables, *specs]), len(tables))


def parse_task(row: Any, where: str, task_id: str) -> ReleasedTask:
    """Return a task from its fields."""
    fields = as_object(row, "a task", where)
    calls = [as_object(call, "an action", where) for call in as_list(fields.get("actions"), "actions", where)]
    actions = tuple((text_field(call, "name", where), as_object(call.get("kwargs"), "kwargs", where)) for call in calls)
    outputs = tuple(as_texts(fields.get("outputs", ()), "outputs", where))
    return ReleasedTask(task_id, text_field(fields, "instruction", where), actions, outputs)


def _folder(data: str, domain: str) -> Path:
    return user_path(data) / "tau_bench" / "envs" / domain


@functools.lru_cache(maxsize=8)
def _tasks(stamps: tuple[FileStamp, ...], prefix: str) -> tuple[ReleasedTask, ...]:
    path = stamps[0][0]
    for node in _parsed(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            rows = enumerate(_value(node.value, path))
            if tasks := tuple(parse_task(row, f"{path}, task {i}", f"{prefix}/{i}") for i, row in rows):
                return tasks
    raise DataError(f"{path}: expected a list of tasks")


@functools.lru_cache(maxsize=4)
def _shop(stamps: tuple[FileStamp, ...], tables: int) -> ReleasedShop:
    policy, *paths = [Path(path) for path, _, _ in stamps]
    rows = {path.stem: read_object(path, "an object of rows by id") for path in paths[:tables]}
    return ReleasedShop(data_text(policy), rows, tuple(map(_tool, paths[tables:])))


def _tool(path: Path) -> Mapping[str, Any]:
    """Return the description of the tool that a module holds: the object that `get_info` returns."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.FunctionDef) and node.name == "get_info" and isinstance(node.body[-1], ast.Return):
            said = as_object(_value(node.body[-1].value, path), "a description", str(path))
            function = as_object(said.get("function"), "a function", str(path))
            parameters = as_object(function.get("parameters"), "parameters", str(path))
            description = text_field(function, "description", str(path))
            return {"name": path.stem, "description": description, "parameters": parameters}
    raise DataError(f"{path}: expected a tool with a function get_info that returns its description")


def _parsed(path: str | Path) -> ast.Module:
    try:
        return ast.parse(data_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise DataError(f"{path} cannot be parsed: {e}") from e


def _value(node: Any, path: str | Path) -> Any:
    """Return what a literal says, as JSON has it."""
    try:
        return json.loads(json.dumps(_literal(node)))
    except (ValueError, TypeError, RecursionError, MemoryError) as e:
        raise DataError(f"{path}, line {getattr(node, 'lineno', 0)}: expected literals: {e}") from e


def _literal(node: Any) -> Any:
    if isinstance(node, ast.Call):
        return {keyword.arg: _literal(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.List):
        return [_literal(element) for element in node.elts]
    return ast.literal_eval(node)
