"""What a tool is, and how a typed function becomes one."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from agent_envs.errors import ConfigError
from agent_envs.messages import ToolSpec

__all__ = ["FunctionTool", "Tool", "tool"]


class Tool:
    """A tool a policy can call. Subclass it for tools with state; ``tool`` makes one of a function.

    A subclass sets ``name``, ``description`` and ``parameters`` and implements ``call`` (plain or async), which returns
    text and raises ``ToolError`` with a text for the policy when it cannot do what was asked.
    """

    name: str
    """The name the policy calls it by."""
    description: str
    """What it does, for the policy."""
    parameters: dict[str, Any]
    """JSON schema (draft 2020-12) of the arguments, an object."""
    blocking: bool = False
    """Whether a call may wait (on a disk, a server, a lock) and so runs in a thread under the time limit. Tools that
    are not blocking must be bounded by construction: they run on the spot. Async tools always run under the limit."""
    timeout: float | None = None
    """Seconds one call may take, or None for the environment's limit."""

    def call(self, **arguments: Any) -> Any:
        """Do the work. Returns text, or an awaitable of it; anything else is turned into text with ``str``."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the tool holds."""

    @property
    def spec(self) -> ToolSpec:
        """The tool in the OpenAI function form, schema in full."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": copy.deepcopy(self.parameters),  # the caller's own, to change as it likes
            },
        }

    @property
    def is_async(self) -> bool:
        """Whether ``call`` is a coroutine function."""
        return asyncio.iscoroutinefunction(self.call)


class FunctionTool(Tool):
    """A tool around a function; see ``tool``."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        blocking: bool = False,
        timeout: float | None = None,
    ) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise ConfigError(f"tool() takes a function, got {function!r}; for tools with state subclass Tool")
        summary, argument_docs = _read_docstring(function)
        self.function = function
        self.__module__ = function.__module__
        self.name = name or function.__name__
        self.description = description or summary
        self.parameters = _schema_of(function, argument_docs)
        self.blocking = blocking or timeout is not None  # only what runs apart can be stopped
        self.timeout = timeout
        self.call = function  # type: ignore[method-assign]
        if not self.description:
            raise ConfigError(f"tool {self.name!r} needs a docstring or description=: the policy reads it")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str:
        """Pickled by name, as functions are: the decorated name in its module is this tool."""
        return self.function.__qualname__


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    blocking: bool = False,
    timeout: float | None = None,
) -> Any:
    """Make a tool of a typed function with a docstring (a decorator, with or without arguments).

    The first paragraph of the docstring is the description; a Google-style ``Args:`` section describes the arguments.
    Types may be str, int, float, bool, None, list, dict, tuple, Literal, TypedDict and unions of these, nested to any
    depth.

    Args:
        function: The function, plain or async.
        name: The tool's name instead of the function's.
        description: The description instead of the docstring's.
        blocking: Whether calls may wait; see ``Tool.blocking``. A ``timeout`` implies it.
        timeout: Seconds a call may take, instead of the environment's limit.

    Raises:
        ConfigError: An argument has no type or one without a JSON form, or there is no description.

    >>> @tool
    ... def add(a: int, b: int = 1) -> str:
    ...     '''Add two numbers.
    ...
    ...     Args:
    ...         a: The first.
    ...     '''
    ...     return str(a + b)
    >>> add.spec["function"]["parameters"]["properties"]["a"]
    {'type': 'integer', 'description': 'The first.'}
    >>> add(2, 3)
    '5'
    """

    def make(inner: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(inner, name=name, description=description, blocking=blocking, timeout=timeout)

    return make if function is None else make(function)


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the argument descriptions of the ``Args:`` section."""
    doc = inspect.getdoc(function) or ""
    summary = " ".join(doc.split("\n\n", 1)[0].split())
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", doc, flags=re.MULTILINE)
    entries: dict[str, str] = {}
    if section:
        body = inspect.cleandoc("\n" + section[1])
        for match in re.finditer(r"^(\w+)(?: \([^)\n]*\))?:[ \t]*(.*(?:\n[ \t]+.*)*)", body, flags=re.MULTILINE):
            entries[match[1]] = " ".join(match[2].split())
    if summary.startswith("Args:"):
        summary = ""
    return summary, entries


def _schema_of(function: Callable[..., Any], argument_docs: dict[str, str]) -> dict[str, Any]:
    """The JSON schema of a function's arguments."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as e:
        raise ConfigError(f"tool {function.__name__!r}: a type is not known where the function is: {e}") from e
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {function.__name__!r}: argument {name!r} must be callable by keyword")
        if name not in hints:
            raise ConfigError(f"tool {function.__name__!r}: argument {name!r} needs a type")
        schema = _type_schema(hints[name], f"tool {function.__name__!r}, argument {name!r}")
        if name in argument_docs:
            schema["description"] = argument_docs[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is None or isinstance(parameter.default, (str, int, float, bool, list, dict)):
            schema["default"] = parameter.default
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_SIMPLE_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
}


def _type_schema(annotation: Any, where: str) -> dict[str, Any]:
    """The JSON schema of one type."""
    if annotation is Any:
        return {}
    if annotation in _SIMPLE_TYPES:
        return {"type": _SIMPLE_TYPES[annotation]}
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type_schema(a, where) for a in args]}
    if annotation in (list, tuple) or origin is list:
        return {"type": "array", **({"items": _type_schema(args[0], where)} if args else {})}
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": _type_schema(args[0], where)}
        items = [_type_schema(a, where) for a in args]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if annotation is dict or origin is dict:
        if args and args[0] is not str:
            raise ConfigError(f"{where}: the keys of a dict must be str, got {args[0]!r}")
        return {"type": "object", **({"additionalProperties": _type_schema(args[1], where)} if args else {})}
    if typing.is_typeddict(annotation):
        hints = typing.get_type_hints(annotation)
        properties = {key: _type_schema(value, where) for key, value in hints.items()}
        required = _required_keys(annotation)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    raise ConfigError(
        f"{where}: {annotation!r} has no JSON form; use str, int, float, bool, None, list, dict, tuple, Literal, "
        "a union of these or a TypedDict"
    )


def _required_keys(annotation: Any) -> list[str]:
    """Keys that a TypedDict must have; `__required_keys__` misses marks in annotations that are strings."""
    marks = {
        key: typing.get_origin(hint) for key, hint in typing.get_type_hints(annotation, include_extras=True).items()
    }
    must = {key for key, mark in marks.items() if mark is typing.Required}
    may = {key for key, mark in marks.items() if mark is typing.NotRequired}
    return sorted((annotation.__required_keys__ | must) - may)
