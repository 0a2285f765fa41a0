"""What an agent is given: the environment and the model of one episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs import checks
from agent_envs.agents.calls import CallLog, as_messages
from agent_envs.branching import tried
from agent_envs.errors import PolicyError
from agent_envs.messages import Message, Observation, ToolCall, ToolSpec, content_text
from agent_envs.policies.model import EpisodeModel, ModelPolicy
from agent_envs.policies.policy import Response
from agent_envs.policies.tokens import TokenModel


class PlayedEnv:
    """The environment of an episode, as an agent plays it. In an async agent, `step` and `call` are awaited."""

    def __init__(self, log: CallLog) -> None:
        self._log = log
        self.instructions: str = log.env.get_wrapper_attr("instructions")
        """How to act."""
        self.tools: list[ToolSpec] = log.env.get_wrapper_attr("tools")
        """The tools on offer, as a chat template's ``tools=`` takes them."""

    @property
    def observation(self) -> Observation:
        """The latest observation."""
        return self._log.observation

    @property
    def info(self) -> dict[str, Any]:
        """Its info."""
        return self._log.info

    @property
    def messages(self) -> list[Message]:
        """The latest observation as messages: the task first, then results and answers."""
        return as_messages(self._log.observation, self._log.info)

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._log.over

    def step(self, action: str | Response, by: Response | None = None) -> Any:
        """Step the environment and return Gymnasium's five values.

        Args:
            action: A reply, or a text.
            by: The reply to which the step's reward belongs; by default the one that is carried out.

        Raises:
            PolicyError: The episode is over.
        """
        return self._log.host.run(self._log.take, action, by)

    def call(self, name: str, arguments: Mapping[str, Any], by: Response | None = None) -> Any:
        """Call a tool and return its result as text; a step of the environment as well."""
        return self._log.host.run(self._call, name, dict(arguments), by)

    def tried(self, actions: Sequence[str | Response]) -> Any:
        """Return what the environment would pay for each action; it is as before afterwards. Awaited in an async agent.

        Raises:
            ConfigError: The environment cannot be restored.
        """
        return self._log.host.run(self._tried, [a.text if isinstance(a, Response) else a for a in actions])

    def _tried(self, texts: Sequence[str]) -> list[float]:
        rewards = dict.fromkeys(texts, 0.0)
        for text in rewards:
            with tried(self._log.env):
                rewards[text] = float(self._log.env.step(text)[1])
        return [rewards[text] for text in texts]

    def _call(self, name: str, arguments: dict[str, Any], by: Response | None) -> str:
        text = self._log.env.get_wrapper_attr("format_call")(name, arguments)
        self._log.take(text, by, ToolCall(name, arguments))
        return content_text(self.messages[-1]["content"])


class RecordedModel:
    """The model of an episode, as an agent asks it. In an async agent, `chat` is awaited."""

    def __init__(self, log: CallLog, model: EpisodeModel, role: str = "", trained: bool = True) -> None:
        self._log, self._model, self._role, self._trained = log, model, role, trained

    def chat(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, trained: bool = True, max_tokens: int = 0
    ) -> Any:
        """Ask the model, and return its `Response`: `text`, and `message` for the next prompt. A step of the episode.

        Args:
            messages: The whole prompt. One that goes on from an earlier reply keeps its tokens as they were sampled.
            tools: `env.tools`, or none.
            trained: Whether the call is trained.
            max_tokens: Most tokens of the reply, if that is fewer than the policy's; 0 for the policy's.

        Raises:
            ContextLengthExceeded: The prompt leaves no room for a response; it may be caught.
            CallLimitReached: The episode has used its calls.
        """
        limit, trained = checks.integer("max_tokens", max_tokens, minimum=0), trained and self._trained
        return self._log.host.wait(self._log.ask(self._model, messages, tools, self._role, trained, limit))

    @property
    def url(self) -> str:
        """Address at which a program asks this model; its clients append the ``/v1`` of OpenAI's API.

        A server on this machine, which needs the extra `serve`, answers there until the agent has returned.
        """
        from agent_envs.agents.door import the_door

        return the_door().admit(self._log, self._model, PlayedEnv(self._log))

    @property
    def key(self) -> str:
        """The API key that a program sends; it is part of `url` too."""
        return self._log.key

    def judge(self, workdir: str | None = None) -> Any:
        """Have the episode scored now, with the agent's folder; awaited in an async agent."""
        return self._log.host.run(self._log.judge, workdir)

    @property
    def replies(self) -> list[Response]:
        """All replies of the episode so far, in the order in which they were asked for."""
        return self._log.replies

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Return the number of tokens of a prompt, about four characters each if the model does not tell."""
        return self._model.count(messages, tools)

    def last(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> None:
        """Tell the prompt that would come next where the environment cut the episode short.

        A critic reads the value of the state there (``gae``); without it, that value is taken as 0.
        """
        if isinstance(self._model, TokenModel):
            self._log.last_prompt = self._model.prompt(messages, tools).ids

    def role(self, name: str, group: str | None = None) -> RecordedModel:
        """Return the model as somebody who is paid on their own: a trajectory of the episode.

        Args:
            name: Who, such as "first" or "solver/2"; what stands before a slash names the role.
            group: What its return is compared with: None for the same role in the other episodes of the task,
                "episode" for those of the same role in this one.
        """
        if not name or not all(part for part in name.split("/")):
            raise PolicyError(f"a role is a name such as 'first' or 'solver/2', got {checks.shown(name)}")
        if group is not None:
            self._log.roles[name] = group
        return RecordedModel(self._log, self._model, name, self._trained)

    def using(self, policy: ModelPolicy) -> RecordedModel:
        """Return another policy's model, such as a judge's, whose calls are recorded and never trained."""
        return RecordedModel(self._log, policy.open(self._log.env), self._role, trained=False)

    def pay(self, reward: float, to: Response | None = None, name: str = "") -> None:
        """Add a reward to a reply, by default to the latest of the role; `name` makes it a component of its own."""
        self._log.pay(reward, to, name, self._role)
