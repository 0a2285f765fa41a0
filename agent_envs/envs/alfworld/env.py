"""ALFWorld, household tasks in a text world: find, clean, heat, cool, look at and put away things.

    -= Welcome to TextWorld, ALFRED! =-

    You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, and a fridge 1.

    Your task is to: put a clean mug in cabinet.

Texts, commands, rewards and the end of an episode follow the game files and the engine of the alfworld package
(`AlfredTWEnv`), command for command. `agent_envs.envs.alfworld.engine` is that engine in plain Python;
`engine="textworld"` plays on the original.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from agent_envs.checks import boolean, choice, shown
from agent_envs.datasets.alfworld.generated.tasks import DEFAULT_SIZE, GeneratedGame, GeneratedHouses
from agent_envs.datasets.alfworld.problem import FAMILIES
from agent_envs.datasets.alfworld.rows import GAME_FILE, Game, Games, alfworld_games, find_folder
from agent_envs.datasets.generated_tasks import parse_families
from agent_envs.datasets.paths import data_name
from agent_envs.envs.alfworld.engine import NOTHING, GameState, begin, intro, play
from agent_envs.envs.alfworld.explore import EXPERTS, explore_action, wrong_command
from agent_envs.envs.alfworld.game import GroundedGame
from agent_envs.envs.alfworld.oracle import oracle_action
from agent_envs.envs.alfworld.prompt import AGENT_R1, CAPO, FIELDS, alfworld_prompt
from agent_envs.envs.alfworld.reward import condition_rate
from agent_envs.envs.alfworld.session import SessionState, anchor_text, document, game_key, grounded_game
from agent_envs.envs.alfworld.textworld import TextWorldEpisode, episode_at
from agent_envs.errors import ConfigError, DataError, TaskIndexError
from agent_envs.tasks import TaskSource
from agent_envs.text_env import Outcome, TextEnv

ENGINES = ("native", "textworld")
_GENERATED = re.compile(rf"/trial_G([0-9]{{6}})(/{re.escape(GAME_FILE)}|)$")
_PUT = re.compile(r"(?:put (.+) (?:in/on|in|on)|move (.+) to) (.+)")


class ALFWorldEnv(TextEnv):
    """Do a household task with text commands.

    ## Description
    A room full of receptacles, some of them closed, with things in and on them. The task is to put a thing somewhere
    (clean, hot, cool, or two of a kind), or to look at it under a lamp. Where things are has to be explored.

    ## Action Space
    One command from `info["admissible_commands"]`: `go to X`, `open X`, `close X`, `take O from X`, `move O to X` (in
    the released files `put O in/on X`), `clean O with X`, `heat O with X`, `cool O with X`, `use O`, `slice O with O2`,
    `examine X`, `inventory`, `look`, and `help` in some games. Case matters; blanks around the command do not. With
    `put_alias=True` all wordings for putting something down are accepted.

    ## Observation Space
    Text, byte for byte the original's: the room and the task at reset, then the result of each command. A command that
    is not admissible is answered by "Nothing happens.".

    ## Starting State
    A game drawn from the split, `options={"index": i}`, or `options={"game": path}` with a path as in `info["game"]`.

    ## Rewards
    1 for the command that reaches the goal, else 0.

    ## Episode End
    Terminates when the goal is reached. Truncated after 50 steps; after 20 in the released recipes
    (`agentr1 play --recipe alfworld`, docs/wrappers.md), where a text without a command counts too.

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the task, the view, the hands, and all changes since the start),
    `invalid_action` (the command was not admissible), `score` (`goal_condition_rate`), `success` (the game is won),
    `reward_components` (`won`), `game` (path of the game within the data folder), `admissible_commands` (sorted),
    `goal_condition_rate` (the share of the task's conditions that hold, counted as in ALFRED), `task_family`.

    ## Arguments
    `gym.make("AgentR1/ALFWorld-v0", split="train", data="generated", size="2-4", engine="native", strict=False)`
    - `split`: "train", "valid_seen", "valid_unseen", or another sub-folder of the data; "validation" and "test" mean
      the second and the third.
    - `data`: "generated", "official" (after `agentr1 prepare alfworld`) or the path of the folder that contains
      train/, valid_seen/ and so on (json_2.1.1), or of one of Agent-R1's data release: train.parquet and games/.
    - `families`: names of the families to play; None for all six: look_at_obj_in_light, pick_and_place_simple,
      pick_clean_then_place_in_recep, pick_cool_then_place_in_recep, pick_heat_then_place_in_recep,
      pick_two_obj_and_place.
    - `size`: size of generated houses, 1 to 5 or a range: about 7, 11, 16, 24 or 37 receptacles.
    - `engine`: "native", or "textworld", the original (extra `alfworld`), with the same texts but about 100 times
      slower.
    - `strict`: whether commands with blanks around them are not admissible.
    - `put_alias`: whether `put O in X`, `put O on X`, `put O in/on X` and `move O to X` mean the same.
    - `unsolvable`: whether to include released games that are marked as unsolvable.
    - `expert`: "explore", which acts only on what it has read and searches first where things usually are; or "oracle",
      which sees the whole state and follows shortest plans.

    ## Data
    Generated: 100,000 train, 1,000 valid_seen (scenes of train) and 1,000 valid_unseen tasks (scenes of their own), all
    solvable. Official: the games of ALFWorld (Shridhar et al. 2021, https://alfworld.github.io, MIT licence), made from
    ALFRED (Shridhar et al. 2020, MIT licence), sorted by path: those that are marked as solvable and have no movable
    receptacles and no slicing.
    """

    instructions = (
        "You act in a household by text commands, one a turn, to do the task that is given. Write the command alone, "
        "such as: go to countertop 1; open fridge 1; take mug 1 from countertop 1; clean mug 1 with sinkbasin 1; heat "
        "mug 1 with microwave 1; cool mug 1 with fridge 1; move mug 1 to cabinet 1; use desklamp 1; examine mug 1; "
        "inventory; look."
    )
    recorded_arguments = ("families", "size", "engine", "strict", "put_alias", "unsolvable", "expert")
    reset_options: ClassVar[tuple[str, ...]] = ("index", "game")
    prompt_templates = {"alfworld": alfworld_prompt, "capo": CAPO, "agent-r1": AGENT_R1}  # noqa: RUF012
    prompt_fields = FIELDS

    def __init__(
        self,
        *,
        families: str | Iterable[str] | None = None,
        size: int | str | Sequence[int] = DEFAULT_SIZE,
        engine: str = "native",
        strict: bool = False,
        put_alias: bool = False,
        unsolvable: bool = False,
        expert: str = "explore",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        data = data_name(self.data)
        self.families = parse_families(families, FAMILIES)
        if data == "generated":
            GeneratedHouses(self.split, size, self.families)
        else:
            if size != DEFAULT_SIZE:
                raise ConfigError(f"size={size!r} applies only to data='generated'; leave it out for data={data!r}")
            find_folder(data)
        self.size = size
        self.engine = choice("engine", engine, ENGINES)
        self.strict = boolean("strict", strict)
        self.put_alias = boolean("put_alias", put_alias)
        self.unsolvable = boolean("unsolvable", unsolvable)
        self.expert = choice("expert", expert, EXPERTS)
        self._episode: TextWorldEpisode | None = None  # the last one on TextWorld
        self._grounded: tuple[Any, GroundedGame | None] = (None, None)  # a task and its game

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            return GeneratedHouses.shared(self.split, self.size, self.families)
        return alfworld_games(self.data, self.split, self.families, unsolvable=self.unsolvable)

    def _chosen_index(self, options: dict[str, Any], count: int) -> int | None:
        game = options.get("game")
        if game is None:
            return super()._chosen_index(options, count)
        if options.get("index") is not None:
            raise ConfigError("reset options may contain 'index' or 'game', not both")
        if not isinstance(game, (str, os.PathLike)):
            raise ConfigError(f"options['game'] must be a path such as info['game'], got {shown(game)}")
        path = os.fspath(game)
        if isinstance(self.tasks, Games):
            return self.tasks.find(path)
        match = _GENERATED.search(path)
        if match is None or int(match[1]) >= count or self.tasks[int(match[1])].game != path.removesuffix(match[2]):
            raise TaskIndexError(
                f"the generated split {self.split!r} has no game {path!r}; expected a path such as info['game']"
            )
        return int(match[1])

    def begin(self, task: Game | GeneratedGame) -> tuple[str, SessionState]:
        if self.engine == "native":
            game = self._game(task)
            assert game is not None  # else its error was raised
            state = begin(game)
            return intro(game, state), SessionState(state)
        key = f"{task.task_id}\n{game_key(task)}"
        self._episode = episode = episode_at(key, (), lambda: document(task), left=self._episode)
        game = self._game(task)
        return episode.text, SessionState(None if game is None else begin(game), episode)

    def _game(self, task: Game | GeneratedGame) -> GroundedGame | None:
        """Return a task's grounded game, or None if only TextWorld can play it."""
        if self._grounded[0] is not task:
            try:
                self._grounded = task, grounded_game(task)
            except DataError:
                if self.engine == "native":
                    raise
                self._grounded = task, None
        return self._grounded[1]

    def _native(self) -> tuple[GroundedGame, GameState] | None:
        """Return the game and its state on the native engine; None if only TextWorld can play it."""
        game, state = self._game(self.task), self.state.native
        return None if game is None or state is None else (game, state)

    def act(self, action: str) -> Outcome:
        state: SessionState = self.state
        command = self._as_listed(action) if self.put_alias else action
        admissible = (command if self.strict else command.strip()) in state.commands
        if self.strict and not admissible:
            return Outcome(NOTHING, invalid_action=True, score=self._score(), components={"won": 0.0})
        native = self._native()
        observation = "" if native is None else play(*native, command)
        if (before := state.textworld) is not None:
            way = (*before.history, command)
            state.textworld = self._episode = episode_at(before.game, way, lambda: document(self.task))
            observation = state.textworld.text
        reward = float(state.won)  # which the released engine decides
        return Outcome(
            observation,
            reward=reward,
            terminated=state.won,
            invalid_action=not admissible,
            score=self._score(),
            success=state.won,
            components={"won": reward},
        )

    def _as_listed(self, action: str) -> str:
        """Return the admissible command for putting something down, if the action words it differently."""
        if match := _PUT.fullmatch(action.strip()):
            thing, receptacle = match[1] or match[2], match[3]
            for command in (f"put {thing} in/on {receptacle}", f"move {thing} to {receptacle}"):
                if command in self.state.commands:
                    return command
        return action

    def _score(self) -> float:
        native = self._native()
        return float(self.state.won) if native is None else condition_rate(*native)

    def anchor(self) -> str:
        native = self._native()  # of a game that only TextWorld plays, the admissible commands
        return "\n".join(self.state.commands) if native is None else anchor_text(*native)

    def available_actions(self) -> list[str]:
        return list(self.state.commands)

    def info(self, outcome: Outcome) -> dict[str, Any]:
        task: Game | GeneratedGame = self.task
        return super().info(outcome) | {
            "split": self.split,
            "game": f"{task.game}/{GAME_FILE}",
            "admissible_commands": list(self.state.commands),
            "goal_condition_rate": self._score(),
            "task_family": task.family,
        }

    def expert_action(self) -> str | None:
        """Return the expert's next command, or None.

        `explore` has none for a task whose wording it does not know, `oracle` for a game that only TextWorld plays.
        """
        if self.state.won:
            return None
        if self.expert == "explore":
            return explore_action(self._transcript, self.state.commands)
        native = self._native()
        return None if native is None else oracle_action(*native)

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the expert's command or, with probability `noise`, another admissible one, most often a `go to`."""
        right = self.expert_action()
        if right is None or rng.random() >= noise:
            return right
        return wrong_command(rng, self.state.commands, right)
