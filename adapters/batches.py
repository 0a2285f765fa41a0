"""Builds a batch of flat arrays from recorded episodes, with a row per step or merged rows, for any trainer.

Rows of different lengths follow each other, nested by offsets, without padding. Every array is allocated once at its
final size, and every element is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agent_envs.adapters.merging import pack, plan_packed
from agent_envs.checks import choice
from agent_envs.episodes.record import Episode, Step
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import Conversation

_MOST_TOKENS = 16_384  # of a forward and backward pass

LAST_STATE = "agent_envs.last_state"
"""Key in the info of a step that no policy took: its prompt is the state after a truncated episode."""


@dataclass(frozen=True)
class TokenBatch:
    """Rows of tokens, nested: row i has the tokens ``offsets[i]`` to ``offsets[i + 1]`` of every flat array."""

    input_ids: np.ndarray
    """Tokens, int64, shape [tokens]."""
    position_ids: np.ndarray
    """Position of each token within its row, int64, shape [tokens]."""
    step_ids: np.ndarray
    """Step that wrote each token, -1 for tokens the policy did not write, int64, shape [tokens]."""
    logprobs: np.ndarray
    """Log-probability of each token when it was sampled (nats), NaN if it is not known, 0 for tokens that the policy
    did not write, float32."""
    offsets: np.ndarray
    """Where rows begin and end, int64, shape [rows + 1]."""
    row: np.ndarray
    """Row of each step, int64, shape [steps]; steps are numbered by episode and index."""
    start: np.ndarray
    """Index of each step's first response token in the flat arrays, int64, shape [steps]."""
    length: np.ndarray
    """Response tokens of each step, int64, shape [steps]."""
    episode: np.ndarray
    """Index of each step's episode, int64, shape [steps]."""
    rewards: np.ndarray
    """Reward of each step, float64, shape [steps]."""
    pictures: tuple[tuple[Picture, ...], ...] = ()
    """The pictures of each row, in the order of their tokens; empty if no row has any."""


def build_batch(episodes: Sequence[Episode], layout: str = "merged") -> TokenBatch:
    """Return the batch of some episodes in the layout ``merged`` or ``steps``, without steps that have no tokens.

    Another layout is a ConfigError.
    """
    choice("layout", layout, ("merged", "steps"))
    steps: list[Step] = []
    owner: list[int] = []
    plan: list[tuple[list[int], bytes, bytes]] = []  # a row's steps, and the prompt and response of its last one
    for number, episode in enumerate(episodes):
        first = len(steps)
        own = [step for step in episode.steps if step.prompt_ids and step.response_ids]
        packed = [(pack(step.prompt_ids or ()), pack(step.response_ids or ())) for step in own]
        seen = [step.prompt_pictures for step in own] if any(step.prompt_pictures for step in own) else None
        rows = plan_packed(packed, seen) if layout == "merged" else [[i] for i in range(len(own))]
        # a row ends with its last step, whose prompt is everything before
        plan += [([first + i for i in row], *packed[row[-1]]) for row in rows]
        steps += own
        owner += [number] * len(own)
    lengths = [(len(prompt) + len(response)) // 8 for _, prompt, response in plan]
    offsets = np.zeros(len(plan) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    tokens, count = int(offsets[-1]), len(steps)
    input_ids, position_ids = np.empty(tokens, dtype=np.int64), np.empty(tokens, dtype=np.int64)
    step_ids, logprobs = np.full(tokens, -1, dtype=np.int64), np.zeros(tokens, dtype=np.float32)
    row_of, start, length = (np.empty(count, dtype=np.int64) for _ in range(3))
    positions, begin = np.arange(max(lengths, default=0)), 0
    for number, (row, prompt, response) in enumerate(plan):
        middle, end = begin + len(prompt) // 8, begin + lengths[number]
        input_ids[begin:middle] = np.frombuffer(prompt, dtype="<i8")
        input_ids[middle:end] = np.frombuffer(response, dtype="<i8")
        position_ids[begin:end] = positions[: end - begin]
        for i in row:
            step = steps[i]
            at, n = begin + len(step.prompt_ids or ()), len(step.response_ids or ())
            step_ids[at : at + n] = i
            if not step.info.get(LAST_STATE):
                logprobs[at : at + n] = np.nan if step.response_logprobs is None else step.response_logprobs
            row_of[i], start[i], length[i] = number, at, n
        begin = end
    pictures = tuple(steps[row[-1]].prompt_pictures for row, _, _ in plan)  # as its prompt, the last step's has all
    return TokenBatch(
        input_ids, position_ids, step_ids, logprobs, offsets, row_of, start, length,
        np.array(owner, dtype=np.int64), np.array([step.reward for step in steps], dtype=np.float64),
        pictures if any(pictures) else (),
    )  # fmt: skip


def micro_batches(rows: Iterable[int], lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Yield rows, the longest first, in parts of at most ``limit`` tokens after padding; a longer row is alone.

    ``rows`` are indices into ``lengths``, the tokens of each row of the batch.

    >>> list(micro_batches([0, 1, 2, 3], [2, 9, 3, 4], 8))
    [[1], [3, 2], [0]]
    """
    part: list[int] = []
    for row in sorted(rows, key=lambda r: -lengths[r]):
        if part and (len(part) + 1) * lengths[part[0]] > limit:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def token_bytes(config: Any, itemsize: int = 4, *, recomputed: bool = False) -> int:
    """Return about how many bytes a token of a forward and backward pass takes, in numbers of ``itemsize`` bytes.

    A layer keeps about 8 vectors of the hidden size and 4 of the intermediate one, ``recomputed`` 1; logits are two.
    """
    text = config.get_text_config()
    layer = 8 * text.hidden_size + 4 * getattr(text, "intermediate_size", 4 * text.hidden_size)
    activations = text.num_hidden_layers * (text.hidden_size if recomputed else layer) + layer * recomputed
    return int(itemsize * (activations + 2 * text.vocab_size))


def cached_numbers(config: Any) -> int:
    """Return the numbers that the keys and values of a token take in the cache of a model, by its configuration."""
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return int(2 * text.num_hidden_layers * heads * head)


def fitting_tokens(model: Any) -> int:
    """Return how many tokens a pass may have: they take 2 GB on a CPU, on a GPU a quarter of its memory."""
    memory = 2e9
    if model.device.type == "cuda":
        import torch

        memory = torch.cuda.mem_get_info(model.device)[1] / 4
    return int(min(_MOST_TOKENS, max(1, memory / token_bytes(model.config))))


def with_last_state(episode: Episode, tokenizer: Any, max_tokens: int, tool_instructions: str = "") -> Episode:
    """Add a step to a truncated episode, from which a critic reads the value of the state it was left in.

    It has the ``last_prompt``, by the tokenizer and the environment's ``tool_instructions``; without one the episode is
    returned as it is.
    """
    builder = PromptBuilder(tokenizer, episode.tools, tool_instructions=tool_instructions)
    if not (prompt_ids := last_prompt(episode, builder, max_tokens)):
        return episode
    last = episode.steps[-1]
    time = None if last.time is None else last.time + int(last.info["env_steps"])
    state = Step(episode.final_observation, "", 0.0, False, False, {LAST_STATE: True}, prompt_ids, (0,), time=time)
    return replace(episode, steps=(*episode.steps, state))


def last_prompt(episode: Episode, builder: PromptBuilder, max_tokens: int) -> tuple[int, ...]:
    """Return the prompt of the state that a truncated episode was left in, as an actor would have seen it.

    There is none if it leaves no room in the model's context of ``max_tokens``. That of an agent is what it passed to
    ``model.last``, if all its calls are trained and it plays no roles.
    """
    last = episode.steps[-1] if episode.steps else None
    if last is None or not last.truncated or last.terminated or not last.response_ids:
        return ()
    if any(step.role or not step.trained for step in episode.steps):
        return ()
    if last.time is not None:
        ids = tuple(last.info.get("last_prompt", ()))
    else:
        conversation, info = Conversation(episode.instructions), episode.reset_info
        for step in episode.steps:
            conversation.observe(step.observation, info)
            conversation.respond(step.action)
            info = step.info
        new, fresh = conversation.observe(episode.final_observation, info)
        ids = tuple(builder.start(new) if fresh else builder.extend(last.prompt_ids or (), last.response_ids, new))
    return ids if len(ids) < max_tokens else ()
