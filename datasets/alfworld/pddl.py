"""Parses PDDL (planning domain definition language) problems of ALFWorld's game files in linear time."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from agent_envs.datasets.alfworld.problem import PREDICATES, RELEASED, TYPES, Formula, Problem, Wording
from agent_envs.errors import DataError
from agent_envs.files import table

MAX_DEPTH = 64  # of brackets; the released files have 9
_TOKEN = re.compile(r"[()]|[^\s()]+")


def parse_problem(
    text: str,
    task: str,
    *,
    family: str = "",
    params: Mapping[str, str] | None = None,
    wording: Wording = RELEASED,
    where: str = "the problem",
) -> Problem:
    """Parse a PDDL problem as game files hold it; the other arguments are fields of the `Problem`."""
    parts = _sections(text, where)
    objects = _objects(parts[":objects"], where)
    facts = tuple(dict.fromkeys(_facts(parts[":init"], objects, where)))
    if len(parts[":goal"]) != 1:
        raise DataError(f"{where}: (:goal ...) must hold one condition, got {len(parts[':goal'])}")
    goal = _condition(parts[":goal"][0], objects, {}, where)
    return Problem(parts["problem"], objects, facts, goal, task, family, dict(params or {}), wording)


def family_goal(family: str, obj: str, recep: str = "", toggle: str = "") -> Formula:
    """Return the goal of a family for classes such as "Apple" and "SideTable"; DataError if there is no such family."""
    goals = table(__package__, "game.json")["goals"]
    if family not in goals:
        raise DataError(f"there is no task family {family!r}; the families are: {', '.join(goals)}")
    text = "\n".join(goals[family]).format(obj=obj.lower(), recep=recep.lower(), toggle=toggle.lower())
    return _condition(read_expression(text, "the goal"), {}, {}, "the goal")


def _sections(text: str, where: str) -> dict[str, Any]:
    """Return the parts of `(define (problem NAME) (:domain alfred) (:objects ...) (:init ...) (:goal ...))` by name."""
    tree = read_expression(text, where)
    if not tree or tree[0] != "define":
        raise DataError(f"{where}: expected a planning problem, (define (problem ...) ...), got {_shown(tree)}")
    parts: dict[str, Any] = {}
    for part in tree[1:]:
        if not isinstance(part, list) or not part or not isinstance(part[0], str):
            raise DataError(f"{where}: expected a section such as (:init ...), got {_shown(part)}")
        if part[0] in parts:
            raise DataError(f"{where}: the section {part[0]} occurs twice")
        parts[part[0]] = part[1:]
    if parts.get(":domain") != ["alfred"]:
        raise DataError(f"{where}: expected the domain alfred, got {_shown(parts.get(':domain'))}")
    for wanted in ("problem", ":objects", ":init", ":goal"):
        if wanted not in parts:
            raise DataError(f"{where}: the section ({wanted} ...) is missing; is the file cut off?")
    unknown = sorted(set(parts) - {"problem", ":domain", ":requirements", ":objects", ":init", ":goal", ":metric"})
    if unknown:
        raise DataError(f"{where}: unknown section {unknown[0]!r}")
    parts["problem"] = parts["problem"][0] if parts["problem"] and isinstance(parts["problem"][0], str) else ""
    return parts


def read_expression(text: str, where: str) -> list[Any]:
    """Return the text's one expression as nested lists, in lower case and without comments."""
    if not text.isascii():
        raise DataError(f"{where}: a problem must be ASCII text, got {next(c for c in text if not c.isascii())!r}")
    if ";" in text:
        text = re.sub(r";[^\n]*", "", text)
    stack: list[list[Any]] = []
    done: list[Any] | None = None
    for token in _TOKEN.findall(text.lower()):
        if done is not None:
            raise DataError(
                f"{where}: unexpected {token!r} after the end of the problem; one closing bracket too many?"
            )
        if token == "(":
            if len(stack) >= MAX_DEPTH:
                raise DataError(f"{where}: brackets are nested more than {MAX_DEPTH} deep")
            stack.append([])
        elif not stack:
            raise DataError(f"{where}: expected a bracket, got {token[:80]!r}")
        elif token == ")":
            closed = stack.pop()
            if stack:
                stack[-1].append(closed)
            else:
                done = closed
        else:
            stack[-1].append(sys.intern(token))  # a file names each thing many times
    if done is None:
        raise DataError(
            f"{where}: {len(stack)} brackets are not closed: the problem is cut off"
            if stack
            else f"{where}: the problem is empty"
        )
    return done


def _objects(tokens: list[Any], where: str) -> dict[str, str]:
    """Return `a b - type c - type` as identifier -> type; identifiers without a type are of type `object`."""
    objects: dict[str, str] = {}
    untyped: list[str] = []

    def declare(kind: str) -> None:
        for name in untyped:
            if name in objects:
                raise DataError(f"{where}: the object {name!r} is declared twice")
            objects[name] = kind
        untyped.clear()

    rest = iter(tokens)
    for token in rest:
        if not isinstance(token, str):
            raise DataError(f"{where}: expected an object's name, got {_shown(token)}")
        if token != "-":
            untyped.append(token)
            continue
        kind = next(rest, None)
        if kind not in TYPES:
            raise DataError(f"{where}: {_shown(kind)} is not a type; types are: {', '.join(TYPES)}")
        declare(kind)
    declare("object")
    return objects


def _facts(items: list[Any], objects: Mapping[str, str], where: str) -> Iterable[tuple[str, ...]]:
    for item in items:
        if not isinstance(item, list) or not item:
            raise DataError(f"{where}: expected a fact such as (openable x), got {_shown(item)}")
        if item[0] == "not":
            continue
        number = item[0] == "="
        if number:  # a distance or cost, which the game ignores, with locations mentioned nowhere else
            if len(item) != 3 or not isinstance(item[1], list) or not item[1] or not str(item[2]).isdigit():
                raise DataError(f"{where}: expected (= (NAME ...) INTEGER), got {_shown(item)}")
            item = item[1]
        fact = tuple(item)
        if not all(isinstance(word, str) for word in fact):
            raise DataError(f"{where}: expected a fact such as (openable x), got {_shown(item)}")
        if PREDICATES.get(fact[0], len(fact) - 1) != len(fact) - 1:
            raise DataError(f"{where}: {fact[0]} takes {PREDICATES[fact[0]]} arguments: {_shown(item)}")
        for name in fact[1:]:
            if name not in objects:
                raise DataError(f"{where}: {_shown(item)} mentions {name!r}, which (:objects ...) does not declare")
        if not number:
            yield fact


def _condition(item: Any, objects: Mapping[str, str], bound: Mapping[str, str], where: str) -> Formula:
    if not isinstance(item, list) or not item or not isinstance(item[0], str):
        raise DataError(f"{where}: expected a condition such as (and ...), got {_shown(item)}")
    head, rest = item[0], item[1:]
    if head in ("and", "or"):
        return (head, *(_condition(part, objects, bound, where) for part in rest))
    if head == "not" and len(rest) == 1:
        return ("not", _condition(rest[0], objects, bound, where))
    if head == "exists" and len(rest) == 2 and isinstance(rest[0], list):
        variables = _objects([word for word in rest[0] if word != ","], where)
        return ("exists", tuple(variables.items()), _condition(rest[1], objects, {**bound, **variables}, where))
    if head in PREDICATES or head == "=":
        if len(rest) != (2 if head == "=" else PREDICATES[head]):
            raise DataError(f"{where}: wrong number of arguments in the goal's {_shown(item)}")
        for word in rest:
            if not isinstance(word, str) or (word.startswith("?") and word not in bound):
                raise DataError(f"{where}: {_shown(word)} is not bound in the goal's {_shown(item)}")
        return (head, *rest)
    raise DataError(f"{where}: the goal's {_shown(item)} is not a condition of this domain")


def _shown(item: Any) -> str:
    """Return a piece of the problem for an error message, at most 80 characters."""
    if isinstance(item, list):
        words = " ".join("(...)" if isinstance(word, list) else str(word) for word in item[:6])
        return f"({words[:74]}{' ...' if len(item) > 6 else ''})"
    return repr(item)[:80]
