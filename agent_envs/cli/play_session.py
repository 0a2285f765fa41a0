"""A person in an environment at the terminal: what `agentr1 play` shows, and what each line does."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
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
from agent_envs.text import plain

__all__ = ["COMMANDS", "Session"]

COMMANDS = {
    "actions": "list all actions on offer",
    "expert": "show what the expert would do next; /expert play does it",
    "help": "list these commands",
    "history": "what was done so far, and the rewards",
    "info": "everything the environment says beside its words",
    "instructions": "show how to act again, and the tools",
    "more": "show the last observation whole",
    "new": "end this episode and draw another task",
    "quit": "leave (Ctrl-D too)",
    "restart": "begin this task again",
    "say": "/say TEXT is TEXT as it stands, even a number or what begins with a slash",
    "task": "/task N plays task N of the split",
    "undo": "take the last action back; /undo N the last N",
}
"""What a line that begins with a slash can ask for; beginnings of the names are enough."""

_SHOWN = 8000  # characters of an observation that are shown at once


@dataclass(frozen=True, slots=True)
class _Turn:
    """An action, and the point it was chosen at."""

    point: branching.EnvSnapshot | None  # None where the environment cannot be branched: the episode is played again
    info: dict[str, Any]
    step: Step


class Session:
    """Episodes that a person plays.

    Args:
        env: The environment in its wrappers.
        index: The task to begin with, or None to draw one.
        seed: Seed of the first task that is drawn; the next are drawn with the seeds after it.
        save: The file that every episode with an action is added to, or None.
    """

    def __init__(self, env: gym.Env[Any, str], *, index: int | None, seed: int, save: Path | None = None) -> None:
        self._env = env
        self._seed = seed
        self._save = save
        self._start: tuple[int, int | None] = (seed, index)  # the seed and the index of the task at hand
        self._turns: list[_Turn] = []
        self._observation: Any = ""
        self._info: dict[str, Any] = {}
        self._reset_info: dict[str, Any] = {}
        self._choices: list[Choice] = []
        self.played = self.solved = 0

    def run(self) -> None:
        """Play until the person leaves, the lines end, or Ctrl-C.

        Raises:
            AgentEnvsError: The first task cannot be begun.
        """
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
        """What a line may be, for completion."""
        return [f"/{name}" for name in COMMANDS] + [choice.label for choice in self._choices if not choice.arguments]

    # -- lines -----------------------------------------------------------------------------------------------------

    def _obey(self, line: str) -> bool:
        """Do what a line asks for; whether to go on."""
        text = line.strip()
        if not text.startswith("/"):
            if self._over and text:
                show("The episode is over: /undo, /restart, /new, /task N or /quit.")
            elif text:
                self._choose(line)
            else:
                self._show_choices()
            return True
        name, _, rest = text[1:].partition(" ")
        found = [known for known in COMMANDS if known.startswith(name)] if name else ["help"]
        name = name if name in COMMANDS else found[0] if len(found) == 1 else name
        if name == "quit":
            return False
        if name not in COMMANDS:
            hint = f" It could be {' or '.join(f'/{f}' for f in found)}." if found else did_you_mean(name, COMMANDS)
            show(f"There is no /{name}.{hint}")
        else:
            self._command(name, rest.strip())
        return True

    def _command(self, name: str, rest: str) -> None:
        if name == "say":
            self._act(rest)
        elif name == "undo":
            self._undo(_number(rest) if rest else 1)
        elif name == "expert":
            self._expert(play=rest.startswith("p"))
        elif name in ("new", "restart", "task"):
            self._another(name, rest)
        elif name == "history":
            self._show_history()
        elif name == "actions":
            self._show_choices(most=10_000)
        elif name == "more":
            show(observation_text(self._observation))
        elif name == "info":
            show(json.dumps(to_json_types(self._info), indent=1, ensure_ascii=False))
        elif name == "instructions":
            self._show_instructions()
        else:
            width = max(map(len, COMMANDS)) + 3
            show("\n".join(f"{'/' + name:<{width}}{about}" for name, about in sorted(COMMANDS.items())))
            show("A number chooses an action of the list; everything else is what you do, word for word.")
            show("A line that ends in a backslash goes on in the next.")

    def _choose(self, line: str) -> None:
        """Carry out a numbered choice, asking for its arguments, or the line as it stands."""
        number, _, rest = line.strip().partition(" ")
        chosen = _number(number) - 1
        if not 0 <= chosen < len(self._choices):
            self._act(line)
            return
        choice = self._choices[chosen]
        if rest and not choice.arguments:
            self._act(line)
            return
        values: dict[str, Any] = {}
        for argument in choice.arguments:
            given, rest = rest.strip(), ""
            try:
                value = argument.read(given) if given else _asked(argument)
            except ValueError as e:
                show(f"{argument.name}: {e}; nothing was done")
                return
            except KeyboardInterrupt:
                show("\nNothing was done.")
                return
            if value is not None:
                values[argument.name] = value
        self._act(choice.write(values))

    # -- what happens ------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return bool(self._turns) and (self._turns[-1].step.terminated or self._turns[-1].step.truncated)

    def _begin(self, start: tuple[int, int | None]) -> None:
        observation, info = self._reset(start)
        self._end()
        self._observation, self._info = observation, info
        self._start, self._reset_info = start, to_json_types(info)
        self._offer()

    def _reset(self, start: tuple[int, int | None]) -> tuple[Any, dict[str, Any]]:
        seed, index = start
        return self._env.reset(seed=seed, options=None if index is None else {"index": index})

    def _point(self) -> branching.EnvSnapshot | None:
        try:
            return branching.snapshot(self._env)
        except ConfigError:  # no TextEnv
            return None

    def _another(self, name: str, rest: str) -> None:
        before = self._start
        task = _number(rest)
        if name == "task" and task < 0:
            show("/task takes the number of a task, such as /task 3")
            return
        if name == "new":
            self._seed += 1
        start = {"new": (self._seed, None), "restart": before, "task": (before[0], task)}[name]
        point = self._point()
        try:
            self._begin(start)
        except AgentEnvsError as e:
            show(f"{e}")
            self._return_to(point)
        self._show_state()

    def _act(self, action: str) -> None:
        if self._over:
            show("The episode is over: /undo, /restart, /new, /task N or /quit.")
            return
        point = self._point()
        seen = to_json_types(self._observation)
        try:
            observation, reward, terminated, truncated, info = self._env.step(action)
        except KeyboardInterrupt:
            show("\nStopped; the step is taken back.")
            self._return_to(point)
            return
        except Exception as e:  # noqa: BLE001  what a step cannot do must not cost the person the episode
            show(f"{type(e).__name__}: {e}\nThe step is taken back.")
            self._return_to(point)
            return
        step = Step(
            seen, action, float(reward), bool(terminated), bool(truncated and not terminated), to_json_types(info)
        )
        self._turns.append(_Turn(point, self._info, step))
        self._observation, self._info = observation, info
        self._offer()
        self._show_state()

    def _undo(self, count: int) -> None:
        if not self._turns or count < 1:
            show("/undo takes how many actions to take back." if self._turns else "There is nothing to take back.")
            return
        first = self._turns[-min(count, len(self._turns))]
        del self._turns[-min(count, len(self._turns)) :]
        self._return_to(first.point)
        self._observation, self._info = first.step.observation, first.info
        self._offer()
        self._show_state()

    def _return_to(self, point: branching.EnvSnapshot | None) -> None:
        """Bring the environment back to before a step: exactly, or by playing the episode again up to there."""
        if point is not None:
            branching.restore(self._env, point)
            return
        self._reset(self._start)
        for turn in self._turns:
            self._env.step(turn.step.action)

    def _expert(self, *, play: bool) -> None:
        action = None
        if not self._over and self._env.has_wrapper_attr("expert_action"):
            action = self._env.get_wrapper_attr("expert_action")()
        if action is None:
            show("There is no expert for this.")
            return
        show(f"The expert: {action}")
        if play:
            self._act(action)

    def _offer(self) -> None:
        self._choices = [] if self._over else choices(self._env)

    def _end(self) -> None:
        """Count the episode at hand, and save it, if anything was done in it."""
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

    # -- what is shown -------------------------------------------------------------------------------------------------

    def _show_instructions(self) -> None:
        spec = self._env.spec
        limit = "" if spec is None or spec.max_episode_steps is None else f", at most {spec.max_episode_steps} steps"
        show(f"{env_name(self._env)}{limit}. /help lists what else you can write.")
        if told := self._env.get_wrapper_attr("instructions"):
            show(f"\n{told}")
        if tools := self._env.get_wrapper_attr("tools"):
            show(f"\n{tool_lines(tools)}")

    def _show_state(self) -> None:
        """The observation, what the last action earned, and what can be done."""
        if not self._turns:
            name = self._info.get("task_id", "")
            show(f"\n--- task {name} (split {self._info.get('split', '?')}, index {self._info.get('index', '?')})")
        latest = latest_words(self._observation)
        before = len(self._observation) - len(latest)  # messages of a whole prompt
        text = observation_text(latest)
        earlier = f"[{before} messages before: /more]\n\n" if before else ""
        cut = f"\n[{len(text) - _SHOWN} more characters: /more]" if len(text) > _SHOWN else ""
        show(f"\n{earlier}{text[:_SHOWN]}{cut}\n")
        if self._turns:
            step = self._turns[-1].step
            parts = {k: v for k, v in step.info.get("reward_components", {}).items() if v}
            said = ["not a valid action"] if step.info.get("invalid_action") else []
            if step.reward:
                named = f" ({', '.join(f'{k} {v:g}' for k, v in parts.items())})" if parts else ""
                said.append(f"reward {step.reward:g}{named}")
            if said:
                show(f"[{'; '.join(said)}]")
        if self._over:
            step = self._turns[-1].step
            total = sum(turn.step.reward for turn in self._turns)
            end = "solved" if step.info.get("success") else "not solved"
            end += "" if step.terminated else ", the step limit is reached"
            steps = "1 step" if len(self._turns) == 1 else f"{len(self._turns)} steps"
            show(f"The episode is over after {steps}: {end}. Return {total:g}.")
            show("/undo, /restart, /new, /task N or /quit")
        else:
            self._show_choices()

    def _show_choices(self, most: int = 60) -> None:
        labels = [" ".join(plain(choice.label).split()) for choice in self._choices]
        if labels:
            show(in_columns(labels, shutil.get_terminal_size().columns, most=most))

    def _show_history(self) -> None:
        if not self._turns:
            show("Nothing was done yet.")
        for number, turn in enumerate(self._turns, start=1):
            action = " ".join(turn.step.action.split())
            show(f"{number:>3} {turn.step.reward:>8.3f}  {action[:160]}{'...' if len(action) > 160 else ''}")


def _number(text: str) -> int:
    """The number that digits are, -1 where a text is something else or longer than any list of tasks."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


def _asked(argument: Argument) -> Any:
    """What the person answers; None where nothing is needed and nothing is said.

    Raises:
        ValueError: It is of another kind.
    """
    about = f" ({argument.about})" if argument.about else ""
    kind = "" if argument.kind in ("string", "value") else f" [{argument.kind}]"
    sys.stdout.flush()
    text = read_text(plain(f"  {argument.name}{kind}{about}: ").replace("\n", " "))
    if not text.strip() and not argument.required:
        return None
    return argument.read(text)
