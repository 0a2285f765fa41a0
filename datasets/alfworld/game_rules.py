"""Checks the rules in a game file, its domain and grammar, against those that the native engine implements.

Editions of ALFWorld differ in a few phrases, which are read from the file (`Wording`). Everything else must be what the
engine was written for, which is checked by digests of the normalized rules.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from typing import Any

from agent_envs.datasets.alfworld.pddl import read_expression
from agent_envs.datasets.alfworld.problem import Wording
from agent_envs.errors import DataError
from agent_envs.files import table

_DOMAIN = "1b4fb59316b5c4e0d8cf319b86f880ee"  # of the domain without `help` and without the part that lets sinks clean
_GRAMMAR = "d15c1ea3ec73e90ab8850df0158f6051"  # of the rules that are used, without the phrases of `Wording`

_ACTIONS, _RULES = (table(__package__, "game.json")["checked"][kind] for kind in ("actions", "rules"))
_PLAIN = r'[^;|"<>\[\]#{}]*'  # literal text in a grammar
_TASK = re.compile(r'"Your task is to: ([^;|"<>\[\]#{}\\\n]*)\."')
_BLOCK = re.compile(r'grammar\s*::\s*"""(.*?)"""\s*;', re.DOTALL)
_ACTION = re.compile(r"^action\s+(\w+)\s*\{", re.MULTILINE)
_ARRIVE = re.compile(rf"({_PLAIN})\{{(lend|r)\.name\}}({_PLAIN})#examineReceptacle\.feedback#")
_PUT_DONE = re.compile(rf"({_PLAIN})\{{o\.name\}}({_PLAIN})\{{r\.name\}}({_PLAIN})")
_PUT = re.compile(rf"{_PLAIN}\{{o\}}{_PLAIN}\{{r\}}{_PLAIN}")


def read_rules(domain: str, grammar: str, where: str = "the game") -> tuple[Wording, str]:
    """Return the wording of a game and its task in words, from the domain and the grammar in its file."""
    task = _TASK.search(grammar)
    if task is None:
        raise DataError(f'{where}: the grammar has no line "Your task is to: ..."')
    try:
        sink_cleans, helps = _read_domain(domain)
        wording = _read_grammar(f"{grammar[: task.start(1)]}TASK{grammar[task.end(1) :]}", sink_cleans, helps)
    except DataError as e:
        raise DataError(f"{where}: {e}") from e
    return wording, task[1]


@functools.lru_cache(8)
def _read_domain(text: str) -> tuple[bool, bool]:
    """Check the domain; return whether sinks clean, and whether there is an action `help`."""
    tree = read_expression(text, "its domain")
    parts, sink_cleans, helps = [], False, False
    for part in tree:
        if part[:2] == [":action", "help"]:
            helps = True
            continue
        if part[:2] == [":action", "cleanobject"]:
            part, sink_cleans = _without(part, ["receptacletype", "?r", "sinktype"])
        parts.append(part)
    if _digest(parts) != _DOMAIN:
        raise _unknown("domain")
    return sink_cleans, helps


def _without(tree: Any, part: list[str]) -> tuple[Any, bool]:
    """Return a tree without one part, and whether it contained that part."""
    if not isinstance(tree, list):
        return tree, False
    pairs = [_without(branch, part) for branch in tree if branch != part]
    return [branch for branch, _ in pairs], len(pairs) < len(tree) or any(removed for _, removed in pairs)


@functools.lru_cache(8)
def _read_grammar(text: str, sink_cleans: bool, helps: bool) -> Wording:
    starts = list(_ACTION.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    rules = _rules(text[: starts[0].start()] if starts else text)
    actions: dict[str, tuple[str | None, str | None]] = {}
    for start, end in zip(starts, ends, strict=True):
        body = text[start.end() : end]
        rules.update(_rules("\n".join(line for line in body.split("\n") if not line.lstrip().startswith("#"))))
        actions[start[1]] = (_quoted("template", body), _quoted("feedback", body))
    put, put_rule = actions.pop("PutObject", (None, None))
    going = _ARRIVE.fullmatch(_only(rules, "GotoLocation.feedback"))
    putting = _PUT_DONE.fullmatch(_only(rules, "PutObject.feedback"))
    grammar = [[name, actions.get(name)] for name in _ACTIONS], [[name, rules.get(name)] for name in _RULES], put_rule
    if going is None or putting is None or put is None or not _PUT.fullmatch(put) or _digest(grammar) != _GRAMMAR:
        raise _unknown("grammar")
    if any(phrase != phrase.lstrip() or phrase.startswith("//") for phrase in (going[1], putting[1], put)):
        raise _unknown("grammar")
    answer = None
    if helps:
        answer = _only(rules, "help.feedback").lstrip()  # the game strips whitespace before a text
        if not re.fullmatch(_PLAIN, answer) or actions.get("help") != ("help", "#help.feedback#"):
            raise _unknown("grammar")
    return Wording(
        put=put,
        put_done=f"{putting[1]}{{o}}{putting[2]}{{r}}{putting[3]}",
        arrive=f"{going[1]}{{{going[2]}}}{going[3]}",
        help=answer,
        sink_cleans=sink_cleans,
    )


def _rules(text: str) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    for block in _BLOCK.findall(text):
        try:
            block_rules = json.loads(block, strict=False)
        except ValueError as e:
            raise DataError(f"a block of its grammar is not valid JSON: {e}") from e
        if not isinstance(block_rules, dict):
            raise _unknown("grammar")
        rules.update(block_rules)
    return rules


def _only(rules: dict[str, Any], name: str) -> str:
    """Return the text of a rule that is one unconditional text, or ""."""
    match rules.get(name):
        case [{"rhs": str(text), **rest}] if not rest:
            return text
    return ""


def _quoted(key: str, body: str) -> str | None:
    match = re.search(rf'\b{key}\s*::\s*"([^"]*)"\s*;', body)
    return match and match[1]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _unknown(what: str) -> DataError:
    return DataError(
        f"its {what} is neither that of ALFWorld's released games nor that of alfworld 0.4.2, the only ones that the "
        'native engine plays; engine="textworld" plays any'
    )
