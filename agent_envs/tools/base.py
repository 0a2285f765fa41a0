"""The Tool class, and tools made from typed functions."""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from agent_envs.errors import ConfigError
from agent_envs.messages import FunctionSpec, ToolSpec
from agent_envs.tools.schemas import tidied


class Tool:
    """A tool that a policy can call. Subclass it for tools with state; ``tool`` makes one from a function.

    A subclass sets ``name``, ``description`` and ``parameters`` and implements ``call`` (plain or async). ``call``
    returns text, and raises ``ToolError`` with a message for the policy if it cannot do what was asked.
    """

    name: str
    """The name the policy calls it by."""
    description: str
    """What it does, for the policy."""
    parameters: dict[str, Any]
    """JSON schema (draft 2020-12) of the arguments, of type object."""
    blocking: bool = False
    """Whether a call may wait (for a disk, a server, a lock) and so runs in a thread with a time limit. Other tools run
    at once, without a limit, and must take bounded time by construction. Async tools always have a limit."""
    timeout: float | None = None
    """Time limit of a call in seconds, or None for the environment's."""

    def call(self, **arguments: Any) -> Any:
        """Run the tool.

        Return text, a `Pictured` (text with pictures, for environments that show them), or an awaitable of either;
        other values are converted with ``str``.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free what the tool holds."""

    @property
    def spec(self) -> ToolSpec:
        """The tool in the OpenAI function form, with its full schema."""
        return tool_spec(self)

    @property
    def is_async(self) -> bool:
        """Whether ``call`` is a coroutine function."""
        return inspect.iscoroutinefunction(self.call)


def tool_spec(tool: Any) -> ToolSpec:
    """Return what has a name, a description and parameters, as tools and some of their classes, in OpenAI's form."""
    parameters = tidied(tool.parameters)  # a copy: callers may change theirs
    function: FunctionSpec = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def open_specs(specs: list[ToolSpec]) -> list[ToolSpec]:
    """Return specs that do not mention further arguments, as released recipes show their tools; they are changed."""
    for spec in specs:
        spec["function"]["parameters"].pop("additionalProperties", None)
    return specs


def string_parameter(name: str, description: str) -> dict[str, Any]:
    """Return the schema of a tool with a single argument, a required string."""
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": description}},
        "required": [name],
        "additionalProperties": False,
    }


class FunctionTool(Tool):
    """A tool made from a function; see ``tool``."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        blocking: bool = False,
        timeout: float | None = None,
    ) -> None:
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise ConfigError(f"a tool must be a Tool or a typed function, got {function!r}; for state, subclass Tool")
        summary, argument_docs = _read_docstring(function)
        self.function = function
        self.__module__ = function.__module__
        self.name = name or function.__name__
        self.description = description or summary
        self.parameters = _schema_of(function, argument_docs)
        self.blocking = blocking or timeout is not None  # only a call in a thread can be abandoned
        self.timeout = timeout
        self.call = function  # type: ignore[method-assign]
        if not self.description:
            raise ConfigError(f"tool {self.name!r} needs a docstring or description=: the policy reads it")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, as functions are, if the function was decorated; otherwise by its function."""
        try:
            named = operator.attrgetter(self.function.__qualname__)(sys.modules[self.__module__])
        except (AttributeError, KeyError):
            named = self  # pickle reports that it cannot find it
        if named is self:
            return self.function.__qualname__
        return FunctionTool, (self.function, self.name, self.description, self.blocking, self.timeout)


def tool(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    blocking: bool = False,
    timeout: float | None = None,
) -> Any:
    """Make a tool from a typed function with a docstring; works as a decorator with or without arguments.

    The first paragraph of the docstring is the description; a Google-style ``Args:`` section describes the arguments.
    Types may be str, int, float, bool, None, list, dict, tuple, Literal, TypedDict and unions of these, nested to any
    depth.

    Args:
        function: The function, plain or async.
        name: Name of the tool; by default the function's.
        description: Description of the tool; by default the docstring's.
        blocking: Whether calls may wait; see ``Tool.blocking``. A ``timeout`` implies it.
        timeout: Time limit of a call in seconds; by default the environment's.

    Raises:
        ConfigError: An argument has no type or one that JSON cannot express, or there is no description.

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

    options: dict[str, Any] = {"name": name, "description": description, "blocking": blocking, "timeout": timeout}
    return functools.partial(FunctionTool, **options) if function is None else FunctionTool(function, **options)


def _read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring, and the descriptions in its ``Args:`` section."""
    doc = inspect.getdoc(function) or ""
    summary = " ".join(doc.split("\n\n", 1)[0].split())
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", doc, flags=re.MULTILINE)
    body = inspect.cleandoc("\n" + section[1]) if section else ""
    entries = re.findall(r"^(\w+)(?: \([^)\n]*\))?:[ \t]*(.*(?:\n[ \t]+.*)*)", body, flags=re.MULTILINE)
    described = {name: " ".join(words.split()) for name, words in entries}
    return "" if summary.startswith("Args:") else summary, described


def _schema_of(function: Callable[..., Any], argument_docs: dict[str, str]) -> dict[str, Any]:
    """Return the JSON schema of a function's arguments."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as e:
        raise ConfigError(f"tool {function.__name__!r}: a type hint cannot be resolved: {e}") from e
    properties: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {function.__name__!r}: argument {name!r} must accept a keyword")
        if name not in hints:
            raise ConfigError(f"tool {function.__name__!r}: argument {name!r} needs a type hint")
        schema = _type_schema(hints[name], f"tool {function.__name__!r}, argument {name!r}")
        if name in argument_docs:
            schema["description"] = argument_docs[name]
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is None or isinstance(parameter.default, (str, int, float, bool, list, dict)):
            schema["default"] = parameter.default
        properties[name] = schema
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_SIMPLE_TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SIMPLE_TYPES |= {type(None): "null", None: "null"}


def _type_schema(annotation: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of a type."""
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
        properties = {key: _type_schema(hint, where) for key, hint in typing.get_type_hints(annotation).items()}
        marks = {key: typing.get_origin(h) for key, h in typing.get_type_hints(annotation, include_extras=True).items()}
        required = annotation.__required_keys__ | {key for key, mark in marks.items() if mark is typing.Required}
        optional = {key for key, mark in marks.items() if mark is typing.NotRequired}  # written as strings, too
        names = sorted(required - optional)
        return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}
    raise ConfigError(
        f"{where}: {annotation!r} cannot be written as JSON; use str, int, float, bool, None, list, dict, tuple, "
        "Literal, TypedDict or a union of these"
    )
