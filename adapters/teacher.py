"""The environment's solver as teacher: in every state that the policy reaches, the expert's next action is a label.

DAgger (Ross and others 2011, arXiv 1011.0686): the policy plays, so it is taught in the states that its own mistakes
lead to, of which demonstrations have none. The loss is the cross-entropy of the label's tokens after the state's
prompt, beside the policy gradient in one update:

    L = L_policy + w_s sum over labels of weight x -log p(label | state),   w_s = w max(0, 1 - (s - 1) / until)

The weights are those of the policy's loss (`agent_envs.adapters.losses.weights`), with labelled states as steps. A
label that is the action itself shares the tokens of its step; another one has a row of its own, which begins as the
step's does, so that on prefix trees a label costs its own tokens alone.

A model behind a server teaches otherwise, without labels: see `agent_envs.adapters.torch.distillation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from agent_envs.adapters.batches import TokenBatch
from agent_envs.adapters.losses import token_weights
from agent_envs.checks import choice, integer, number
from agent_envs.episodes.record import Episode, Step
from agent_envs.errors import ConfigError, needs_extra
from agent_envs.prompts.builder import PromptBuilder

with needs_extra("hf"):
    import torch

LABELS = "ExpertLabels"
"""The wrapper that asks the expert."""
MODES = ("mixed", "alone", "silent")
"""Beside the policy gradient; without it; beside it, and only for groups whose episodes teach nothing."""
LabelsOf = Callable[[Sequence[tuple[Episode, Step, Mapping[str, Any]]]], Sequence[tuple[int, ...]]]
"""Gives the tokens of the label of each state, by its episode, the step taken there and the info before it."""
NO_LABEL = "no state of a batch has a label: the teacher had no action, or one longer than the limits of tokens allow"


@dataclass(frozen=True)
class Teacher:
    """What a run is taught, and how much."""

    spec: str
    """``expert``, or ``expert:NAME`` where the environment has several (its argument ``expert``); MODEL@URL for a model
    behind a server, which gives no labels; "" for no teacher."""
    weight: float = 1.0
    """w: of the labels' cross-entropy, beside a policy loss of weight 1."""
    until: int = 0
    """Iterations over which the weight falls in a straight line, to 0 in the one after them; 0 to keep it."""
    mode: str = "mixed"
    """One of `MODES`."""

    def __post_init__(self) -> None:
        if self.spec and self.spec.partition(":")[0] != "expert" and not self.server:
            raise ConfigError(
                "the teacher is expert, expert:NAME as in expert:explore, or MODEL@URL as in "
                f"Qwen/Qwen3-8B@http://127.0.0.1:8000/v1, got {self.spec!r}"
            )
        number("teacher_weight", self.weight, above=0)
        integer("teacher_until", self.until, minimum=0)
        choice("teacher_mode", self.mode, MODES)
        if not self.spec and (self.weight, self.until, self.mode) != (1.0, 0, "mixed"):
            raise ConfigError("teacher_weight, teacher_until and teacher_mode are a teacher's: add teacher=expert")

    @property
    def server(self) -> tuple[str, str] | None:
        """The name of a model and the address of its server, if it is the teacher.

        >>> Teacher("Qwen/Qwen3-8B@http://127.0.0.1:8000/v1").server
        ('Qwen/Qwen3-8B', 'http://127.0.0.1:8000/v1')
        """
        match = re.fullmatch("(.+?)@(https?://.+)", self.spec)
        return (match[1], match[2]) if match else None

    def check_expert(self) -> None:
        """Refuse a model behind a server with a ConfigError."""
        if self.server:
            raise ConfigError(
                f"a model behind a server teaches in the PyTorch loop; here the teacher is expert, got {self.spec}"
            )

    def weight_at(self, step: int) -> float:
        """Return the weight of the labels in an iteration, the first of which is 1; 0 without a teacher.

        >>> [Teacher("expert", until=4).weight_at(step) for step in (1, 2, 5, 6)]
        [1.0, 0.75, 0.0, 0.0]
        """
        left = 1.0 - (step - 1) / self.until if self.until else 1.0
        return self.weight * max(0.0, left) if self.spec else 0.0

    def labels_at(self, step: int) -> bool:
        """Return whether the solver labels states in an iteration."""
        return self.server is None and self.weight_at(step) > 0

    def asked(self, env_kwargs: Mapping[str, Any], wrappers: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return an environment's arguments and wrappers with those that make it tell the labels."""
        name = self.spec.partition(":")[2]
        return {**env_kwargs, **({"expert": name} if name else {})}, (*wrappers, LABELS)


def labels_in(
    states: Sequence[tuple[Episode, Step, Mapping[str, Any]]],
    builder_of: Callable[[Episode], PromptBuilder],
    most: int,
    longest: int,
) -> list[tuple[int, ...]]:
    """Return the tokens of the label in each state, given with its episode, the step taken there and its info.

    They are as the policy would have written them with the builder of the episode. There are none if the expert had no
    action, or one that the policy could not write: of more than ``most`` tokens, or ``longest`` with its prompt.
    """
    builders: dict[str, PromptBuilder] = {}
    labels = []
    for episode, step, info in states:
        if (builder := builders.get(episode.episode_id)) is None:
            builder = builders[episode.episode_id] = builder_of(episode)
        text, answer = info.get("expert_action"), list[Any]()
        if info.get("expert_calls"):
            answer = [{"role": "tool", "name": "", "content": ""}]
        ids = tuple(builder.response(text, answer)) if text else ()
        labels.append(ids if len(ids) <= min(most, longest - len(step.prompt_ids or ())) else ())
    return labels


def with_labels(
    batch: TokenBatch, steps: Sequence[Step], labels: Sequence[Sequence[int]]
) -> tuple[TokenBatch, np.ndarray]:
    """Return a batch of some steps with their labels, each as its tokens, and for each token whose label it is in.

    Returns:
        The batch with a row for each label that is another response than the step's, and int64, shape [tokens], -1 for
        tokens of no label.
    """
    label = np.full(len(batch.input_ids), -1, dtype=np.int64)
    rows: list[np.ndarray] = []
    marks: list[np.ndarray] = []
    pictures = list(batch.pictures)
    for i, (step, ids) in enumerate(zip(steps, labels, strict=True)):
        if tuple(ids) == step.response_ids:
            label[batch.start[i] : batch.start[i] + len(ids)] = i
        elif ids:
            prompt = step.prompt_ids or ()
            rows.append(np.array([*prompt, *ids], dtype=np.int64))
            marks.append(np.repeat([-1, i], [len(prompt), len(ids)]))
            if batch.pictures:
                pictures.append(step.prompt_pictures)
    if not rows:
        return batch, label
    lengths = np.array([len(row) for row in rows])
    new = int(lengths.sum())
    batch = replace(
        batch,
        input_ids=np.concatenate([batch.input_ids, *rows]),
        position_ids=np.concatenate([batch.position_ids, *map(np.arange, lengths)]),
        step_ids=np.concatenate([batch.step_ids, np.full(new, -1)]),
        logprobs=np.concatenate([batch.logprobs, np.zeros(new, dtype=np.float32)]),
        offsets=np.concatenate([batch.offsets, batch.offsets[-1] + np.cumsum(lengths)]),
        pictures=tuple(pictures),
    )
    return batch, np.concatenate([label, *marks])


class Labels(NamedTuple):
    """The labels that a batch is trained on."""

    step: torch.Tensor
    """The step whose label each token is in, -1 for none, int64, shape [tokens]."""
    weight: float
    """What the weights of a mini-batch's tokens add up to."""

    def weights(
        self, weighting: str, trajectory: torch.Tensor, mini_batch: torch.Tensor, counts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the weight of each token in the cross-entropy, float32, shape [tokens].

        The arguments are those of ``token_weights``, tensors of shape [steps].
        """
        lengths = torch.bincount(self.step[self.step >= 0], minlength=len(trajectory))
        return self.weight * token_weights(weighting, lengths, trajectory, self.step, mini_batch, counts)

    def without_signal(self, group: torch.Tensor, wrote: torch.Tensor, advantages: torch.Tensor) -> Labels:
        """Return those alone of the groups in which no token has an advantage.

        ``group`` is of shape [steps]; ``wrote`` (the step of each token, -1 for none) and ``advantages`` of [tokens].
        """
        units = group.unique(return_inverse=True)[1]
        moved = torch.zeros(len(units), dtype=torch.bool)
        moved[units[wrote[(wrote >= 0) & (advantages != 0)]]] = True
        silent = torch.cat([~moved[units], moved.new_zeros(1)])  # -1 reads the last one
        return self._replace(step=torch.where(silent[self.step], self.step, -1))

    def metrics(self, wrote: torch.Tensor) -> dict[str, float]:
        """Return their number and weight, and the share of them that is what the policy did."""
        count = len(self.step[self.step >= 0].unique())
        same = len(self.step[(self.step >= 0) & (self.step == wrote)].unique())
        return {"labels": count, "weight": self.weight, "agreement": same / max(count, 1)}
