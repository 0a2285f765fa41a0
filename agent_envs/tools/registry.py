"""A set of tools: their specs, and running the calls a policy makes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, ToolError, did_you_mean
from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.threads import background_loop, is_responsive, run_in_thread
from agent_envs.tools.base import Tool

__all__ = ["ToolRegistry", "ToolResult"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one call came to."""

    name: str
    """The tool's name as called, "" where the call could not be read."""
    content: str
    """The text for the policy."""
    error: bool = False
    """Whether the text tells of a failure."""
    invalid: bool = False
    """Whether the call could not be carried out as asked: unreadable, unknown, wrong arguments, over the cap."""


class ToolRegistry:
    """The tools of one environment, by name.

    Args:
        tools: The tools.

    Raises:
        ConfigError: Two tools have the same name.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._validators: dict[str, Any] = {}  # made when a call first needs one
        self._plain: dict[str, dict[str, type] | None] = {}
        self._waiting: set[str] = set()
        for entry in tools:
            if not isinstance(entry, Tool):
                raise ConfigError(f"expected a Tool, got {entry!r}; decorate a function with @tool")
            if entry.name in self._tools:
                raise ConfigError(f"two tools are named {entry.name!r}; give one another name")
            self._tools[entry.name] = entry
            self._plain[entry.name] = _plain_types(entry.parameters)
            if entry.is_async or entry.blocking:
                self._waiting.add(entry.name)

    def __getstate__(self) -> dict[str, object]:
        """Copies and pickles make their own validators: jsonschema's cannot be pickled."""
        return {**self.__dict__, "_validators": {}}

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> list[str]:
        """The tools' names in order."""
        return list(self._tools)

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools in the OpenAI function form."""
        return [entry.spec for entry in self._tools.values()]

    def close(self) -> None:
        """Close every tool."""
        for entry in self._tools.values():
            entry.close()

    def run(
        self, calls: Sequence[ToolCall | ParseFailure], *, max_calls: int = 4, timeout: float = 10.0
    ) -> list[ToolResult]:
        """Run the calls of one step, those that may wait side by side.

        Args:
            calls: The calls in the order they were written.
            max_calls: Calls that are run; each further one gets a result that says so.
            timeout: Seconds a blocking or async call may take, unless its tool has a limit of its own. A call that
                takes longer gets an error as its result; its thread is left behind.

        Returns:
            One result per call, in the same order.

        Raises:
            BackendError: A tool failed in a way that is not the policy's fault.
        """
        results: list[ToolResult | None] = []
        waiting: list[tuple[int, _Waiting]] = []
        for position, call in enumerate(calls):
            result = self._refuse(call, position, max_calls)
            if result is None:
                assert isinstance(call, ToolCall)
                entry = self._tools[call.name]
                arguments = call.arguments
                if not _fits(arguments, self._plain[call.name]):
                    arguments = _with_integers(arguments, entry.parameters)
                limit = timeout if entry.timeout is None else entry.timeout
                if call.name in self._waiting:
                    waiting.append((position, _Waiting(entry, arguments, limit)))
                else:
                    result = _attempt(entry, functools.partial(entry.call, **arguments), limit)
            results.append(result)
        for position, started in waiting:
            results[position] = started.result()
        return results  # type: ignore[return-value]

    def refusals(self, calls: Sequence[ToolCall | ParseFailure]) -> list[ToolResult | None]:
        """Of each call what is wrong with its form (unreadable, unknown, wrong arguments), None for one that would run.

        Nothing is run.
        """
        return [self._refuse(call, 0, 1) for call in calls]

    def _refuse(self, call: ToolCall | ParseFailure, position: int, max_calls: int) -> ToolResult | None:
        """The result of a call that is not run, or None for one that is."""
        name = call.name if isinstance(call, ToolCall) else ""
        if position >= max_calls:
            return ToolResult(name, f"error: not run: at most {max_calls} calls per step", error=True, invalid=True)
        if isinstance(call, ParseFailure):
            return ToolResult(name, f"error: {call.error}", error=True, invalid=True)
        if name not in self._tools:
            text = f"error: there is no tool {name[:100]!r}.{did_you_mean(name[:100], self._tools)}"
            return ToolResult(name, text, error=True, invalid=True)
        if _fits(call.arguments, self._plain[name]):
            return None
        try:
            problem = next(self._validator(name).iter_errors(call.arguments), None)
        except RecursionError:
            return ToolResult(name, "error: the arguments are nested too deeply", error=True, invalid=True)
        if problem is not None:
            where = "".join(f"[{part!r}]" for part in problem.absolute_path)
            text = f"error: wrong arguments for {name}{where and ' at ' + where}: {_shorten(problem.message)}"
            return ToolResult(name, text, error=True, invalid=True)
        return None

    def _validator(self, name: str) -> Any:
        if name not in self._validators:
            # Not at the top: it takes as long to import as the rest of the package.
            from jsonschema import Draft202012Validator
            from jsonschema.exceptions import SchemaError

            schema = self._tools[name].parameters
            try:
                Draft202012Validator.check_schema(schema)
            except SchemaError as e:
                raise ConfigError(f"tool {name!r}: its parameters are no JSON schema: {e.message}") from e
            self._validators[name] = Draft202012Validator(schema)
        return self._validators[name]


class _Waiting:
    """A call that runs elsewhere while others start."""

    def __init__(self, entry: Tool, arguments: dict[str, Any], limit: float) -> None:
        self.entry = entry
        self.limit = limit
        self.deadline = time.monotonic() + limit
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: concurrent.futures.Future[Any]
        if entry.is_async:
            self.loop = background_loop()
            self.future = asyncio.run_coroutine_threadsafe(entry.call(**arguments), self.loop)
        else:
            self.future = run_in_thread(entry.call, **arguments)

    def result(self) -> ToolResult:
        # A tool's own exception is returned here; what is raised is about the wait.
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            self.future.exception(timeout=max(0.0, self.deadline - time.monotonic()))
        if self.future.done():
            return _attempt(self.entry, self.future.result, self.deadline - time.monotonic())
        self.future.cancel()
        if self.loop is not None and not is_responsive(self.loop):
            background_loop(replace=self.loop)
        return ToolResult(self.entry.name, _too_long(self.entry, self.limit), error=True)


_PLAIN_TYPES: dict[str, type] = {"string": str, "boolean": bool, "integer": int, "number": float}


def _plain_types(schema: dict[str, Any]) -> dict[str, type] | None:
    """Argument names and types of a flat object whose arguments are all required and of one plain type, else None."""
    properties = schema.get("properties", {})
    flat = set(schema) <= {"type", "properties", "required", "additionalProperties", "description"}
    if not flat or schema.get("type") != "object" or set(schema.get("required", ())) != set(properties):
        return None
    types: dict[str, type] = {}
    for name, inner in properties.items():
        if not (set(inner) <= {"type", "description"} and inner.get("type") in _PLAIN_TYPES):
            return None
        types[name] = _PLAIN_TYPES[inner["type"]]
    return types


def _fits(arguments: dict[str, Any], types: dict[str, type] | None) -> bool:
    """True for arguments that certainly fit; all others are for jsonschema to judge, which takes ten times as long."""
    if types is None or len(arguments) != len(types):
        return False
    return all(type(arguments.get(name)) is kind for name, kind in types.items())


def _with_integers(value: Any, schema: Any) -> Any:
    """``value`` with whole floats as ints where its schema, which it fits, wants integers: JSON knows no difference."""
    if not isinstance(schema, dict):
        return value
    if type(value) is float:
        return int(value) if schema.get("type") == "integer" else value
    if isinstance(value, list):
        firsts = schema.get("prefixItems", [])
        schemas = [*firsts, *[schema.get("items")] * (len(value) - len(firsts))]
        return [_with_integers(entry, inner) for entry, inner in zip(value, schemas, strict=False)]
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {key: _with_integers(entry, properties.get(key, others)) for key, entry in value.items()}
    return value


def _attempt(entry: Tool, call: Callable[[], Any], limit: float) -> ToolResult:
    """The result of a call, an awaitable it returns being awaited for ``limit`` seconds."""
    try:
        content = call()
        if inspect.isawaitable(content):
            waiting = asyncio.run_coroutine_threadsafe(_awaited(content), background_loop())
            if not concurrent.futures.wait([waiting], timeout=max(0.0, limit)).done:
                waiting.cancel()
                return ToolResult(entry.name, _too_long(entry, limit), error=True)
            content = waiting.result()
    except ToolError as e:
        return ToolResult(entry.name, f"error: {e}", error=True)
    except AgentEnvsError:
        raise
    except Exception as e:
        raise BackendError(f"tool {entry.name!r} failed: {type(e).__name__}: {e}") from e
    return ToolResult(entry.name, content if isinstance(content, str) else str(content))


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _too_long(entry: Tool, limit: float) -> str:
    return f"error: {entry.name} took longer than {limit:g} s and was stopped"


def _shorten(message: str, limit: int = 300) -> str:
    return message if len(message) <= limit else message[:limit] + "..."
