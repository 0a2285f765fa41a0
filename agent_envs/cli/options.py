"""Options of the command line: each is declared once, as a field of the dataclass that its command takes.

    @dataclass(kw_only=True)
    class Options(OutputOptions):
        n: int = option(1000, "episodes to write, each of another task")

An option takes what the field's type says: nothing for a `bool`, one value for an `int`, a `float` or a `str`, and
a `list[str]` may be repeated. The types below say what a value is in the help. Fields of a class with a `group`,
"title: what it is", are a group of the help. What several commands share is at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Callable, Container
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from agent_envs.checks import argument_names
from agent_envs.errors import ConfigError

if TYPE_CHECKING:
    from agent_envs.viewer.server import PageServer

EnvId = Annotated[str, "ID"]
File = Annotated[str, "FILE"]
FileOrFolder = Annotated[str, "PATH"]
Folder = Annotated[str, "DIR"]
Json = Annotated[str, "JSON"]
Seconds = Annotated[float, "SECONDS"]
Spec = Annotated[str, "SPEC"]
Url = Annotated[str, "URL"]


def option(default: Any, about: str, *names: str, **settings: Any) -> Any:
    """Declare an option.

    Args:
        default: Its value where it is not given; `...` if it must be. The help tells it.
        about: What the help says of it.
        names: How it is spelled; by default as the field, with dashes. A name without dashes is a positional argument.
        settings: Further arguments of `argparse.ArgumentParser.add_argument`, and `of`: the kinds that read it.
    """
    metadata = {"help": about, "names": names, **settings}
    if default is ...:
        return field(metadata=metadata)
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def add_options(parser: argparse.ArgumentParser, options: type[Any]) -> None:
    """Add the options that a dataclass declares, those of the same `group` together."""
    hints, groups = get_type_hints(options, include_extras=True), {"": parser.add_argument}
    for each in fields(options):
        owner = next(cls for cls in reversed(options.__mro__) if each.name in vars(cls).get("__annotations__", ()))
        group = vars(owner).get("group", "")
        if group not in groups:
            title, _, about = group.partition(": ")
            groups[group] = parser.add_argument_group(title, about or None).add_argument
        names = each.metadata["names"] or (spelled(each.name),)
        groups[group](*names, **_settings(each, hints[each.name], positional=not names[0].startswith("-")))


def _settings(each: Field[Any], hint: Any, *, positional: bool) -> dict[str, Any]:
    """Return what argparse is told of a field."""
    settings = {name: value for name, value in each.metadata.items() if name not in ("names", "of")}
    if get_origin(hint) in (Union, UnionType):
        hint = next(kind for kind in get_args(hint) if kind is not NoneType)
    several = get_origin(hint) is list
    kind = get_args(hint)[0] if several else hint
    if get_origin(kind) is Annotated:
        kind, metavar = get_args(kind)
        settings = {"metavar": metavar, **settings}
    if kind is bool:
        settings["action"] = "store_true"
    elif kind in (int, float):
        settings = {"type": kind, "metavar": "N" if kind is int else "X", **settings}
    default = _default(each)
    if not positional:
        settings |= {"dest": each.name, "default": default, "required": default is MISSING}
        if several:
            settings["action"] = "append"
    if default not in (MISSING, None, [], "") and kind is not bool and "default" not in settings["help"]:
        settings["help"] += f" (default: {default:g})" if kind is float else f" (default: {default})"
    settings["help"] = settings["help"].replace("%", "%%")
    return settings


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def spelled(name: str) -> str:
    """Return how the command line spells a field.

    >>> spelled("env_kwargs")
    '--env-kwargs'
    """
    return "--" + name.replace("_", "-")


def given_options(options: Any, names: Container[str]) -> dict[str, Any]:
    """Return the values of those of the named fields that were given."""
    defaults = {each.name: _default(each) for each in fields(options)}
    return {name: value for name, value in vars(options).items() if name in names and value != defaults[name]}


def arguments_of(taker: Callable[..., Any], options: Any) -> dict[str, Any]:
    """Return the values of those options that a function, or a class, takes as arguments of the same names."""
    taken = argument_names(taker)
    return {name: value for name, value in vars(options).items() if name in taken}


def refuse_unread(options: Any, kind: str, what: str, **more: str) -> None:
    """Refuse options that only other kinds read; `what` says what was chosen, `more` the kinds of further options."""
    readers = {**{each.name: each.metadata["of"] for each in fields(options) if "of" in each.metadata}, **more}
    for name in sorted(given_options(options, readers)):
        if kind not in (kinds := readers[name].split()):
            raise ConfigError(f"{what} does not read {spelled(name)} ({', '.join(kinds)} can); leave it out")


@dataclass(kw_only=True)
class OutputOptions:
    out: File | None = option(..., "file to write")
    force: bool = option(False, "replace the file if it exists")

    def output_file(self) -> Path:
        """Return the file that `--out` names, which must not exist unless `--force` is given."""
        path = Path(self.out or "")
        if os.path.lexists(path) and not path.is_file():
            raise ConfigError(f"--out {path} must be a file, and there is something else")
        if path.is_file() and not self.force:
            raise ConfigError(f"--out {path} exists; choose another file, or give --force to replace it")
        return path


@dataclass(kw_only=True)
class AgentOptions:
    """What plays with a policy's model, and who judges it."""

    group = "agent"
    agent: Spec | None = option(None, "module:function or compact(...) that asks the model (default: a call per step)")
    score: Spec | None = option(None, "module:function that judges what the agent did")


@dataclass(kw_only=True)
class EpisodeOptions:
    episodes: list[FileOrFolder] = option(..., "episodes.jsonl (.gz too), or a run's folder", "episodes", nargs="+")


@dataclass(kw_only=True)
class AddressOptions:
    host: str = option("127.0.0.1", "address to listen on (default: 127.0.0.1, this machine only)")
    port: int = option(8000, "port to listen on, 0 for any")
    token_file: File | None = option(
        None, "the token that clients must send (default: AGENT_ENVS_TOKEN), required beyond this machine"
    )

    def token(self) -> str | None:
        """Return the token, None without one."""
        from agent_envs.serving.access import read_token

        return read_token(self.token_file)


_Server = TypeVar("_Server")
_POLL = 0.1  # seconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve_until_stopped(
    server: contextlib.AbstractContextManager[_Server], announcement: Callable[[_Server], str]
) -> str:
    """Open a server, print what `announcement` says of it, and wait for Ctrl-C or a request to terminate."""
    asked: list[int] = []  # a lock would not do: the handler may interrupt what holds it
    for number in _SIGNALS:
        signal.signal(number, lambda signum, _: asked.append(signum))
    with server as opened:
        print(announcement(opened), flush=True)
        while not asked:
            time.sleep(_POLL)
        for number in _SIGNALS:  # a second one ends the process at once
            signal.signal(number, signal.SIG_DFL)
    return "stopped"


def serve_page(server: PageServer) -> str:
    """Serve a page; the address, which holds the token, is printed."""
    return serve_until_stopped(server, lambda opened: f"open {opened.link} in a browser; Ctrl-C ends it")
