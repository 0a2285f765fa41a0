"""A game at the terminal: lines in, what happens out."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence

from agent_envs.cli.play_game import Argument, PlayGame
from agent_envs.episodes.plain import to_json_types
from agent_envs.episodes.record import Step
from agent_envs.errors import AgentEnvsError, did_you_mean
from agent_envs.messages import latest_words, observation_text
from agent_envs.policies.terminal import PersonPictures, read_text, show, tool_lines
from agent_envs.registration import env_name
from agent_envs.rewards import total
from agent_envs.text import count_of

_SHOWN = 8000  # characters of an observation that are shown at once


class PlayTerminal:
    """Shows a game that has begun, and does what a person's lines say."""

    def __init__(self, game: PlayGame) -> None:
        self.game = game
        self._pictures = PersonPictures()

    def run(self) -> None:
        """Play until the person leaves, the input ends, or Ctrl-C."""
        game = self.game
        try:
            self.show_instructions()
            self._show_state()
            while self._obey(read_text("over> " if game.over else f"{len(game.turns) + 1}> ")):
                pass
        except (EOFError, KeyboardInterrupt):
            show("")

    def _obey(self, line: str) -> bool:
        """Do what a line asks for, and return whether to go on."""
        text = line.strip()
        if not text:
            self.show_choices()
        elif not text.startswith("/"):
            meant = _MEANT.get(text.lower())
            if meant is None or any(choice.label == text for choice in self.game.choices):
                self._choose(line)
            else:
                show(f"/{meant}: {COMMANDS[meant][0]}\n/say {text}: take this as your action")
        else:
            name, _, rest = text[1:].partition(" ")
            if name == "quit":
                return False
            if name in COMMANDS:
                COMMANDS[name][1](self, rest.strip())
            else:
                show(f"There is no /{name}.{did_you_mean(name, COMMANDS)}")
        return True

    def _choose(self, line: str) -> None:
        """Take a numbered choice, asking for its arguments, or else the line as the action."""
        game = self.game
        number, _, rest = line.strip().partition(" ")
        chosen = _number(number) - 1
        choice = game.choices[chosen] if 0 <= chosen < len(game.choices) else None
        if choice is None and game.choices and number.removeprefix("-").isdecimal():
            show(f"The list goes from 1 to {len(game.choices)}; /say {line.strip()} takes this as your action.")
        elif choice is None or (rest and not choice.arguments):
            self.move(lambda: game.act(line))
        else:
            texts = {argument.name: rest.strip() for argument in choice.arguments[:1]}
            try:
                texts |= {each.name: _asked(each) for each in choice.arguments if not texts.get(each.name)}
            except KeyboardInterrupt:
                show("\nNothing was done.")
            else:
                self.move(lambda: game.choose(chosen, texts))

    def move(self, move: Callable[[], None]) -> None:
        """Make a move and show what it led to, or why it cannot be made."""
        try:
            move()
        except AgentEnvsError as e:
            show(f"{e}")
        else:
            self._show_state()

    def expert(self, *, play: bool) -> None:
        """Show the expert's action, and take it."""
        try:
            action = self.game.expert()
        except AgentEnvsError as e:
            show(f"{e}")
            return
        show(f"The expert: {action}")
        if play:
            self.move(lambda: self.game.act(action))

    def show_instructions(self) -> None:
        """Show what the environment is, how to act in it, and its tools."""
        env = self.game.env
        limit = None if env.spec is None else env.spec.max_episode_steps
        most = "" if limit is None else f", at most {count_of(limit, 'step')}"
        show(f"{env_name(env)}{most}. /help lists the commands.")
        if instructions := env.get_wrapper_attr("instructions"):
            show(f"\n{instructions}")
        if tools := env.get_wrapper_attr("tools"):
            show(f"\n{tool_lines(tools)}")

    def _show_state(self) -> None:
        """Show the observation, what the last action earned, and the available actions."""
        game = self.game
        if not game.turns:
            where = f"split {game.info.get('split', '?')}, index {game.info.get('index', '?')}"
            show(f"\n--- task {game.info.get('task_id', '')} ({where})")
        latest = latest_words(game.observation)
        before = len(game.observation) - len(latest)  # earlier messages, if the observation is a whole prompt
        text = observation_text(latest)
        earlier = f"[{before} messages before: /more]\n\n" if before else ""
        cut = f"\n[{len(text) - _SHOWN} more characters: /more]" if len(text) > _SHOWN else ""
        show(f"\n{earlier}{text[:_SHOWN]}{cut}\n")
        self._pictures.show(latest)
        if game.turns and (notes := _notes(game.turns[-1].step)):
            show(f"[{'; '.join(notes)}]")
        if not game.over:
            if not game.turns or not all(choice.arguments for choice in game.choices):  # tools stay
                self.show_choices()
            return
        step, earned = game.turns[-1].step, total(turn.step.reward for turn in game.turns)
        solved = "solved" if step.info.get("success") else "not solved"
        limit = "" if step.terminated else ", the step limit is reached"
        show(f"The episode is over after {count_of(len(game.turns), 'step')}: {solved}{limit}. Return {earned:g}.")
        show("/undo, /restart, /new, /task N or /quit")

    def show_choices(self, most: int = 60) -> None:
        """Show what can be chosen, with its numbers."""
        if labels := [" ".join(choice.label.split()) for choice in self.game.choices]:
            show(in_columns(labels, shutil.get_terminal_size().columns, most=most))

    def show_history(self) -> None:
        if not self.game.turns:
            show("There are no actions yet.")
        for number, turn in enumerate(self.game.turns, start=1):
            action = " ".join(turn.step.action.split())
            show(f"{number:>3} {turn.step.reward:>8.3f}  {action[:160]}{'...' if len(action) > 160 else ''}")


def _show_help() -> None:
    width = max(map(len, COMMANDS)) + 3
    show("\n".join(f"{'/' + name:<{width}}{about}" for name, (about, _) in COMMANDS.items()))
    show("A number takes an action from the list; a line that is no command's name is your action, word for word.")
    show("A line that ends in a backslash continues on the next.")


COMMANDS: Mapping[str, tuple[str, Callable[[PlayTerminal, str], None]]] = {
    "actions": ("list all available actions", lambda face, rest: face.show_choices(most=10_000)),
    "expert": (
        "show the expert's next action; /expert play takes it",
        lambda face, rest: face.expert(play=rest.startswith("p")),
    ),
    "help": ("list these commands", lambda face, rest: _show_help()),
    "history": ("show the actions so far and their rewards", lambda face, rest: face.show_history()),
    "info": (
        "show the info of the last step",
        lambda face, rest: show(json.dumps(to_json_types(face.game.info), indent=1, ensure_ascii=False)),
    ),
    "instructions": ("show the instructions and the tools again", lambda face, rest: face.show_instructions()),
    "more": ("show the last observation in full", lambda face, rest: show(observation_text(face.game.observation))),
    "new": ("end this episode and draw another task", lambda face, rest: face.move(face.game.new)),
    "quit": ("leave (Ctrl-D too)", lambda face, rest: None),
    "restart": ("start this task again", lambda face, rest: face.move(face.game.restart)),
    "say": (
        "/say TEXT takes TEXT as the action, even if it is a number or starts with a slash",
        lambda face, rest: face.move(lambda: face.game.act(rest)),
    ),
    "task": ("/task N plays task N of the split", lambda face, rest: face.move(lambda: face.game.task(_number(rest)))),
    "undo": (
        "take back the last action; /undo N takes back N",
        lambda face, rest: face.move(lambda: face.game.undo(_number(rest or "1"))),
    ),
}
"""What the commands do, which start with a slash."""

_MEANT = {"?": "help", "hint": "expert", "exit": "quit", **{name: name for name in COMMANDS}}
"""Words that a person writes for a command; none is an action unless the environment lists it."""


def _notes(step: Step) -> list[str]:
    """Return what there is to say of a step beside its observation."""
    notes = ["not a valid action"] if step.info.get("invalid_action") else []
    if step.reward:
        parts = [f"{name} {part:g}" for name, part in step.info.get("reward_components", {}).items() if part]
        notes.append(f"reward {step.reward:g}" + (f" ({', '.join(parts)})" if parts else ""))
    return notes


def _number(text: str) -> int:
    """Return the number that a text is, -1 if it is something else or longer than any list of tasks."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _asked(argument: Argument) -> str:
    about = f" ({argument.about})" if argument.about else ""
    kind = "" if argument.kind in ("string", "value") else f" [{argument.kind}]"
    sys.stdout.flush()
    return read_text(f"  {argument.name}{kind}{about}: ".replace("\n", " "))


def in_columns(labels: Sequence[str], width: int, *, most: int = 60) -> str:
    """Number labels and arrange them in as many columns as fit, top to bottom; the rest is counted.

    >>> print(in_columns(["look", "go north", "go south"], 30))
    1 look      3 go south
    2 go north
    >>> print(in_columns(["a", "b", "c"], 9, most=2))
    1 a  2 b
    (1 more: /actions)
    """
    digits = len(str(min(len(labels), most)))
    shown = [f"{n:>{digits}} {label}" for n, label in enumerate(labels[:most], start=1)]
    widest = max(map(len, shown)) + 2
    columns = max(1, (width + 2) // widest)
    height = -(-len(shown) // columns)
    lines = ["".join(f"{label:<{widest}}" for label in shown[row::height]).rstrip() for row in range(height)]
    if len(labels) > most:
        lines.append(f"({len(labels) - most} more: /actions)")
    return "\n".join(lines)
