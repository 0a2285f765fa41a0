"""ScienceWorld: experiments of primary-school science in a text world of ten places.

    > focus on metal pot containing water
    You focus on the water.

Texts, scores and ends are those of the package `scienceworld` (Wang and others 2022, https://sciworld.apps.allenai.org,
Apache-2.0), whose simulator is a Java program. Rows of the processed data release of Agent-R1 name the same tasks.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from agent_envs.checks import choice, string
from agent_envs.datasets.generated_tasks import parse_families
from agent_envs.datasets.scienceworld import VARIATIONS, ScienceTask, science_rows, science_task
from agent_envs.envs.replayed import ReplayedEnv, Trail
from agent_envs.envs.scienceworld_simulator import UNKNOWN, ScienceReply, Session, gold_path
from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.prompts.templates import NONE, PromptView, listed_lines, sections
from agent_envs.prompts.texts import released
from agent_envs.tasks import ListedTasks, TaskSource
from agent_envs.text_env import Outcome

REWARDS = ("score", "agentr1")
SIMPLIFICATIONS = ("teleportAction", "selfWateringFlowerPots", "openContainers", "openDoors", "noElectricalAction")
_WON = 10.0  # what the released recipe pays

SPLITS = ("train", "validation", "test", "test_in_train")

_COMMAND = re.compile(r"[ -~]{0,300}")
_OBJECT = re.compile(r"\bOBJ\b")


def variations(family: str, split: str) -> list[int]:
    """Return a family's variations in a split: the first half, the next quarter, the rest, or some of the rest.

    >>> [len(variations("boil", split)) for split in SPLITS]
    [14, 7, 9, 4]
    """
    total = VARIATIONS[family]
    quarter = total // 4
    first, last = {"train": (0, 2 * quarter), "validation": (2 * quarter, 3 * quarter)}.get(split, (3 * quarter, total))
    if split != "test_in_train":
        return list(range(first, last))
    # As released: of each family the three with the lowest hashes, of the first ten families four: 100 in all.
    by_hash = sorted(range(first, last), key=lambda each: hashlib.sha256(f"{family}:{each}".encode()).hexdigest())
    return sorted(by_hash[: 4 if sorted(VARIATIONS).index(family) < 10 else 3])


def scienceworld_prompt(view: PromptView) -> str:
    """Show the task, the steps so far, the last two with what they led to, the room, the actions and the objects."""
    turns = list(view.numbered())
    recent = (f"[Action {number}] {turn.action}\n{turn.observation}" for number, turn in turns[-2:])
    actions = [f"- {action}" for action in view.state["actions"]]
    return sections(
        ("Task", view.state["task"]),
        ("Earlier actions", "\n".join(f"[Action {number}] {turn.action}" for number, turn in turns[:-2]) or NONE),
        ("Last steps", "\n\n".join(recent) or NONE),
        ("Now", view.observation if view.steps else view.state["room"]),
        ("Actions (OBJ stands for the exact name of an object below)", "\n".join(actions)),
        ("Objects", "\n".join(f"- {name}" for name in view.state["objects"])),
    )


_FIELDS = {
    "goal": lambda view: view.state["task"],
    "observation": lambda view: view.state["room"] if view.observation == view.task else view.observation,
    "recent_steps": lambda view: view.recent_steps(first=view.state["room"]),
    "action_list": lambda view: listed_lines(view.state["actions"]),
    "object_list": lambda view: listed_lines(view.state["objects"]),
}


class ScienceWorldEnv(ReplayedEnv):
    """Do a primary-school science experiment with text commands.

    ## Description
    Ten places with things that can be opened, moved, mixed, heated, cooled, planted and wired up, and thirty families
    of tasks: boil a substance, grow a fruit, find out whether a thing conducts. The extra `suites` installs the
    simulator with a Java of its own.

    ## Action Space
    One command: an entry of `info["actions"]` with the names of objects for OBJ, such as `pick up thermometer` or
    `use thermometer on metal pot`. `focus on OBJ` names what the task asks for; a wrong object ends it. If a command is
    ambiguous, the next one is the number of a listed meaning.

    ## Observation Space
    Text, the simulator's own: the task and the room at reset, then the result of each command.

    ## Starting State
    A variation drawn from the split, or `options={"index": i}`.

    ## Rewards
    With `reward="score"`, what the command adds to the score: a solved task returns 1, and one that can no longer be
    solved ends with a score of -1. With `reward="agentr1"`, 10 for the command that solves the task, else 0.

    ## Episode End
    Terminates when the task is solved or can no longer be. Truncated after 100 steps, the package's own limit; after
    30 in the released recipe (`agentr1 play --recipe scienceworld`, docs/wrappers.md).

    ## Information
    `task_id`, `split`, `index`, `source`, `anchor` (the room, what is carried, the score), `invalid_action` (no action
    matches the command), `score` (0 to 1), `success` (the task is solved), `reward_components` (`score` or `solved`),
    `family`, `variation`, `simulator_score` (0 to 100, or -100), `actions` (the forms of commands, with OBJ for
    objects), `objects` (the names of what is in sight).

    ## Arguments
    `gym.make("AgentR1/ScienceWorld-v0", split="train", data="generated", families=None, simplifications="easy")`
    - `split`: "train", "validation", "test" or "test_in_train", the 100 tasks of the test split that the released
      recipe validates on.
    - `data`: "generated" for the package's own variations, or the path of released rows (.parquet) or of their folder.
    - `families`: names of the families to play; None for all thirty.
    - `simplifications`: "easy" for all, "" for none, or some, separated by commas: teleportAction,
      selfWateringFlowerPots, openContainers, openDoors, noElectricalAction.
    - `reward`: "score" or "agentr1".

    ## Data
    The package's own: 3,592 train, 1,796 validation and 1,819 test variations, the same as in the released rows. The
    simulator's sets are kept in the order in which they were filled, and the commands that can be carried out are not
    listed at each step, which would draw random numbers: the same commands give the same texts.
    """

    instructions = (
        "You do experiments in a text world. Write one command a turn and nothing else, such as: look around; "
        "inventory; open fridge; teleport to kitchen; pick up thermometer; move metal pot to stove; activate stove; "
        "use thermometer on water; wait; focus on water."
    )
    live_name = "ScienceWorld's simulator"
    recorded_arguments: ClassVar[tuple[str, ...]] = ("families", "simplifications", "reward")
    prompt_templates = {"scienceworld": scienceworld_prompt, "capo": released("scienceworld")}  # noqa: RUF012
    prompt_fields = _FIELDS

    def __init__(
        self,
        *,
        families: str | Iterable[str] | None = None,
        simplifications: str = "easy",
        reward: str = "score",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if importlib.util.find_spec("scienceworld") is None:
            raise MissingExtraError("scienceworld", extra="suites")
        self.families = parse_families(families, VARIATIONS)
        for name in filter(None, string("simplifications", simplifications).split(",")):
            choice("simplifications", name, ("easy", *SIMPLIFICATIONS))
        self.simplifications = simplifications
        self.reward = choice("reward", reward, REWARDS)
        _ = self.tasks  # opened here, so that gym.make refuses a wrong split or path

    def open_tasks(self) -> TaskSource:
        if self.data == "generated":
            choice("split", self.split, SPLITS)
            every = [
                science_task(family, each) for family in sorted(VARIATIONS) for each in variations(family, self.split)
            ]
            source: TaskSource = ListedTasks(every, "generated", self.split)
        else:
            source = science_rows(self.data, self.split)
        if set(self.families) >= set(VARIATIONS):
            return source
        chosen = [source[index] for index in range(len(source)) if source[index].family in self.families]
        if not chosen:
            raise ConfigError(f"the split {self.split!r} has no task of the families {', '.join(self.families)}")
        return ListedTasks(chosen, source.name, source.split)

    open_live = staticmethod(Session)

    def start_of(self, task: ScienceTask) -> tuple[str, int, str]:
        return task.family, task.variation, self.simplifications

    def begin(self, task: ScienceTask) -> tuple[str, Trail]:
        room, trail = super().begin(task)
        return f"{self.replayed.at(trail).task}\n\n{room}", trail

    def act(self, action: str) -> Outcome:
        before: ScienceReply = self.state.last
        command = action.strip()
        read = _COMMAND.fullmatch(command)
        after: ScienceReply = self.replayed.act(self.state, command) if read else replace(before, said=UNKNOWN)
        reward = (after.score - before.score) / 100 if self.reward == "score" else _WON * (after.score == 100)
        return Outcome(
            after.said,
            reward=reward,
            terminated=after.done,
            invalid_action=after.said == UNKNOWN,
            score=max(0, after.score) / 100,
            success=after.score == 100,
            components={"score" if self.reward == "score" else "solved": reward},
        )

    def anchor(self) -> str:
        last: ScienceReply = self.state.last
        return f"{last.look}\n{last.inventory}\nScore: {last.score}"

    def available_actions(self) -> list[str]:
        """Return the simulator's actions, each with three dots for the name of an object."""
        return [_OBJECT.sub("...", action) for action in self._session.actions]

    def prompt_state(self) -> dict[str, Any]:
        return {
            "task": self._session.task,
            "room": self.state.first.said,
            "actions": list(self._session.actions),
            "objects": list(self.state.last.objects),
        }

    @property
    def _session(self) -> Session:
        return self.replayed.at(self.state)

    def info(self, outcome: Outcome) -> dict[str, Any]:
        task: ScienceTask = self.task
        return super().info(outcome) | {
            "family": task.family,
            "variation": task.variation,
            "simulator_score": self.state.last.score,
            "actions": list(self._session.actions),
            "objects": list(self.state.last.objects),
        }

    def expert_action(self) -> str | None:
        """Return the next command of the simulator's own solution; None after a command that leads away from it."""
        trail: Trail = self.state
        path, taken, before = gold_path(trail.start), 0, trail.first
        for command, reply in trail.done:
            if taken < len(path) and command == path[taken]:
                taken += 1
            elif (reply.look, reply.inventory, reply.score) != (before.look, before.inventory, before.score):
                return None
            before = reply
        return path[taken] if taken < len(path) else None

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the expert's command or, with probability `noise`, a look at something."""
        right = self.expert_action()
        if right is None or rng.random() >= noise:
            return right
        return f"look at {rng.choice(self.state.last.objects)}"
