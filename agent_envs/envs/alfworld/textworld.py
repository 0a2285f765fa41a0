"""The original ALFWorld engine (extra `alfworld`), made safe for threads, faster and silent.

TextWorld keeps parsers, options and one game per loaded planner library in module globals, so every call here holds
one process-wide lock. Three caches spare it work that it repeats at every step, without changing what it says: the
translation of a problem, the parsed pieces of a grammar, and the command of each ground action. Contexts, in which
nothing changes, are copied one level deep. All of this applies only during our calls. A loaded library is never freed,
so engines go back to a pool. Changes that TextWorld makes to `sys.argv` and `sys.stdout` are undone.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import importlib
import os
import sys
import tempfile
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import DataError, MissingExtraError

__all__ = ["LOCK", "EngineLease", "EngineReply", "TextWorldEngine", "TextWorldEpisode", "begin_episode", "play_episode"]

LOCK = threading.RLock()
"""Held during every call into TextWorld."""

_TRANSLATIONS = 8  # translated problems to keep; about 1 MB each
_EXPRESSIONS = (
    *(ast.Expression, ast.Name, ast.Attribute, ast.Constant, ast.Load),
    *(ast.BinOp, ast.Add, ast.BoolOp, ast.Or, ast.And),
)
_POOL: list[TextWorldEngine] = []


@dataclass(frozen=True, slots=True)
class EngineReply:
    """The engine's reply to a command."""

    text: str
    """The observation."""
    commands: list[str]
    """The admissible commands."""
    won: bool
    """Whether the game is won."""
    reward: float
    """The reward."""
    done: bool
    """Whether the game is over."""


class TextWorldEngine:
    """One loaded planner library and the game that it plays.

    Raises:
        MissingExtraError: TextWorld, its planner or alfworld is not installed.
    """

    def __init__(self) -> None:
        with _textworld() as parts:
            infos = parts.textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
            self._env = parts.Infos(parts.Demangler(parts.Env(infos), shuffle=False))
        self.game = ""
        self.history: tuple[str, ...] | None = None

    def start(self, game: str, read: Callable[[], dict[str, Any]]) -> EngineReply:
        """Begin a game.

        `read` reads the content of the game's file; a game with the same name as the last one is not read again.

        Raises:
            DataError: TextWorld cannot load it.
        """
        with _textworld():
            self.history = None
            try:
                if self.game != game:
                    self.game = ""
                    self._env.load(read())
                    self.game = game
                state = self._env.reset()
            except DataError:
                raise
            except KeyError as e:
                raise DataError(
                    f"{game}: TextWorld cannot load this game because its planner found no way to the goal "
                    f"(KeyError: {e}); the released data marks such games as unsolvable"
                ) from e
            except (Exception, SystemExit) as e:
                raise DataError(f"{game}: TextWorld cannot load this game: {type(e).__name__}: {str(e)[:300]}") from e
            self.history = ()
            return EngineReply(state.feedback, list(state.admissible_commands), bool(state["won"]), 0.0, False)

    def step(self, command: str) -> EngineReply:
        """Carry out a command."""
        with _textworld():
            history, self.history = self.history or (), None
            state, reward, done = self._env.step(command)
            self.history = (*history, command)
            return EngineReply(
                state.feedback, list(state.admissible_commands), bool(state["won"]), float(reward), bool(done)
            )


class EngineLease:
    """An environment's engine, which goes back to the pool on `release` or when this object is garbage-collected."""

    def __init__(self) -> None:
        self._engine: TextWorldEngine | None = None
        self._finalizer: Callable[[], Any] | None = None

    def engine(self) -> TextWorldEngine:
        """The engine: an idle one of the pool, or a new one."""
        if self._engine is None:
            with LOCK:
                engine = _POOL.pop() if _POOL else TextWorldEngine()
            self._engine = engine
            self._finalizer = weakref.finalize(self, _POOL.append, engine)
        return self._engine

    def release(self) -> None:
        """Return the engine to the pool."""
        self._engine = None
        if self._finalizer is not None:
            self._finalizer()

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineLease:
        return EngineLease()

    def __reduce__(self) -> tuple[type[EngineLease], tuple[()]]:
        return EngineLease, ()


@dataclass(frozen=True, slots=True)
class TextWorldEpisode:
    """An episode as a list of commands, which can be copied and pickled; an engine replays it where necessary."""

    game: str
    """The game's name."""
    history: tuple[str, ...]
    """The admissible commands given so far."""
    commands: list[str]
    """The admissible commands. Do not change the list in place."""
    won: bool
    """Whether the game is won."""


def begin_episode(lease: EngineLease, game: str, read: Callable[[], dict[str, Any]]) -> tuple[str, TextWorldEpisode]:
    """Begin a game; return its first observation and the episode. Raises DataError if TextWorld cannot load it."""
    reply = lease.engine().start(game, read)
    return reply.text, TextWorldEpisode(game, (), reply.commands, reply.won)


def play_episode(
    lease: EngineLease, episode: TextWorldEpisode, command: str, read: Callable[[], dict[str, Any]]
) -> tuple[str, TextWorldEpisode]:
    """Carry out a command; return the observation and the episode after it."""
    engine = lease.engine()
    with LOCK:
        if engine.game != episode.game or engine.history != episode.history:
            engine.start(episode.game, read)
            for earlier in episode.history:
                engine.step(earlier)
        reply = engine.step(command)
        if command.strip() not in episode.commands:
            engine.history = episode.history
            return reply.text, episode
        return reply.text, TextWorldEpisode(episode.game, (*episode.history, command), reply.commands, reply.won)


# -- TextWorld's modules -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _textworld() -> Iterator[types.SimpleNamespace]:
    """Hold the lock and install the caches; restore everything afterwards."""
    with LOCK:
        argv, stdout = sys.argv, sys.stdout
        replaced: list[tuple[Any, str, Any]] = []
        try:
            parts = _parts()
            for module, name, value in parts.caches:
                replaced.append((module, name, vars(module)[name]))
                setattr(module, name, value)
            yield parts
        finally:
            for module, name, value in replaced:
                setattr(module, name, value)
            sys.argv, sys.stdout = argv, stdout


@functools.cache
def _parts() -> types.SimpleNamespace:
    """Import TextWorld once; return its parts and the cached replacements of some of its functions."""
    with _quiet_import():
        for package in ("textworld", "fast_downward", "alfworld"):
            try:
                importlib.import_module(package)
            except ImportError as e:
                raise MissingExtraError(e.name or package, extra="alfworld") from e
        import fast_downward
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import logic, pddl, textgen

    downward = types.ModuleType("fast_downward")
    vars(downward).update(vars(fast_downward))
    vars(downward)["pddl2sas"] = functools.lru_cache(2 * _TRANSLATIONS)(
        functools.partial(_translated, fast_downward.pddl2sas)
    )
    parse = functools.lru_cache(1024)(functools.partial(_parsed, textgen._parse_and_convert))

    read = functools.lru_cache(_TRANSLATIONS)(functools.partial(_parsed, logic._parse_and_convert))

    def read_grammar(text: str, rule_name: str | None = None) -> Any:
        return read(text, rule_name)

    def parse_and_convert(text: str, rule_name: str | None = None, **_: Any) -> Any:
        return copy.deepcopy(parse(text, rule_name))

    class CachedRule:
        parse_conjunctive_query = staticmethod(functools.lru_cache(256)(textgen.Rule.parse_conjunctive_query))

    class PlainExpression(textgen.EvalSymbol):
        def __init__(self, expression: str, context: Any = None) -> None:
            _check_expression(str(expression))
            super().__init__(expression, context or {})

    def copy_context(context: dict[str, Any]) -> dict[str, Any]:
        return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}

    return types.SimpleNamespace(
        textworld=textworld,
        Demangler=AlfredDemangler,
        Infos=AlfredInfos,
        Env=_cached_env(pddl.PddlEnv),
        caches=(
            (logic, "fast_downward", downward),
            (logic, "_parse_and_convert", read_grammar),
            (textgen, "_parse_and_convert", parse_and_convert),
            (textgen, "EvalSymbol", PlainExpression),
            (textgen, "Rule", CachedRule),
            (textgen, "copy_context", copy_context),
        ),
    )


def _check_expression(text: str) -> None:
    """Check an expression of a game's grammar, which TextWorld evaluates: it may join names and texts, and no more."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise DataError(f"the game's grammar has an expression that cannot be read: {shown(text)}") from e
    for node in nodes:
        if not isinstance(node, _EXPRESSIONS) or (isinstance(node, ast.Attribute) and node.attr.startswith("_")):
            raise DataError(
                f"the game's grammar has an expression that does more than join names and texts: {shown(text)}"
            )


@contextlib.contextmanager
def _quiet_import() -> Iterator[None]:
    """Import without side effects: alfworld would create a data folder, and TextWorld's imports warn."""
    original = os.environ.get("ALFWORLD_DATA")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["ALFWORLD_DATA"] = folder
        try:
            yield
        finally:
            del os.environ["ALFWORLD_DATA"]
            if original is not None:
                os.environ["ALFWORLD_DATA"] = original


def _translated(
    pddl2sas: Callable[..., Any], domain: str, problem: str, verbose: bool = False, optimize: bool = False
) -> Any:
    """Translate a problem; skip the optimised translation, which only planning needs."""
    return (None, "") if optimize else pddl2sas(domain, problem, verbose=verbose)


def _parsed(parse: Callable[..., Any], text: str, rule_name: str | None) -> Any:
    return parse(text, rule_name=rule_name)


def _cached_env(base: Any) -> Any:
    """Return TextWorld's environment class with a cache: the command of a ground action is derived once per game."""

    class CachedEnv(base):
        def load(self, data: dict[str, Any]) -> None:
            self._commands: dict[str, str] = {}
            super().load(data)

        def _gather_infos(self) -> None:
            state, world = self.state, self._pddl_state
            state["won"], state["lost"] = world.check_goal(), False
            state["last_action"], state["_last_action"] = None, self._last_action
            state["_entity_infos"] = dict(self._entity_infos)
            actions = world.all_applicable_actions()
            commands = []
            for action in actions:
                key = world._operators[action.id].name
                command = self._commands.get(key)
                if command is None:
                    command = self._commands[key] = self._command(action)
                commands.append(command)
            state["_valid_actions"], state["_valid_commands"] = actions, commands
            state["admissible_commands"] = sorted(set(commands))

        def _command(self, action: Any) -> str:
            context = {
                "state": self._pddl_state,
                "facts": list(self._pddl_state.facts),
                "variables": {slot.name: self._entity_infos[value.name] for slot, value in action.mapping.items()},
                "mapping": action.mapping,
                "entity_infos": self._entity_infos,
            }
            action.command_template = self._logic.grammar.derive(action.command_template, context)
            return str(action.format_command({name: info.name for name, info in self._entity_infos.items()}))

    return CachedEnv
