"""ALFWorld, household tasks in a text world: find, clean, heat, cool, look at and put away things.

    -= Welcome to TextWorld, ALFRED! =-

    You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, and a fridge 1.

    Your task is to: put a clean mug in cabinet.

Texts, commands, reward and end follow the game files and the engine of the alfworld package (`AlfredTWEnv`), command for
command: `agent_envs.envs.alfworld_engine` is that engine in plain Python, `engine="textworld"` the original.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium.envs.registration import EnvSpec

from agent_envs.datasets.alfworld_games import GAME_FILE, Game, Games, alfworld_games, check_families, load_problem
from agent_envs.datasets.alfworld_problem import Problem
from agent_envs.envs.alfworld_engine import NOTHING, GameState, begin, intro, play
from agent_envs.envs.alfworld_house import House
from agent_envs.envs.alfworld_textworld import Episode, Seat, begin_episode, play_episode
from agent_envs.envs.alfworld_view import anchor, condition_rate
from agent_envs.errors import ConfigError, DataError, did_you_mean
from agent_envs.text_env import Outcome, TaskSource, TextEnv

__all__ = ["ALFWorldEnv"]

ENGINES = ("native", "textworld")
EXPERTS = ("explore", "oracle")
_HOUSES = 16  # kept per process: about 100 kB each
_ALIAS = re.compile(r"(?:put (.+) (?:in/on|in|on)|move (.+) to) (.+)")

_houses: OrderedDict[tuple[str, int], House] = OrderedDict()
_houses_lock = threading.Lock()


def _house(key: str, changed: int, problem: Any, where: str) -> House:
    """The house of a game, made once and kept while it is among those last used."""
    with _houses_lock:
        house = _houses.get((key, changed))
        if house is not None:
            _houses.move_to_end((key, changed))
            return house
    house = House(problem(), where)
    with _houses_lock:
        _houses[key, changed] = house
        while len(_houses) > _HOUSES:
            _houses.popitem(last=False)
    return house
