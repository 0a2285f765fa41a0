"""Panels: which tasks an evaluation plays, with a digest of all that scores depend on, which makes scores comparable.

    panel.json  {"digest", "env", "env_kwargs", "wrappers", "content": {"env", "arguments", "wrappers", "instructions",
                "tools", "documents"}, "tasks": [[index, id, digest of its content], ...]}

The digest is taken over the content and the tasks, whatever their order: what a task is (gold answers included), never
where it is on this machine.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.checks import argument_defaults, listed, shown
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import read_object
from agent_envs.parsers import PARSERS
from agent_envs.registration import layers
from agent_envs.tasks import IndexedTasks, task_id_of
from agent_envs.text_env import TextEnv
from agent_envs.wrapping.specs import WrapperSpec, parse_wrapper

PANEL_FILE = "panel.json"
_SHORT = 12  # hex characters of a digest that people see
_SHOWN_TASKS = 5
_FIELDS = ("env", "env_kwargs", "wrappers", "content")
_PARSERS: Any = tuple(PARSERS.values())
_PLAIN = (str, int, float, list, tuple)
_HASHED = 64 << 20  # bytes up to which a file that an argument names is hashed; of larger ones the size counts


@dataclass(frozen=True, slots=True)
class Panel:
    """The tasks of an evaluation, and what else its scores depend on."""

    env: str
    """The environment as it was named."""
    env_kwargs: Mapping[str, Any]
    """Its arguments as they were given."""
    wrappers: Sequence[str]
    """The wrappers as they were given, innermost first."""
    content: Mapping[str, Any]
    """What the tasks share, in canonical form."""
    tasks: Mapping[int, tuple[str, str]]
    """The id of each task and the digest of its content by index, as played; "" for what is not known here."""

    @property
    def digest(self) -> str:
        """SHA-256 of all that makes up the panel."""
        return digest_of([self.content, sorted(self.tasks.items())])

    @property
    def name(self) -> str:
        """The start of the digest, for people."""
        return self.digest[:_SHORT]

    def differences(self, other: Panel, mine: str, its: str, *, common: bool = False) -> list[str]:
        """Return what tells two panels apart, as sentences; none if they are the same.

        The sentences call this one `mine` and the other `its`. With `common`, only the tasks of both must agree.
        """
        sentences = []
        one, two = _flat(self.content), _flat(other.content)
        for name in sorted({*one, *two}):
            if one.get(name) != two.get(name):
                here, there = (shown(side[name]) if name in side else "nothing" for side in (one, two))
                sentences.append(f"{_TITLES.get(name, name)}: {here} {mine}, {there} {its}")
        if not common:
            for mapping, rest, where in ((self.tasks, other.tasks, mine), (other.tasks, self.tasks, its)):
                if alone := [index for index in mapping if index not in rest]:
                    sentences.append(f"{_numbered(alone)} only {where}")
        if changed := [i for i, task in self.tasks.items() if task != other.tasks.get(i, task)]:
            sentences.append(
                f"the content of {_numbered(changed)} is not the same: other data, or another version of what makes it"
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return the panel as JSON has it."""
        data = {name: getattr(self, name) for name in _FIELDS}
        return {"digest": self.digest, **data, "tasks": [[index, *task] for index, task in self.tasks.items()]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> Panel:
        """Return the panel that `to_dict` wrote; a DataError beginning with `where` if it is none or was changed."""
        try:
            env, env_kwargs, wrappers, content = (data[name] for name in _FIELDS)
            tasks = {index: (name, digest) for index, name, digest in data["tasks"]}
            typed = all(isinstance(value, dict) for value in (env_kwargs, content, content["arguments"]))
            typed = typed and isinstance(env, str) and isinstance(wrappers, list) and tasks != {}
            typed = typed and all(type(index) is int and index >= 0 for index in tasks)
            typed = typed and all(isinstance(text, str) for task in tasks.values() for text in task)
        except (KeyError, TypeError, ValueError):
            typed = False
        if not typed:
            raise DataError(f"{where}: not a panel; agentr1 eval writes one to {PANEL_FILE} in its --out")
        panel = cls(env, env_kwargs, wrappers, content, tasks)
        if panel.digest != data.get("digest"):
            raise DataError(f"{where}: the panel was changed after it was written: its digest is another one")
        return panel


_TITLES = {
    "documents": "documents that the tasks search",
    "env": "environment",
    "instructions": "digest of the instructions",
    "tools": "digest of the tools' descriptions",
}


def read_panel(path: str | os.PathLike[str]) -> Panel:
    """Read the panel of a file, or of the folder of an evaluation. It is data: nothing in it is made or imported.

    Raises:
        ConfigError: There is no such file.
        DataError: It holds something else.
    """
    file = Path(path)
    if file.is_dir():
        file /= PANEL_FILE
    if not file.exists():
        again = "; run its agentr1 eval again, which plays only what is missing" if Path(path).is_dir() else ""
        raise ConfigError(f"{file}: there is no such file{again}")
    return Panel.from_dict(read_object(file, "a panel"), str(file))


def panel_of(
    env: gym.Env[Any, Any],
    indices: Iterable[int],
    env_id: Any,
    env_kwargs: Mapping[str, Any],
    wrappers: Sequence[WrapperSpec] = (),
) -> Panel:
    """Return the panel of some tasks, each once, of an environment in its wrappers, and of what it was made from."""
    inner = env.unwrapped
    tasks = inner.tasks if isinstance(inner, TextEnv) else None
    limits = [layer._max_episode_steps for layer in layers(env) if isinstance(layer, gym.wrappers.TimeLimit)]
    arguments = _arguments(inner, env_kwargs if inner.spec is None else {**inner.spec.kwargs, **env_kwargs})
    if tasks is not None:
        arguments |= {"data": "generated" if tasks.name == "generated" else "files", "split": tasks.split}
    arguments["max_episode_steps"] = min(limits, default=-1)
    shared = {
        "env": named(env_id) if inner.spec is None else inner.spec.id,
        "arguments": arguments,
        "wrappers": [_wrapper(spec) for spec in wrappers],
        "instructions": _offered(env, "instructions"),
        "tools": _offered(env, "tools"),
        "documents": tasks.documents if isinstance(tasks, IndexedTasks) else 0,
    }
    played = {}
    for index in indices:
        played[index] = ("", "")
        if tasks is not None:
            content = tasks.content(index) if isinstance(tasks, IndexedTasks) else tasks[index]
            if content is not None:
                played[index] = (task_id_of(tasks[index]), digest_of(content)[:_SHORT])
    own_kwargs = json.loads(json.dumps(dict(env_kwargs), default=os.fspath))
    return Panel(named(env_id), own_kwargs, [named(spec) for spec in wrappers], shared, played)


def named(thing: Any) -> str:
    """Return the text that names an environment or a wrapper; a function's is the same in every process."""
    if isinstance(thing, gym.envs.registration.EnvSpec):
        return thing.id
    if isinstance(thing, str):
        return thing
    kind = thing if inspect.isroutine(thing) or isinstance(thing, type) else type(thing)
    return f"{kind.__module__}:{kind.__qualname__}"


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON.

    >>> digest_of({"a": (1, 2.0), "b": {"y", "x"}}) == digest_of({"b": {"x", "y"}, "a": [1, 2]})
    True
    """
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> Any:
    """Return a value as what JSON has, the same in every process: objects as their fields, sets sorted.

    A whole number is an int whatever its type, an array its shape, type and digest, a function or a class its name.

    >>> canonical({"path": Path("a", "b"), 3: frozenset({2, 1}), "x": (1.0, True, float("inf"))})
    {'path': 'a/b', '3': [1, 2], 'x': [1, True, 'inf']}
    """
    if value is None or isinstance(value, (str, bool)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Enum):
        return canonical(value.value)
    if isinstance(value, np.generic):
        return canonical(value.item())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() else value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, os.PathLike):
        return Path(value).as_posix()
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<")))
        return [list(value.shape), value.dtype.name, hashlib.sha256(little.tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        return {str(canonical(key)): canonical(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(canonical, value), key=json.dumps)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return canonical(value._asdict())
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, type) or inspect.isroutine(value):
        return named(value)
    if dataclasses.is_dataclass(value):
        return {field.name: canonical(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"type": named(value), **{name: canonical(item) for name, item in getattr(value, "__dict__", {}).items()}}


def _arguments(env: gym.Env[Any, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of an environment that matter, with their defaults.

    Where the default is None, the environment's attribute of that name has what it stands for.
    """
    defaults, arguments = argument_defaults(type(env)), dict[str, Any]()
    harmless = listed(type(env), "harmless_arguments") | {"render_mode", "disable_env_checker"}
    later = listed(type(env), "later_arguments")
    for name in sorted({*defaults, *given} - harmless):
        value = given.get(name, defaults.get(name))
        if name in later and value == defaults[name]:
            continue
        if value is None:
            own: Any = vars(env).get(name)
            value = own.name if isinstance(own, _PARSERS) else own if isinstance(own, _PLAIN) else None
        if value is not inspect.Parameter.empty:
            arguments[name] = _argument(value)
    return arguments


def _wrapper(spec: WrapperSpec) -> str:
    """Return a wrapper as a spec with all its arguments."""
    if not isinstance(spec, str):
        return named(spec)
    taker, given = parse_wrapper(spec)
    arguments = {**argument_defaults(taker), **given}
    harmless = listed(taker, "harmless_arguments") | {"render_mode"}
    written = [
        f"{name}={_argument(value)!r}"
        for name, value in sorted(arguments.items())
        if value is not inspect.Parameter.empty and name not in harmless
    ]
    return f"{spec.partition('(')[0].strip()}({', '.join(written)})"


def _argument(value: Any) -> Any:
    """Return an argument in canonical form: for the path of a file or folder, what is there."""
    if isinstance(value, str):
        path = Path(value)
        if not (os.sep in value or "/" in value or path.suffix):
            return value
    elif isinstance(value, os.PathLike):
        path = Path(value)
    else:
        return canonical(value)
    try:
        if path.is_file():
            size = path.stat().st_size
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if size <= _HASHED else ""
            return f"file {digest[:_SHORT]}" if digest else f"file of {size} bytes"
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
            return f"folder {digest_of([(f.relative_to(path).as_posix(), f.stat().st_size) for f in files])[:_SHORT]}"
    except (OSError, ValueError):  # a text that no path can be
        pass
    return canonical(value)


def _offered(env: gym.Env[Any, Any], name: str) -> str:
    value = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return digest_of(value)[:_SHORT] if value else "none"


def _flat(content: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {f"argument {name}": value for name, value in content.get("arguments", {}).items()}
    return {name: value for name, value in content.items() if name != "arguments"} | arguments


def _numbered(indices: Sequence[int]) -> str:
    some = ", ".join(map(str, indices[:_SHOWN_TASKS])) + (", ..." if len(indices) > _SHOWN_TASKS else "")
    return f"task {some}" if len(indices) == 1 else f"{len(indices)} tasks ({some})"
