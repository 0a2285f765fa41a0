"""The tools of an environment: their specs, and checking and running the calls a policy makes."""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, ToolError, did_you_mean
from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.pictures.picture import Pictured
from agent_envs.text import clean_text
from agent_envs.tools.base import Tool, tool
from agent_envs.tools.schemas import compiled, misfit, with_integers

MAX_NAME_LENGTH = 200  # characters of a tool's name as called: a policy may write any name


@dataclass(slots=True)  # not frozen, for speed: see Outcome
class ToolResult:
    """The result of one call."""

    name: str
    """The tool's name as called, "" if the call could not be read."""
    content: str
    """The text for the policy, as the tool returned it."""
    error: bool = False
    """Whether the text reports a failure."""
    invalid: bool = False
    """Whether the call was not run: unreadable, no such tool, wrong arguments, or beyond the limit per step."""
    pictured: Pictured | None = None
    """What the tool returned, if that is text with pictures; `content` is its text."""

    def shown(self) -> str | Pictured:
        """Return the result with its pictures."""
        return self.content if self.pictured is None else self.pictured

    def to_info(self) -> dict[str, Any]:
        """Return the result as an entry of ``info["tool_results"]``."""
        content = self.content
        return {
            "name": self.name,
            "content": content if content.isascii() else clean_text(content),
            "error": self.error,
        }


class ToolRegistry:
    """The tools of an environment by name: ``Tool`` objects, or typed functions with docstrings.

    Raises:
        ConfigError: Two tools have the same name, a function cannot be a tool, or parameters are no schema.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[str, str] = {}  # as JSON
        self._flat: dict[str, tuple[dict[str, type], frozenset[str]]] = {}
        self._waiting: set[str] = set()
        for entry in tools:
            entry = entry if isinstance(entry, Tool) else tool(entry)
            if entry.name in self._tools:
                raise ConfigError(f"two tools are named {entry.name!r}; rename one")
            self._tools[entry.name] = entry
            try:
                self._schemas[entry.name] = json.dumps(entry.parameters)
                if flat := _flat_types(entry):
                    self._flat[entry.name] = flat
                else:
                    compiled(self._schemas[entry.name])
            except (ConfigError, TypeError) as e:
                raise ConfigError(f"tool {entry.name!r}: {e}") from e
            if entry.is_async or entry.blocking:
                self._waiting.add(entry.name)

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> list[str]:
        """The names of the tools, in order."""
        return list(self._tools)

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools in the OpenAI function form."""
        return [entry.spec for entry in self._tools.values()]

    def bound(self, **attributes: Any) -> ToolRegistry:
        """Return a registry of copies of the tools with these attributes; names, parameters and schemas are shared."""
        registry = ToolRegistry()
        vars(registry).update(vars(self))
        registry._tools = {name: object.__new__(type(entry)) for name, entry in self._tools.items()}
        for name, entry in registry._tools.items():
            vars(entry).update(vars(self._tools[name]), **attributes)  # a fifth of the time of copy.copy
        return registry

    def close(self) -> None:
        """Close every tool."""
        for entry in self._tools.values():
            entry.close()

    def run(
        self, calls: Sequence[ToolCall | ParseFailure], *, max_calls: int = 4, timeout: float = 10.0
    ) -> list[ToolResult]:
        """Run the calls of one step; blocking and async calls run in parallel.

        Args:
            calls: The calls, in the order they were written.
            max_calls: Maximum number of calls to run; each further call gets an error result.
            timeout: Time limit in seconds of a blocking or async call whose tool sets none. A call that takes longer
                gets an error result, and its thread is abandoned.

        Raises:
            BackendError: A tool failed in a way that is not the policy's fault.
        """
        results: list[ToolResult] = []
        waiting: dict[int, Callable[[], ToolResult]] = {}
        for call in calls:
            if len(results) < max_calls:
                arguments = self._arguments(call)
            else:
                name = call.name if isinstance(call, ToolCall) else ""
                arguments = _invalid(name, f"not run: at most {max_calls} calls per step")
            if isinstance(arguments, ToolResult):
                results.append(arguments)
                continue
            entry = self._tools[call.name]  # type: ignore[union-attr]
            limit = timeout if entry.timeout is None else entry.timeout
            if call.name in self._waiting:  # type: ignore[union-attr]
                call_it = functools.partial(entry.call, **arguments)
                waiting[len(results)] = _begin(entry, limit, call_it, in_loop=entry.is_async)
                results.append(ToolResult(entry.name, ""))  # until it has ended
            else:
                results.append(_attempt(entry, limit, entry.call, **arguments))
        for index, result in waiting.items():
            results[index] = result()
        return results

    def refusals(self, calls: Sequence[ToolCall | ParseFailure]) -> list[ToolResult | None]:
        """Check calls without running them: for each, an error result if it is malformed, else None."""
        return [result if isinstance(result, ToolResult) else None for result in map(self._arguments, calls)]

    def _arguments(self, call: ToolCall | ParseFailure) -> dict[str, Any] | ToolResult:
        """Return the arguments to run a call with, or the result of a call that is malformed."""
        if isinstance(call, ParseFailure):
            return _invalid("", call.error)
        name, arguments = call.name, call.arguments
        flat = self._flat.get(name)
        if flat is not None and flat[1] <= arguments.keys():
            types = flat[0]
            for key, value in arguments.items():
                if type(value) is not types.get(key):
                    break
            else:
                return arguments  # they certainly fit; jsonschema judges all others, which takes ten times as long
        if name not in self._tools:
            return _invalid(name, f"there is no tool {name[:100]!r}.{did_you_mean(name[:100], self.names)}")
        entry = self._tools[name]
        problem = misfit(self._schemas[name], arguments)
        if not problem and (unfit := _unfit(entry, arguments)):
            problem = f": {unfit[:300]}"
        if problem:
            return _invalid(name, f"wrong arguments for {name}{problem}")
        fitting: dict[str, Any] = with_integers(arguments, entry.parameters, entry.parameters)
        return fitting


def _invalid(name: str, problem: str) -> ToolResult:
    return ToolResult(clean_text(name[:MAX_NAME_LENGTH]), f"error: {problem}", error=True, invalid=True)


def _begin(entry: Tool, limit: float, call: Callable[[], Any], *, in_loop: bool) -> Callable[[], ToolResult]:
    """Start a blocking or async call, and return a function that waits for its result, until the limit at most."""
    import asyncio
    import contextlib
    from concurrent.futures import CancelledError, Future

    from agent_envs.threads import background_loop, is_responsive, run_in_thread

    deadline = time.monotonic() + limit
    loop = background_loop() if in_loop else None
    future: Future[Any] = (
        run_in_thread(call) if loop is None else asyncio.run_coroutine_threadsafe(_awaited(call()), loop)
    )

    def result() -> ToolResult:
        # An exception of the tool itself is returned here; one that is raised is about the wait.
        with contextlib.suppress(TimeoutError, CancelledError):
            future.exception(timeout=max(0.0, deadline - time.monotonic()))
        if future.done():
            return _attempt(entry, deadline - time.monotonic(), future.result)
        future.cancel()
        if loop is not None and not is_responsive(loop):
            background_loop(replace=loop)
        return ToolResult(entry.name, f"error: {entry.name} took longer than {limit:g} s and was stopped", error=True)

    return result


def _attempt(entry: Tool, limit: float, call: Callable[..., Any], /, **arguments: Any) -> ToolResult:
    """Call a tool and return its result, waiting up to ``limit`` seconds for an awaitable."""
    try:
        content = call(**arguments)
        if isinstance(content, str):
            return ToolResult(entry.name, content)
        if isinstance(content, Awaitable):
            return _begin(entry, limit, lambda: content, in_loop=True)()
        if isinstance(content, Pictured):
            return ToolResult(entry.name, content.text, pictured=content)
        return ToolResult(entry.name, str(content))
    except ToolError as e:
        return ToolResult(entry.name, f"error: {e}", error=True)
    except AgentEnvsError:
        raise
    except Exception as e:
        raise BackendError(f"tool {entry.name!r} failed: {type(e).__name__}: {e}") from e


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


_SIMPLE_TYPES: dict[Any, type] = {"string": str, "boolean": bool, "integer": int, "number": float}


def _flat_types(entry: Tool) -> tuple[dict[str, type], frozenset[str]] | None:
    """Return the arguments' types and which are required if all of them are of a simple type, else None."""
    schema = entry.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    flat = schema.keys() <= {"type", "properties", "required", "additionalProperties", "description"}
    if not (flat and schema.get("type") == "object" and isinstance(properties, dict) and isinstance(required, list)):
        return None
    types: dict[str, type] = {}
    for name, inner in properties.items():
        flat = isinstance(inner, dict) and inner.keys() <= {"type", "description", "default"}
        if not flat or not isinstance(kind := inner.get("type"), str) or kind not in _SIMPLE_TYPES:
            return None
        types[name] = _SIMPLE_TYPES[kind]
    if _unfit(entry, types) or _unfit(entry, required) or not types.keys() >= set(required):
        return None
    return types, frozenset(required)


def _unfit(entry: Tool, names: Iterable[str]) -> str:
    """Return why a tool's function cannot be called with arguments of these names, "" if it can."""
    call: Any = entry.call
    own: tuple[Any, ...] = ()
    if inspect.ismethod(call):  # whose first parameter may have the name of an argument
        call, own = call.__func__, (call.__self__,)
    try:
        inspect.signature(call).bind(*own, **dict.fromkeys(names))
    except TypeError as e:
        return str(e)
    return ""
