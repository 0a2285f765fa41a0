"""The original ALFWorld engine (extra `alfworld`), in a process of its own and faster.

Three caches spare TextWorld work that it repeats at every step, without changing what it says: the translation of a
problem, the parsed pieces of a grammar, and the command of each ground action. Contexts, in which nothing changes, are
copied one level deep. A loaded planner library is never freed, so engines are used again.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib.util
import os
import tempfile
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_envs.checks import shown
from agent_envs.envs.textworld_process import RunningGames, ask
from agent_envs.errors import DataError, MissingExtraError

_TRANSLATIONS = 8  # translated problems to keep; about 1 MB each
_EXPRESSIONS = (
    *(ast.Expression, ast.Name, ast.Attribute, ast.Constant, ast.Load),
    *(ast.BinOp, ast.Add, ast.BoolOp, ast.Or, ast.And),
)


@dataclass(frozen=True, slots=True)
class TextWorldEpisode:
    """An episode as a list of commands, which can be copied and pickled; an engine replays it where necessary."""

    game: str
    """What tells the game's file from all others."""
    text: str
    """The engine's reply to the last command."""
    history: tuple[str, ...]
    """The admissible commands given so far."""
    commands: list[str]
    """The admissible commands. Do not change the list in place."""
    won: bool
    """Whether the game is won."""


def episode_at(
    game: str, history: Sequence[str], read: Callable[[], dict[str, Any]], left: TextWorldEpisode | None = None
) -> TextWorldEpisode:
    """Return a game's episode after some commands; a last one that is not admissible changes nothing but the text.

    Args:
        game: What tells the game's file from all others; its first line names it in errors.
        history: The commands.
        read: Returns the content of the file, if it is needed.
        left: An episode that is not played on.
    """
    for package in ("textworld", "fast_downward", "alfworld") if not history else ():
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, extra="alfworld")
    name, free = game.partition("\n")[0], None if left is None else (left.game, left.history)
    reply = ask(__name__, name, game, history, None, free) or ask(__name__, name, game, history, read())
    return TextWorldEpisode(**{**reply, "history": tuple(reply["history"])})


# -- in the process of TextWorld's own ----------------------------------------------------------------------------


class _UnreadGameError(Exception):
    """A game must be loaded."""


class _Engine:
    """A loaded planner library and the game that it plays."""

    def __init__(self, game: str, document: dict[str, Any] | None) -> None:
        loaded, self._env = _idle.pop() if _idle else ("", _cached_textworld()())
        self.key = ""
        try:
            if loaded != game:
                if document is None:
                    raise _UnreadGameError
                self._env.load(document)
            state = self._env.reset()
        except BaseException as e:
            self.close()
            if not isinstance(e, KeyError):
                raise
            raise DataError(
                "its planner found no way to the goal "
                f"(KeyError: {e}); the released data marks such games as unsolvable"
            ) from e
        self.key = game
        self.history: tuple[str, ...] = ()
        self.episode = self.reply = self._episode(state)

    def play(self, command: str) -> None:
        state, _, _ = self._env.step(command)
        admissible = command.strip() in self.episode.commands
        if admissible:
            self.history = (*self.history, command)
        self.reply = self._episode(state)
        if admissible:
            self.episode = self.reply

    def close(self) -> None:
        _idle.append((self.key, self._env))

    def _episode(self, state: Any) -> TextWorldEpisode:
        commands = list(state.admissible_commands)
        return TextWorldEpisode(self.key, state.feedback, self.history, commands, won=bool(state["won"]))


_engines = RunningGames()
_idle: list[tuple[str, Any]] = []  # with the game that is loaded


def answer(
    game: str, history: Sequence[str], document: dict[str, Any] | None, left: tuple[str, Sequence[str]] | None = None
) -> dict[str, Any] | None:
    """Return the episode at a point, as a dictionary; None if the content of the game's file is needed for that."""
    if left is not None:
        _engines.leave(*left)
    try:
        engine = _engines.at(game, history, lambda: _Engine(game, document))
    except _UnreadGameError:
        return None
    return asdict(engine.episode if engine.history == tuple(history) else engine.reply)


@functools.cache
def _cached_textworld() -> Callable[[], Any]:
    """Import TextWorld, put the caches into it, and return what makes an environment of it."""
    with tempfile.TemporaryDirectory() as folder:  # alfworld would create a data folder in the user's home
        os.environ["ALFWORLD_DATA"] = folder
        import fast_downward
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import logic, pddl, textgen

    downward = types.ModuleType("fast_downward")
    vars(downward).update(vars(fast_downward))
    parse = functools.lru_cache(1024)(textgen._parse_and_convert)

    @functools.lru_cache(2 * _TRANSLATIONS)
    def translated(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        """Translate a problem; skip the optimised translation, which only planning needs."""
        return (None, "") if optimize else fast_downward.pddl2sas(domain, problem, verbose=verbose)

    def parse_and_convert(text: str, rule_name: str | None = None, **_: Any) -> Any:
        return copy.deepcopy(parse(text, rule_name=rule_name))

    class CachedRule:
        parse_conjunctive_query = staticmethod(functools.lru_cache(256)(textgen.Rule.parse_conjunctive_query))

    class PlainExpression(textgen.EvalSymbol):
        def __init__(self, expression: str, context: Any = None) -> None:
            _check_expression(str(expression))
            super().__init__(expression, context or {})

    def copy_context(context: dict[str, Any]) -> dict[str, Any]:
        return {**context, "variables": dict(context["variables"]), "mapping": dict(context["mapping"])}

    vars(downward)["pddl2sas"] = translated
    logic.fast_downward = downward
    logic._parse_and_convert = functools.lru_cache(_TRANSLATIONS)(logic._parse_and_convert)
    textgen._parse_and_convert, textgen.EvalSymbol = parse_and_convert, PlainExpression
    textgen.Rule, textgen.copy_context = CachedRule, copy_context
    cached_env = _cached_env(pddl.PddlEnv)
    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    return lambda: AlfredInfos(AlfredDemangler(cached_env(infos), shuffle=False))


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
                if key not in self._commands:
                    self._commands[key] = self._command(action)
                commands.append(self._commands[key])
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
