"""What the policies that sample tokens themselves share: prompts as tokens, limits, seeds, text from tokens.

A prompt is the previous prompt, the response as sampled, and the tokens of what is new; nothing that was sampled is
tokenized again.
"""

from __future__ import annotations

import copy
import itertools
import json
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import gymnasium as gym

from agent_envs.errors import ConfigError, ContextLengthExceeded, EmptyGeneration, MissingExtraError, first_line
from agent_envs.messages import Message, Observation, ToolSpec
from agent_envs.policies.policy import Response
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import TokenConversation

__all__ = ["Sampled", "TokenPolicy", "load_tokenizer", "response_text", "turn_end_ids"]


class Sampled(NamedTuple):
    """One response of a model."""

    token_ids: Sequence[int]
    """Tokens, the one that ended it included, shape [response tokens]."""
    log_probs: Sequence[float] | None
    """Natural log-probability of each when it was sampled, shape [response tokens], or None."""


class TokenPolicy:
    """Base of the policies that give a model tokens and get tokens: ``sample`` is what they differ in.

    Args:
        tokenizer: The model's tokenizer, with a chat template.
        max_tokens: Tokens of one response at most.
        context_length: Tokens of prompt and response at most.
        seed: Makes the responses reproducible.
        stop_token_ids: Tokens that end a response, besides the one with which the chat template ends a turn.
        tool_mode: ``"native"``: the chat template shows the tools. ``"text"``: the system message tells them and how
            to call them. None: native where the template shows tools at all.
        template_kwargs: Further arguments of the chat template, such as ``{"enable_thinking": False}``.

    Raises:
        ConfigError: A limit below 1, a negative seed, or another ``tool_mode``.
        PromptError: The tokenizer has no chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        max_tokens: int,
        context_length: int,
        seed: int = 0,
        stop_token_ids: Sequence[int] = (),
        tool_mode: Literal["native", "text"] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("context_length", context_length)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value!r}")
        _check_seed(seed)
        if tool_mode not in ("native", "text", None):
            raise ConfigError(f"tool_mode must be 'native', 'text' or None, got {tool_mode!r}")
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        self.context_length = context_length
        self.seed = seed
        self.tool_mode = tool_mode
        self._template_kwargs = dict(template_kwargs or {})
        self.stop_token_ids = frozenset(stop_token_ids) | turn_end_ids(PromptBuilder(tokenizer, None, template_kwargs))
        self._builders: dict[str, PromptBuilder] = {}
        self._started: dict[str, int] = {}  # episodes of each task so far
        self._lock = threading.Lock()
        self._model_owner: TokenPolicy | None = None  # lives as long as this one: its end is the model's

    def start(self, env: gym.Env[Any, str]) -> _TokenActor:
        tools = env.get_wrapper_attr("tools")
        instructions = env.get_wrapper_attr("instructions")
        with self._lock:
            builder = self._builder(tools)
        if tools and builder.tools is None:
            instructions = "\n\n".join(filter(None, (instructions, env.get_wrapper_attr("tool_instructions"))))
        return _TokenActor(self, builder, instructions)

    def with_seed(self, seed: int) -> Self:
        """The same model with other random numbers, which it draws as a policy made with this seed would.

        They share the model: closing one closes the other.

        Raises:
            ConfigError: The seed is negative.
        """
        _check_seed(seed)
        other = copy.copy(self)
        other.seed, other._started = seed, {}
        other._model_owner = self
        return other

    async def sample(self, prompt_ids: list[int], max_tokens: int, seed: int) -> Sampled:
        """One response to a prompt.

        Args:
            prompt_ids: Shape [prompt tokens].
            max_tokens: Tokens of the response at most.
            seed: Of this response.

        Raises:
            BackendError: The model failed.
        """
        raise NotImplementedError

    def episode_seed(self, task_id: str) -> str:
        """Name of the random numbers of one more episode of a task; the n-th of a task has the same in every run."""
        with self._lock:
            number = self._started.get(task_id, 0)
            self._started[task_id] = number + 1
        return f"{self.seed}/{task_id}/{number}"

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of a response, without the tokens that ended it; other control tokens are part of it."""
        return response_text(self.tokenizer, token_ids, self.stop_token_ids)

    def _builder(self, tools: Sequence[ToolSpec]) -> PromptBuilder:
        key = json.dumps(list(tools))
        if key not in self._builders:
            plain = PromptBuilder(self.tokenizer, None, self._template_kwargs)
            native = PromptBuilder(self.tokenizer, tools, self._template_kwargs)
            hello: Any = [{"role": "user", "content": "Hello"}]
            shown = self.tool_mode == "native" or (
                self.tool_mode is None and bool(tools) and native.start(hello) != plain.start(hello)
            )
            told = _ToldBuilder(self.tokenizer, None, self._template_kwargs) if tools else plain
            self._builders[key] = native if shown else told
        return self._builders[key]


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise ConfigError(f"seed must be at least 0, got {seed!r}")


class _ToldBuilder(PromptBuilder):
    """For tools that the template is not given: their results are the user's words, as ``OpenAIPolicy`` sends them."""

    def start(self, messages: Sequence[Message]) -> list[int]:
        return super().start(_told(messages))

    def extend(self, prompt_ids: Sequence[int], response_ids: Sequence[int], messages: Sequence[Message]) -> list[int]:
        return super().extend(prompt_ids, response_ids, _told(messages))


def _told(messages: Sequence[Message]) -> list[Message]:
    """Results that follow each other as one message of the user.

    >>> _told([{"role": "tool", "content": "2"}, {"role": "tool", "content": "3"}])
    [{'role': 'user', 'content': '2\\n3'}]
    """
    out: list[Message] = []
    for together, group in itertools.groupby(messages, key=lambda message: message["role"] == "tool"):
        if together:
            out.append({"role": "user", "content": "\n".join(message["content"] for message in group)})
        else:
            out += group
    return out


class _TokenActor:
    """Plays one episode."""

    def __init__(self, policy: TokenPolicy, builder: PromptBuilder, instructions: str) -> None:
        self._policy = policy
        self._conversation = TokenConversation(builder, instructions)
        self._episode: list[str] = []  # name of its random numbers, once the task is known; shared with its forks
        self._branch = ""
        self._steps = 0

    def fork(self, number: int) -> _TokenActor:
        """See `ForkingActor`."""
        other = copy.copy(self)
        other._conversation = self._conversation.fork()
        other._branch += f"#{number}"
        return other

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        policy = self._policy
        if not self._episode:
            self._episode.append(policy.episode_seed(str(info.get("task_id", ""))))
        prompt_ids = self._conversation.observe(observation, info)
        room = policy.context_length - len(prompt_ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt of step {self._steps} has {len(prompt_ids)} tokens, which leaves no room in a context "
                f"of {policy.context_length} (context_length=)"
            )
        seed = zlib.crc32(f"{self._episode[0]}{self._branch}/{self._steps}".encode("utf-8", "surrogatepass"))
        sampled = await policy.sample(prompt_ids, min(policy.max_tokens, room), seed)
        if not sampled.token_ids:
            raise EmptyGeneration(f"the model returned no token at step {self._steps}")
        self._steps += 1
        text = policy.text(sampled.token_ids)
        self._conversation.respond(text, sampled.token_ids)
        return Response(text, prompt_ids, sampled.token_ids, sampled.log_probs)


_loading = threading.Lock()  # transformers' lazy imports are not thread-safe


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> Any:
    """Load the tokenizer of a Hugging Face folder or name.

    Raises:
        ConfigError: There is none.
        MissingExtraError: The package transformers is not installed.
    """
    path = Path(name).expanduser()
    if name.startswith((".", "/", "~")) and not path.is_dir():
        raise ConfigError(f"there is no tokenizer folder {name!r}")
    with _loading:
        try:
            from transformers import AutoTokenizer
        except ImportError as e:
            raise MissingExtraError("transformers", extra="hf") from e
        try:
            source = path if name.startswith("~") else name
            return AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as e:
            raise ConfigError(f"{name!r} has no Hugging Face tokenizer: {first_line(e)}") from e


def response_text(tokenizer: Any, token_ids: Sequence[int], ends: Collection[int]) -> str:
    """The text of a response without the tokens that ended it; other control tokens, as of tool calls, are part of it.

    Args:
        tokenizer: A Hugging Face tokenizer.
        token_ids: The response as sampled, shape [response tokens].
        ends: Tokens that end a response.
    """
    end = len(token_ids)
    while end and token_ids[end - 1] in ends:
        end -= 1
    return tokenizer.decode(list(token_ids[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def turn_end_ids(builder: PromptBuilder) -> frozenset[int]:
    """The control token that the chat template puts behind a response, if it is one."""
    tokenizer = builder.tokenizer
    control = {*tokenizer.all_special_ids, *(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)}
    after = builder.extend([], [], [{"role": "user", "content": "Hello"}])
    return frozenset(after[:1]) & control
