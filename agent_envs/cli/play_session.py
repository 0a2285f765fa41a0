"""A person in an environment at the terminal: what `agentr1 play` shows, and what each line does."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from typing import Any

from agent_envs.cli.play_choices import Argument, in_columns
from agent_envs.cli.play_game import PlayGame, StepFailedError
from agent_envs.episodes.plain import to_json_types
from agent_envs.episodes.record import Step
from agent_envs.errors import AgentEnvsError, ConfigError, did_you_mean
from agent_envs.messages import latest_words, observation_text
from agent_envs.policies.terminal import read_text, show, tool_lines
from agent_envs.policies.terminal_pictures import PersonPictures
from agent_envs.registration import env_name
from agent_envs.rewards import total

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


class PlaySession:
    """A game at the terminal: lines in, what happens out."""

    def __init__(self, game: PlayGame) -> None:
        self._game = game
        self._env = game.env
        self._pictures = PersonPictures()
        self._commands: dict[str, Callable[[str], None]] = {
            "actions": lambda rest: self._show_choices(most=10_000),
            "expert": lambda rest: self._expert(play=rest.startswith("p")),
            "help": lambda rest: _show_help(),
            "history": lambda rest: self._show_history(),
            "info": lambda rest: show(json.dumps(to_json_types(game.info), indent=1, ensure_ascii=False)),
            "instructions": lambda rest: self._show_instructions(),
            "more": lambda rest: show(observation_text(game.observation)),
            "new": lambda rest: self._switch(game.new),
            "restart": lambda rest: self._switch(game.restart),
            "say": self._act,
            "task": lambda rest: self._task(_number(rest)),
            "undo": lambda rest: self._undo(_number(rest) if rest else 1),
        }

    def run(self) -> None:
        """Play a game that has begun, until the person leaves, the input ends, or Ctrl-C."""
        game = self._game
        try:
            self._show_instructions()
            self._show_state()
            while self._obey(read_text("over> " if game.over else f"{len(game.turns) + 1}> ")):
                pass
        except (EOFError, KeyboardInterrupt):
            show("")
        finally:
            game.end()

    def words(self) -> list[str]:
        """Return the lines that tab completion offers."""
        return [f"/{name}" for name in COMMANDS] + [
            choice.label for choice in self._game.choices if not choice.arguments
        ]

    # -- lines -------------------------------------------------------------------------------------------------------

    def _obey(self, line: str) -> bool:
        """Do what a line asks for, and return whether to go on."""
        text = line.strip()
        if not text:
            self._show_choices()
        elif not text.startswith("/"):
            meant = _MEANT.get(text.lower())
            if meant is None or any(choice.label == text for choice in self._game.choices):
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
        choice = self._game.choices[chosen] if 0 <= chosen < len(self._game.choices) else None
        if choice is None and self._game.choices and number.removeprefix("-").isdecimal():
            show(f"The list goes from 1 to {len(self._game.choices)}; /say {line.strip()} takes this as your action.")
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

    def _task(self, index: int) -> None:
        if index < 0:
            show("/task takes the number of a task, such as /task 3")
        else:
            self._switch(lambda: self._game.task(index))

    def _switch(self, switch: Callable[[], None]) -> None:
        try:
            switch()
        except AgentEnvsError as e:
            show(f"{e}")
        self._show_state()

    def _act(self, action: str) -> None:
        try:
            self._game.act(action)
        except (ConfigError, StepFailedError) as e:
            show(f"{e}")
        else:
            self._show_state()

    def _undo(self, count: int) -> None:
        if not self._game.turns or count < 1:
            some = "/undo takes the number of actions to take back."
            show(some if self._game.turns else "There is nothing to take back.")
            return
        self._game.undo(count)
        self._show_state()

    def _expert(self, *, play: bool) -> None:
        action = self._game.expert()
        show("There is no expert for this." if action is None else f"The expert: {action}")
        if play and action is not None:
            self._act(action)

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
        if not self._game.turns:
            info = self._game.info
            where = f"split {info.get('split', '?')}, index {info.get('index', '?')}"
            show(f"\n--- task {info.get('task_id', '')} ({where})")
        latest = latest_words(self._game.observation)
        before = len(self._game.observation) - len(latest)  # earlier messages, if the observation is a whole prompt
        text = observation_text(latest)
        earlier = f"[{before} messages before: /more]\n\n" if before else ""
        cut = f"\n[{len(text) - _SHOWN} more characters: /more]" if len(text) > _SHOWN else ""
        show(f"\n{earlier}{text[:_SHOWN]}{cut}\n")
        self._pictures.show(latest)
        if self._game.turns:
            self._show_reward(self._game.turns[-1].step)
        if self._game.over:
            self._show_end(self._game.turns[-1].step)
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
        earned = total(turn.step.reward for turn in self._game.turns)
        solved = "solved" if step.info.get("success") else "not solved"
        limit = "" if step.terminated else ", the step limit is reached"
        steps = "1 step" if len(self._game.turns) == 1 else f"{len(self._game.turns)} steps"
        show(f"The episode is over after {steps}: {solved}{limit}. Return {earned:g}.")
        show("/undo, /restart, /new, /task N or /quit")

    def _show_choices(self, most: int = 60) -> None:
        labels = [" ".join(choice.label.split()) for choice in self._game.choices]
        if labels:
            show(in_columns(labels, shutil.get_terminal_size().columns, most=most))

    def _show_history(self) -> None:
        if not self._game.turns:
            show("There are no actions yet.")
        for number, turn in enumerate(self._game.turns, start=1):
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
    text = read_text(f"  {argument.name}{kind}{about}: ".replace("\n", " "))
    if not text.strip() and not argument.required:
        return None
    return argument.read(text)
