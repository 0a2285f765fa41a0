"""The base of the policies that sample tokens themselves: prompts as tokens, limits, seeds, text from tokens.

A prompt is the previous prompt, the response as sampled, and the tokens of the new messages; sampled text is never
tokenized again.
"""

from __future__ import annotations

import copy
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError, ContextLengthExceeded, EmptyGeneration, first_line, needs_extra
from agent_envs.messages import Observation
from agent_envs.pictures.picture import Picture
from agent_envs.policies.policy import Response
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import TokenConversation
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.spaces import refuse_pictures

__all__ = ["Sampled", "TokenActor", "TokenPolicy", "load_tokenizer", "response_text"]


class Sampled(NamedTuple):
    """One response of a model."""

    token_ids: Sequence[int]
    """Token ids, including the one that ended the response, shape [response tokens]."""
    log_probs: Sequence[float] | None
    """Natural log-probability of each token when it was sampled, shape [response tokens], or None."""


class TokenActor:
    """Plays one episode."""

    def __init__(self, policy: TokenPolicy, builder: PromptBuilder, instructions: str) -> None:
        self.policy = policy
        self.conversation = TokenConversation(builder, instructions)
        self._episode: list[str] = []  # the episode's seed, once the task is known; shared with forks
        self._branch = ""
        self._steps = 0

    def fork(self, number: int) -> TokenActor:
        """See `ForkingActor`."""
        other = copy.copy(self)
        other.conversation = self.conversation.fork()
        other._branch += f"#{number}"
        return other

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        policy = self.policy
        if not self._episode:
            self._episode.append(policy.episode_seed(str(info.get("task_id", ""))))
        prompt_ids = self.conversation.observe(observation, info)
        room = policy.context_length - len(prompt_ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"the prompt of step {self._steps} has {len(prompt_ids)} tokens, which leaves no room in a context "
                f"of {policy.context_length} (context_length=)"
            )
        seed = zlib.crc32(f"{self._episode[0]}{self._branch}/{self._steps}".encode("utf-8", "surrogatepass"))
        pictures = self.conversation.pictures
        sampled = await policy.sample(prompt_ids, min(policy.max_tokens, room), seed, pictures)
        if not sampled.token_ids:
            raise EmptyGeneration(f"the model returned no token at step {self._steps}")
        self._steps += 1
        text = response_text(policy.tokenizer, sampled.token_ids, policy.stop_token_ids)
        self.conversation.respond(text, sampled.token_ids)
        return Response(text, prompt_ids, sampled.token_ids, sampled.log_probs, pictures=pictures)


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

    actor_type: type[TokenActor] = TokenActor

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

    def start(self, env: gym.Env[Any, str]) -> TokenActor:
        if self.pictures is None:
            refuse_pictures(env.observation_space, f"{type(self).__name__.lstrip('_')} with a model of text")
        how = {"template_kwargs": self._template_kwargs, "pictures": self.pictures, "tool_mode": self.tool_mode}
        builder = PromptBuilder.of_env(env, self.tokenizer, stop_token_ids=self.stop_token_ids, **how)
        return self.actor_type(self, builder, env.get_wrapper_attr("instructions"))

    def with_seed(self, seed: int) -> Self:
        """Return a policy with another seed that shares the model: closing one closes the other."""
        other = copy.copy(self)
        other.seed, other._started = checks.integer("seed", seed, minimum=0), {}
        other._model_owner = self
        return other

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        """Sample a response to a prompt; may raise a BackendError.

        Args:
            prompt_ids: The prompt, shape [prompt tokens].
            max_tokens: Most tokens of the response.
            seed: Of its random numbers.
            pictures: The pictures of the prompt, in the order of their tokens.
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
    try:
        path = Path(name).expanduser()
    except RuntimeError as e:  # the home of an unknown user
        raise ConfigError(f"there is no tokenizer folder {name!r}: {e}") from e
    if name.startswith((".", "/", "~")) and not path.is_dir():
        raise ConfigError(f"there is no tokenizer folder {name!r}")
    with _loading:
        with needs_extra("hf"):
            from transformers import AutoTokenizer
        try:
            source = path if name.startswith("~") else name
            return AutoTokenizer.from_pretrained(source, trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as e:
            raise ConfigError(f"{name!r} has no Hugging Face tokenizer: {first_line(e)}") from e


def response_text(tokenizer: Any, token_ids: Sequence[int], ends: Collection[int]) -> str:
    """Return the text of a response, shape [response tokens], without the tokens of `ends` that ended it.

    Other control tokens, such as those of tool calls, are part of the text.
    """
    end = len(token_ids)
    while end and token_ids[end - 1] in ends:
        end -= 1
    return tokenizer.decode(list(token_ids[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)
