"""Observations that are whole prompts, rebuilt at every step from the task, the earlier steps and the current state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.messages import Message
from agent_envs.per_process import PerProcess
from agent_envs.pictures.marks import PictureMarks
from agent_envs.pictures.picture import ImageObservation
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.templates import PLACEHOLDERS, PromptView, TurnView, history_prompt, shown_action
from agent_envs.prompts.texts import PromptTexts, filler, read_prompts
from agent_envs.registration import available_actions, prompt_state
from agent_envs.spaces import ImageText, UnicodeText, kept_action
from agent_envs.text import clean_text, cut
from agent_envs.wrappers.chat_messages import action_parser
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown

_tokenizers: PerProcess[Any] = PerProcess()
_PROBLEMS = 3
_LONGEST_PROBLEM = 300  # characters
_FOUND, _LEAST_FOUND = 30_720, 400  # characters of what was found


class RebuildPrompt(ObservationWrapper):
    """Show the whole state at each step instead of what is new, as the released recipes do: prompts stay short.

    ``info["rebuilt"]`` is True, so that an actor drops the conversation and starts again from this observation. The
    instructions stay where they are. Pictures stand where the texts that have them do: what a template leaves out
    loses its pictures too.

    Args:
        template: The name of one of the environment's ``prompt_templates``, or ``"history"`` (the steps so far, for any
            environment); None for the environment's own, else the history; a text with fields such as ``$task``,
            ``$history``, ``$observation``, ``$commands``, ``$problems``, ``$step`` and ``$instructions``. The released
            templates, such as ``"capo"``, bring a system message in place of the instructions.
        fn: Instead of a template: a function of a `agent_envs.prompts.templates.PromptView` that returns the prompt, or
            its name, ``"module:function"``.
        prompts: Instead of a template: your own wording as data, ``"FILE:NAME"``, see
            `agent_envs.prompts.texts.read_prompts`.
        history: Number of steps that the history shows; None for all.
        recent: Number of steps that the released templates show with their observations.
        only_first: Whether only the first observation is a prompt, which the conversation then follows.
        max_tokens: Maximum length of a prompt in tokens of a ``tokenizer`` (a name, a folder or a loaded one), both
            messages and the tools included. While it is longer, what was found gets 0.72 times as many characters (3 a
            token at first) as far as 400; then it loses its end.
        tokenizer: See above.
        anchor: What ``info["anchor"]`` is: the environment's ``"state"``, the last ``"observation"``, or the whole
            ``"prompt"``.
        max_length: Maximum length of a prompt in characters. A longer one loses its oldest steps first, then its end.
        max_images: Maximum number of pictures in a prompt, where the environment shows pictures; likewise.

    Raises:
        ConfigError: There is no such template or field, the file cannot be read, or two of the three are given.

    >>> import agent_envs
    >>> env = RebuildPrompt(gym.make("AgentR1/ALFWorld-v0", size=1), history=1)
    >>> _ = env.reset(seed=0)
    >>> observation, *_, info = env.step("inventory")
    >>> "1. inventory -> You are not carrying anything." in observation, info["rebuilt"]
    (True, True)
    """

    place = Place.STATE
    selects_history = True
    recorded_arguments = (
        *("template", "history", "max_length", "max_images", "recent", "only_first", "anchor", "max_tokens"),
    )
    harmless_arguments = ("max_images",)  # evaluations of text stay comparable with those made before

    def __init__(
        self,
        env: gym.Env[Any, str],
        template: str | None = None,
        history: int | None = None,
        max_length: int = 1 << 18,
        max_images: int = 16,
        fn: str | Callable[[PromptView], str] | None = None,
        prompts: str | None = None,
        recent: int = 2,
        only_first: bool = False,
        anchor: str = "state",
        max_tokens: int | None = None,
        tokenizer: Any = None,
    ) -> None:
        if sum(given is not None for given in (template, fn, prompts)) > 1:
            raise ConfigError("give either template or fn or prompts: each replaces the others")
        self.history = None if history is None else checks.integer("history", history, minimum=0)
        self.recent = checks.integer("recent", recent, minimum=0)
        self.only_first = checks.boolean("only_first", only_first)
        self.anchor = checks.choice("anchor", anchor, ("state", "observation", "prompt"))
        self.max_length = checks.integer("max_length", max_length, minimum=1000)
        self.max_images = checks.integer("max_images", max_images, minimum=1)
        if (max_tokens is None) != (tokenizer is None):
            raise ConfigError("max_tokens and tokenizer go together: give both or none")
        self.max_tokens = None if max_tokens is None else checks.integer("max_tokens", max_tokens, minimum=1)
        how = {"fn": fn, "prompts": prompts, "recent": recent, "only_first": only_first, "anchor": anchor}
        how |= {"max_tokens": max_tokens, "tokenizer": tokenizer}
        super().__init__(env, template=template, history=history, max_length=max_length, max_images=max_images, **how)
        self._system: str | None = None  # in place of the instructions
        self._label = PromptTexts._field_defaults["label"]
        written = self._template(template, prompts) if fn is None else checks.load_function(fn, what="fn")
        if isinstance(tokenizer, str):
            tokenizer = _tokenizers.get(tokenizer, lambda: load_tokenizer(tokenizer))
        self._shared = written, None if tokenizer is None else PromptBuilder.of_env(env, tokenizer)
        space = env.observation_space
        self._side = space.max_side if isinstance(space, ImageText) else 0  # 0: no pictures
        self.observation_space = (
            ImageText(max_length, max_images, self._side) if self._side else UnicodeText(max_length)
        )
        self._marks = PictureMarks()
        self._task = self._before = ""  # the first and the last observation; as all texts here, with marks
        self._turns: list[TurnView] = []
        self._problems: list[str] = []

    @property
    def instructions(self) -> str:
        """The environment's instructions, or the template's system message; empty if the template shows them."""
        return self.env.get_wrapper_attr("instructions") if self._system is None else self._system

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        if action is None:
            self._marks, self._turns, self._problems = PictureMarks(), [], []
            self._task = self._marked(observation)
            return self._rebuilt(self._task, info)
        text = self._marked(observation)
        invalid = bool(info.get("invalid_action", False))
        played = self._marked(clean_text(kept_action(action, self.env.action_space)))
        said = shown_action(played, action_parser(self.env))
        self._turns.append(TurnView(said, text, invalid, self._before, self._command(played)))
        if invalid:
            errors = [result["content"] for result in info.get("tool_results", ()) if result["error"]]
            self._problems += [problem[:_LONGEST_PROBLEM] for problem in errors or [text]]
            self._problems = self._problems[-_PROBLEMS:]
        if self.only_first:
            return observation, info
        return self._rebuilt(text, info)

    def _command(self, action: str) -> str:
        if not self.env.has_wrapper_attr("read_commands"):
            return action.strip()
        commands, reason = self.env.get_wrapper_attr("read_commands")(action)
        return f"{self._label}: {reason}" if reason else "; ".join(commands)

    def _rebuilt(self, observation: str, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the prompt for an observation, and the info with it."""
        self._before = observation
        prompt = self._prompt(observation, info)
        anchors = {"observation": observation, "prompt": prompt if isinstance(prompt, str) else prompt["text"]}
        return prompt, {**info, **({"anchor": anchors[self.anchor]} if self.anchor in anchors else {}), "rebuilt": True}

    def _marked(self, observation: str | ImageObservation) -> str:
        """Return an observation as text, with a mark for each picture."""
        if not self._side and isinstance(observation, str):
            return observation
        return self._marks.text(observation)

    def _prompt(self, observation: str, info: dict[str, Any]) -> str | ImageObservation:
        turns = len(self._turns) if self.history is None else min(self.history, len(self._turns))
        actions, state = tuple(available_actions(self.env) or ()), prompt_state(self.env)
        budget = _FOUND if self.max_tokens is None else 3 * self.max_tokens
        while True:
            view = PromptView(
                task=self._task,
                observation=observation,
                info=info,
                turns=self._turns[len(self._turns) - turns :],
                steps=len(self._turns),
                problems=tuple(self._problems),
                instructions=self.env.get_wrapper_attr("instructions"),
                actions=actions,
                state=state,
                recent=self.recent,
                budget=budget,
            )
            text = self._shared[0](view)
            if not isinstance(text, str):
                raise ConfigError(f"a template must return a string, got {type(text).__name__}")
            few = not self._side or self._marks.count(text) <= self.max_images
            fits = self._in_tokens(text)
            if not fits and budget > _LEAST_FOUND:
                budget = max(_LEAST_FOUND, int(0.72 * budget))
                continue
            if (len(text) <= self.max_length and few and fits) or not turns:
                break
            turns //= 2
        while text and not self._in_tokens(text):
            text = text[: len(text) * 9 // 10]
        text = cut(clean_text(text), self.max_length)
        if self._side:
            return self._marks.pictured(text).fitted(self.max_length, self.max_images, self._side).observation()
        return text

    def _in_tokens(self, text: str) -> bool:
        """Return whether the prompt with this text is short enough in tokens."""
        builder = self._shared[1]
        if builder is None or self.max_tokens is None:
            return True
        told: list[Message] = [{"role": "system", "content": self.instructions}] if self.instructions else []
        return len(builder.start([*told, {"role": "user", "content": text}])) <= self.max_tokens

    def _template(self, template: str | None, prompts: str | None) -> Callable[[PromptView], str]:
        templates: dict[str, Any] = {}
        fields = dict(PLACEHOLDERS)
        if self.env.has_wrapper_attr("prompt_templates"):
            templates |= self.env.get_wrapper_attr("prompt_templates")
            fields |= self.env.get_wrapper_attr("prompt_fields")
        templates.setdefault("history", history_prompt)
        if prompts is not None:
            chosen: Any = read_prompts(prompts)
        elif isinstance(template, str) and "$" in template:
            fill, names = filler(template, fields, "the template")
            self._system = "" if "instructions" in names else None
            return fill
        else:
            chosen = templates[
                checks.choice("template", next(iter(templates)) if template is None else template, templates)
            ]
        if not isinstance(chosen, PromptTexts):
            return chosen
        self._system, self._label = chosen.system, chosen.label
        return filler(chosen.user, fields, prompts or "the template")[0]
