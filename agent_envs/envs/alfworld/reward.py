"""ALFWorld's score, the share of the goal's conditions that hold, after ALFRED's goal-condition success."""

from __future__ import annotations

from agent_envs.envs.alfworld.engine import GameState
from agent_envs.envs.alfworld.game import GroundedGame

_CHANGES = {
    "pick_clean_then_place_in_recep": "isclean",
    "pick_cool_then_place_in_recep": "iscool",
    "pick_heat_then_place_in_recep": "ishot",
}


def condition_rate(game: GroundedGame, state: GameState) -> float:
    """Return the share of the task's conditions that hold, from 0 to 1, counted as ALFRED does.

    - Placing: one condition.
    - Placing two: two, counted for the best receptacle.
    - Looking under a lamp: two, the thing in hand and the lamp here and on.
    - Cleaning, cooling and heating: three; a thing of the kind in place, one that is clean, cool or hot, and one that
      is both.
    - Other games: the parts of the goal.
    """
    things, receptacles = game.wanted
    if game.family == "pick_two_obj_and_place":
        most = max((sum(o in things for o in state.contents.get(r, ())) for r in receptacles), default=0)
        return min(most, 2) / 2
    mark = _CHANGES.get(game.family)
    if mark is None:
        return sum(state.met) / len(state.met)
    placed = [o for r in receptacles for o in state.contents.get(r, ()) if o in things]
    changed = any((mark, o) in state.marks for o in things)
    return (bool(placed) + changed + any((mark, o) in state.marks for o in placed)) / 3
