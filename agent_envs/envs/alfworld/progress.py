"""How far an ALFWorld game has come, as a number and as a text without history."""

from __future__ import annotations

from agent_envs.envs.alfworld.engine import GameState, play
from agent_envs.envs.alfworld.game import House

__all__ = ["anchor", "condition_rate"]

_CHANGES = {
    "pick_clean_then_place_in_recep": "isclean",
    "pick_cool_then_place_in_recep": "iscool",
    "pick_heat_then_place_in_recep": "ishot",
}
_WORDS = {"isclean": "Clean", "iscool": "Cool", "ishot": "Hot", "issliced": "Sliced", "istoggled": "Used"}


def condition_rate(house: House, state: GameState) -> float:
    """The share of the task's conditions that hold, in [0, 1], counted as ALFRED does.

    Placing has one condition; placing two has two, for the best receptacle; looking under a lamp has two, the thing in
    hand and the lamp on and here; cleaning, cooling and heating have three: a thing of the kind in place, one that is
    clean, cool or hot, and one that is both. Other games: the share of their goal's parts.
    """
    things, receptacles = house.wanted
    if house.family == "pick_two_obj_and_place":
        most = max((sum(o in things for o in state.contents.get(r, ())) for r in receptacles), default=0)
        return min(most, 2) / 2
    mark = _CHANGES.get(house.family)
    if mark is None:
        return sum(state.met) / len(state.met)
    placed = [o for r in receptacles for o in state.contents.get(r, ()) if o in things]
    changed = any((mark, o) in state.marks for o in things)
    return (bool(placed) + changed + any((mark, o) in state.marks for o in placed)) / 3


def anchor(house: House, state: GameState) -> str:
    """The state in words, the same however it was reached: the task, the view, the hands, and what is not as it was."""
    here = house.here.get(state.place, ())
    lines = [
        f"Your task is to: {house.task}.",
        play(house, state, "look"),
        *(play(house, state, f"examine {receptacle}") for receptacle in here),
        play(house, state, "inventory"),
    ]
    if state.opened:
        lines.append(f"Open: {', '.join(sorted(state.opened))}.")
    if state.moved:
        lines.append("Moved: " + ", ".join(f"{o} to {r}" for o, r in sorted(state.moved.items())) + ".")
    marks = sorted(state.marks)
    for mark, word in _WORDS.items():
        things = [thing for one, thing in marks if one == mark]
        if things:
            lines.append(f"{word}: {', '.join(things)}.")
    return "\n".join(lines)
