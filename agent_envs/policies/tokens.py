"""The base of the policies that sample tokens themselves: prompts as tokens, limits, seeds, text from tokens.

A prompt is the previous prompt, the response as sampled, and the tokens of the new messages; sampled text is never
tokenized again.
"""

from __future__ import annotations

import copy
import json
import os
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError, ContextLengthExceeded, EmptyGeneration, first_line, needs_extra
from agent_envs.messages import Message, ToolSpec
from agent_envs.parsers import get_parser
from agent_envs.parsers.parser import describe_tools
from agent_envs.pictures.picture import Picture
from agent_envs.policies.model import ModelActor
from agent_envs.policies.named import UNREADABLE, model_path
from agent_envs.policies.policy import Response
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.past import TokenPast, TokenPrompt
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.spaces import refuse_pictures


class Sampled(NamedTuple):
    """One response of a model."""

    token_ids: Sequence[int]
    """Token ids, including the one that ended the response, shape [response tokens]."""
    log_probs: Sequence[float] | None
    """Natural log-probability of each token when it was sampled, shape [response tokens], or None."""


class TokenModel:
    """A model in one episode: see `EpisodeModel`."""

    def __init__(self, policy: TokenPolicy, env: gym.Env[Any, str], builder: PromptBuilder) -> None:
        self.policy, self.builder = policy, builder
        self.past = TokenPast()
        self._builders = {json.dumps(env.get_wrapper_attr("tools"), sort_keys=True): builder}  # by the tools
        self._parser = env.get_wrapper_attr("parser") if env.has_wrapper_attr("parser") else get_parser("hermes")
        self._episode: list[str] = []  # the episode's seed, once the task is known; shared with forks
        self._branch = ""
        self._calls = 0
        self._asked = Counter[str]()  # prompts that came in no order

    def fork(self, number: int) -> TokenModel:
        """See `EpisodeModel.fork`."""
        other = copy.copy(self)
        other.past = self.past.copy()
        other._branch += f"#{number}"
        return other

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> TokenPrompt:
        """Return what the model would be asked; a PromptError if the chat template rejects the messages."""
        name = json.dumps(tools, sort_keys=True)
        if name not in self._builders:
            self._builders[name] = self.policy.builder(tools, describe_tools(tools, self._parser) if tools else "")
        return self.past.prompt(self._builders[name], messages, tools)

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Return the number of tokens of a prompt."""
        return len(self.prompt(messages, tools).ids)

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, task_id: str = "", limit: int = 0,
        ordered: bool = True,
    ) -> Response:  # fmt: skip
        policy, number = self.policy, self._calls
        if not self._episode:
            self._episode.append(policy.episode_seed(task_id))
        prompt = self.prompt(messages, tools)
        room = policy.context_length - len(prompt.ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt of step {number} has {len(prompt.ids)} tokens, which leaves no room in a context "
                f"of {policy.context_length} (context_length=)"
            )
        self._calls += 1
        name = str(number)
        if not ordered:
            self._asked[digest := prompt.digests[-1].hex()] += 1
            name = f"{digest}/{self._asked[digest]}"
        seed = zlib.crc32(f"{self._episode[0]}{self._branch}/{name}".encode("utf-8", "surrogatepass"))
        most = min(policy.max_tokens, room, limit or room)
        sampled = await policy.sample(prompt.ids, most, seed, prompt.pictures)
        if not sampled.token_ids:
            raise EmptyGeneration(f"the model returned no token at step {number}")
        text = response_text(policy.tokenizer, sampled.token_ids, policy.stop_token_ids)
        self.past.answer(prompt, text, sampled.token_ids, number)
        cut = len(sampled.token_ids) >= most and sampled.token_ids[-1] not in policy.stop_token_ids
        return Response(
            text, prompt.ids, *sampled, pictures=prompt.pictures, number=number, after=prompt.after, cut=cut
        )


class TokenPolicy:
    """Base of the policies that prompt a model with tokens; a subclass implements ``sample``.

    Args:
        tokenizer: The model's tokenizer, with a chat template.
        stop_token_ids: Tokens that end a response, besides those of the chat template and the tokenizer.
        max_tokens, context_length, seed, tool_mode, template_kwargs: See `TransformersPolicy`.
        pictures: The image tokens of a vision-language model; None for a model of text, which refuses environments
            with pictures.

    Raises:
        PromptError: The tokenizer has no chat template.
    """

    untimed: bool = False
    """Whether time-outs leave out the model's part."""

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
        pictures: PictureTokens | None = None,
    ) -> None:
        self.tokenizer, self.pictures = tokenizer, pictures
        self.max_tokens = checks.integer("max_tokens", max_tokens, minimum=1)
        self.context_length = checks.integer("context_length", context_length, minimum=1)
        self.seed = checks.integer("seed", seed, minimum=0)
        self.tool_mode = checks.choice("tool_mode", tool_mode, ("native", "text", None))
        self._template_kwargs = dict(template_kwargs or {})
        self.stop_token_ids = frozenset(stop_token_ids) | PromptBuilder(tokenizer, None, template_kwargs).facts.ends
        self._started: dict[str, int] = {}  # number of episodes of each task so far
        self._lock = threading.Lock()
        self._model_owner: TokenPolicy | None = None  # kept alive, since the model is closed with it

    def start(self, env: gym.Env[Any, str]) -> ModelActor:
        model = self.open(env)
        model.past.latest_only = True
        return ModelActor(model, env)

    def open(self, env: gym.Env[Any, str]) -> TokenModel:
        """Return the model in an episode of `env`."""
        if self.pictures is None:
            refuse_pictures(env.observation_space, f"{type(self).__name__.lstrip('_')} with a model of text")
        tools = env.get_wrapper_attr("tools")
        return TokenModel(self, env, self.builder(tools, env.get_wrapper_attr("tool_instructions") if tools else ""))

    def builder(self, tools: Sequence[ToolSpec], words: str) -> PromptBuilder:
        """Return what makes prompts with some tools; `words` describe them if the template does not."""
        return PromptBuilder(
            self.tokenizer, tools, self._template_kwargs, self.pictures, tool_instructions=words,
            tool_mode=self.tool_mode if tools else None, stop_token_ids=self.stop_token_ids,
        )  # fmt: skip

    def with_seed(self, seed: int) -> Self:
        """Return a policy with another seed that shares the model: closing one closes the other."""
        other = copy.copy(self)
        other.seed, other._started = checks.integer("seed", seed, minimum=0), {}
        other._model_owner = self
        return other

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        """Sample at most `max_tokens` tokens after a prompt of shape [tokens]; may raise a BackendError.

        `pictures` are those of the prompt, in the order of their tokens.
        """
        raise NotImplementedError

    def episode_seed(self, task_id: str) -> str:
        """Return the seed of another episode of a task; the n-th episode of a task has the same in every run."""
        with self._lock:
            number = self._started.get(task_id, 0)
            self._started[task_id] = number + 1
        return f"{self.seed}/{task_id}/{number}"


_loading = threading.Lock()  # transformers' lazy imports are not thread-safe


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> Any:
    """Load the tokenizer of a Hugging Face folder or name; a ConfigError if there is none."""
    name = model_path(name)
    if name.startswith((".", "/", "~")) and not os.path.isdir(name):
        raise ConfigError(f"there is no tokenizer folder {name!r}")
    with _loading:
        with needs_extra("hf"):
            from transformers import AutoTokenizer
        try:
            return AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
        except UNREADABLE as e:
            empty = os.path.isdir(name) and not os.path.exists(os.path.join(name, "config.json"))
            why = "the folder has no config.json; name one that save_pretrained wrote" if empty else first_line(e)
            raise ConfigError(f"{name!r} has no Hugging Face tokenizer: {why}") from e


def response_text(tokenizer: Any, token_ids: Sequence[int], ends: Collection[int]) -> str:
    """Return the text of a response, shape [response tokens], without the tokens of `ends` that ended it.

    Other control tokens, such as those of tool calls, are part of the text.
    """
    end = len(token_ids)
    while end and token_ids[end - 1] in ends:
        end -= 1
    return tokenizer.decode(list(token_ids[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)
