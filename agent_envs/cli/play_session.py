"""A person in an environment at the terminal: what `agentr1 play` shows, and what each line does."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs import branching
from agent_envs.cli.play_choices import Argument, Choice, choices, in_columns
from agent_envs.episodes.record import Episode, Step, StopReason, to_json_types
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError, did_you_mean
from agent_envs.files import JSONLines
from agent_envs.messages import latest_words, observation_text
from agent_envs.policies.terminal import read_text, show, tool_lines
from agent_envs.registration import env_name
from agent_envs.rewards import total
from agent_envs.text import plain

__all__ = ["COMMANDS", "PlaySession"]

COMMANDS = {
    "actions": "list all available actions",
    "expert": "show the expert's next action; /expert play takes it",
    "help": "list these commands",
    "history": "show the actions so far and their rewards",
    "info": "show the info of the last step",
    "instructions": "show the instructions and the tools again",
    "more": "show the last observation in full",
    "new": "end this episode and draw another task",
    "quit": "leave (Ctrl-D too)",
    "restart": "start this task again",
    "say": "/say TEXT takes TEXT as the action, even if it is a number or starts with a slash",
    "task": "/task N plays task N of the split",
    "undo": "take back the last action; /undo N takes back N",
}
"""The commands, which start with a slash; unambiguous abbreviations work."""

_MEANT = {"?": "help", "hint": "expert", "exit": "quit", **{name: name for name in COMMANDS}}
"""Words that a person writes for a command; none is an action unless the environment lists it."""
_SHOWN = 8000  # characters of an observation that are shown at once
_OVER = "The episode is over: /undo, /restart, /new, /task N or /quit."


@dataclass(frozen=True, slots=True)
class _Turn:
    """An action and the point at which it was chosen."""

    point: branching.EnvSnapshot | None  # None if the environment has no snapshots: the episode is replayed instead
    info: dict[str, Any]
    step: Step


class PlaySession:
    """Episodes that a person plays.

    Args:
        env: The environment in its wrappers.
        index: The first task, or None to draw one.
        seed: Seed of the first drawn task; the following tasks are drawn with the following seeds.
        save: The file to which every episode with an action is appended, or None.
    """

    def __init__(self, env: gym.Env[Any, str], *, index: int | None, seed: int, save: Path | None = None) -> None:
        self._env = env
        self._seed = seed
        self._save = save
        self._start: tuple[int, int | None] = (seed, index)  # seed and index of the current task
        self._turns: list[_Turn] = []
        self._observation: Any = ""
        self._info: dict[str, Any] = {}
        self._reset_info: dict[str, Any] = {}
        self._choices: list[Choice] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "actions": lambda rest: self._show_choices(most=10_000),
            "expert": lambda rest: self._expert(play=rest.startswith("p")),
            "help": lambda rest: _show_help(),
            "history": lambda rest: self._show_history(),
            "info": lambda rest: show(json.dumps(to_json_types(self._info), indent=1, ensure_ascii=False)),
            "instructions": lambda rest: self._show_instructions(),
            "more": lambda rest: show(observation_text(self._observation)),
            "new": lambda rest: self._new(),
            "restart": lambda rest: self._switch(self._start),
            "say": self._act,
            "task": lambda rest: self._task(_number(rest)),
            "undo": lambda rest: self._undo(_number(rest) if rest else 1),
        }
        self.played = self.solved = 0

    def run(self) -> None:
        """Play until the person leaves, the input ends, or Ctrl-C."""
        try:
            self._begin(self._start)
            self._show_instructions()
            self._show_state()
            while self._obey(read_text("over> " if self._over else f"{len(self._turns) + 1}> ")):
                pass
        except (EOFError, KeyboardInterrupt):
            show("")
        finally:
            self._end()

    def words(self) -> list[str]:
        """Return the lines that tab completion offers."""
        return [f"/{name}" for name in COMMANDS] + [choice.label for choice in self._choices if not choice.arguments]

    # -- lines -------------------------------------------------------------------------------------------------------

    def _obey(self, line: str) -> bool:
        """Do what a line asks for, and return whether to go on."""
        text = line.strip()
        if not text:
            self._show_choices()
        elif not text.startswith("/"):
            meant = _MEANT.get(text.lower())
            if meant is None or any(choice.label == text for choice in self._choices):
                self._choose(line)
            else:
                show(f"/{meant}: {COMMANDS[meant]}\n/say {text}: take this as your action")
        else:
            name, _, rest = text[1:].partition(" ")
            matching = [known for known in COMMANDS if known.startswith(name)] if name else ["help"]
            name = name if name in COMMANDS else matching[0] if len(matching) == 1 else name
            if name == "quit":
                return False
            if name in COMMANDS:
                self._commands[name](rest.strip())
            else:
                could = f" It could be {' or '.join(f'/{known}' for known in matching)}."
                show(f"There is no /{name}.{could if matching else did_you_mean(name, COMMANDS)}")
        return True

    def _choose(self, line: str) -> None:
        """Take a numbered choice, asking for its arguments, or else the line as the action."""
        number, _, rest = line.strip().partition(" ")
        chosen = _number(number) - 1
        choice = self._choices[chosen] if 0 <= chosen < len(self._choices) else None
        if choice is None and self._choices and number.removeprefix("-").isdecimal():
            show(f"The list goes from 1 to {len(self._choices)}; /say {line.strip()} takes this as your action.")
            return
        if choice is None or (rest and not choice.arguments):
            self._act(line)
            return
        values: dict[str, Any] = {}
        for argument in choice.arguments:
            text, rest = rest.strip(), ""
            try:
                value = argument.read(text) if text else _asked(argument)
            except ValueError as e:
                show(f"{argument.name}: {e}; nothing was done")
                return
            except KeyboardInterrupt:
                show("\nNothing was done.")
                return
            if value is not None:
                values[argument.name] = value
        self._act(choice.write(values))

    # -- the episode -------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return bool(self._turns) and (self._turns[-1].step.terminated or self._turns[-1].step.truncated)

    def _reset(self, start: tuple[int, int | None]) -> tuple[Any, dict[str, Any]]:
        seed, index = start
        return self._env.reset(seed=seed, options=None if index is None else {"index": index})

    def _begin(self, start: tuple[int, int | None]) -> None:
        observation, info = self._reset(start)
        self._end()
        self._start, self._reset_info = start, to_json_types(info)
        self._move_to(observation, info)

    def _move_to(self, observation: Any, info: dict[str, Any]) -> None:
        self._observation, self._info = observation, info
        self._choices = [] if self._over else choices(self._env)

    def _point(self) -> branching.EnvSnapshot | None:
        try:
            return branching.snapshot(self._env)
        except ConfigError:  # not a TextEnv
            return None

    def _return_to(self, point: branching.EnvSnapshot | None) -> None:
        """Bring the environment back to an earlier point: by its snapshot, or by replaying the remaining turns."""
        if point is not None:
            branching.restore(self._env, point)
            return
        self._reset(self._start)
        for turn in self._turns:
            self._env.step(turn.step.action)

    def _new(self) -> None:
        self._seed += 1
        self._switch((self._seed, None))

    def _task(self, index: int) -> None:
        if index < 0:
            show("/task takes the number of a task, such as /task 3")
        else:
            self._switch((self._start[0], index))

    def _switch(self, start: tuple[int, int | None]) -> None:
        point = self._point()
        try:
            self._begin(start)
        except AgentEnvsError as e:
            show(f"{e}")
            self._return_to(point)
        self._show_state()

    def _act(self, action: str) -> None:
        if self._over:
            show(_OVER)
            return
        point = self._point()
        before = to_json_types(self._observation)
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        except KeyboardInterrupt:
            show("\nStopped; the step is taken back.")
            self._return_to(point)
            return
        except Exception as e:  # noqa: BLE001  a step that fails must not cost the person the episode
            show(f"{type(e).__name__}: {e}\nThe step is taken back.")
            self._return_to(point)
            return
        cut = bool(truncated and not terminated)
        step = Step(before, action, float(reward), bool(terminated), cut, to_json_types(info))
        self._turns.append(_Turn(point, self._info, step))
        self._move_to(observation, info)
        self._show_state()

    def _undo(self, count: int) -> None:
        if not self._turns or count < 1:
            show("/undo takes the number of actions to take back." if self._turns else "There is nothing to take back.")
            return
        kept = max(0, len(self._turns) - count)
        first = self._turns[kept]
        del self._turns[kept:]
        self._return_to(first.point)
        self._move_to(first.step.observation, first.info)
        self._show_state()

    def _expert(self, *, play: bool) -> None:
        action = None
        if not self._over and self._env.has_wrapper_attr("expert_action"):
            action = self._env.get_wrapper_attr("expert_action")()
        show("There is no expert for this." if action is None else f"The expert: {action}")
        if play and action is not None:
            self._act(action)

    def _end(self) -> None:
        """Count and save the current episode if it has an action."""
        if not self._turns:
            return
        steps = tuple(turn.step for turn in self._turns)
        self.played += 1
        self.solved += bool(steps[-1].info.get("success", False))
        if self._save is not None:
            reason = StopReason.TERMINATED if steps[-1].terminated else StopReason.TRUNCATED
            episode = Episode(
                env_id=env_name(self._env),
                episode_id=uuid.uuid4().hex,
                group_id=str(self._reset_info.get("task_id", "")),
                seed=self._start[0],
                index=self._reset_info.get("index", self._start[1]),
                instructions=self._env.get_wrapper_attr("instructions"),
                tools=tuple(self._env.get_wrapper_attr("tools")),
                reset_info=self._reset_info,
                steps=steps,
                final_observation=to_json_types(self._observation),
                stop_reason=reason if self._over else StopReason.CUT,
            )
            try:
                JSONLines(self._save).append(episode.to_dict())
            except OSError as e:
                raise BackendError(f"the episode cannot be added to {self._save}: {e}") from e
        self._turns = []

    # -- the screen --------------------------------------------------------------------------------------------------

    def _show_instructions(self) -> None:
        spec = self._env.spec
        limit = "" if spec is None or spec.max_episode_steps is None else f", at most {spec.max_episode_steps} steps"
        show(f"{env_name(self._env)}{limit}. /help lists the commands.")
        if instructions := self._env.get_wrapper_attr("instructions"):
            show(f"\n{instructions}")
        if tools := self._env.get_wrapper_attr("tools"):
            show(f"\n{tool_lines(tools)}")

    def _show_state(self) -> None:
        """Show the observation, what the last action earned, and the available actions."""
        if not self._turns:
            name = self._info.get("task_id", "")
            show(f"\n--- task {name} (split {self._info.get('split', '?')}, index {self._info.get('index', '?')})")
        latest = latest_words(self._observation)
        before = len(self._observation) - len(latest)  # earlier messages, if the observation is a whole prompt
        text = observation_text(latest)
        earlier = f"[{before} messages before: /more]\n\n" if before else ""
        cut = f"\n[{len(text) - _SHOWN} more characters: /more]" if len(text) > _SHOWN else ""
        show(f"\n{earlier}{text[:_SHOWN]}{cut}\n")
        if self._turns:
            self._show_reward(self._turns[-1].step)
        if self._over:
            self._show_end(self._turns[-1].step)
        else:
            self._show_choices()

    def _show_reward(self, step: Step) -> None:
        notes = ["not a valid action"] if step.info.get("invalid_action") else []
        if step.reward:
            parts = (f"{name} {part:g}" for name, part in step.info.get("reward_components", {}).items() if part)
            components = ", ".join(parts)
            notes.append(f"reward {step.reward:g}" + (f" ({components})" if components else ""))
        if notes:
            show(f"[{'; '.join(notes)}]")

    def _show_end(self, step: Step) -> None:
        earned = total(turn.step.reward for turn in self._turns)
        solved = "solved" if step.info.get("success") else "not solved"
        limit = "" if step.terminated else ", the step limit is reached"
        steps = "1 step" if len(self._turns) == 1 else f"{len(self._turns)} steps"
        show(f"The episode is over after {steps}: {solved}{limit}. Return {earned:g}.")
        show("/undo, /restart, /new, /task N or /quit")

    def _show_choices(self, most: int = 60) -> None:
        labels = [" ".join(plain(choice.label).split()) for choice in self._choices]
        if labels:
            show(in_columns(labels, shutil.get_terminal_size().columns, most=most))

    def _show_history(self) -> None:
        if not self._turns:
            show("There are no actions yet.")
        for number, turn in enumerate(self._turns, start=1):
            action = " ".join(turn.step.action.split())
            show(f"{number:>3} {turn.step.reward:>8.3f}  {action[:160]}{'...' if len(action) > 160 else ''}")


def _show_help() -> None:
    width = max(map(len, COMMANDS)) + 3
    show("\n".join(f"{'/' + name:<{width}}{about}" for name, about in sorted(COMMANDS.items())))
    show("A number takes an action from the list; a line that is no command's name is your action, word for word.")
    show("A line that ends in a backslash continues on the next.")


def _number(text: str) -> int:
    """Return the number that a text is, -1 if it is something else or longer than any list of tasks."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _asked(argument: Argument) -> Any:
    """Ask for an argument; None if it is optional and the answer is empty.

    Raises:
        ValueError: The answer has the wrong type.
    """
    about = f" ({argument.about})" if argument.about else ""
    kind = "" if argument.kind in ("string", "value") else f" [{argument.kind}]"
    sys.stdout.flush()
    text = read_text(plain(f"  {argument.name}{kind}{about}: ").replace("\n", " "))
    if not text.strip() and not argument.required:
        return None
    return argument.read(text)
