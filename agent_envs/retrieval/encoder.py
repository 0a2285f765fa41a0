"""Turns texts into vectors with a sentence encoder from Hugging Face, by default as BAAI/bge-large-en-v1.5 is used."""

from __future__ import annotations

import threading

import numpy as np

from agent_envs.checks import choice, integer
from agent_envs.errors import BackendError, ConfigError, first_line, needs_extra
from agent_envs.per_process import Shared

_POOLING = ("cls", "last", "mean")


class SentenceEncoder(Shared):
    """Encodes texts to vectors of length 1: the last layer's states, pooled and normalised. Threads may share it.

    Args:
        model: A Hugging Face folder or name, with its weights as safetensors.
        device: Where it runs, such as "cuda:1".
        instruction: What is put before a query, by whoever encodes queries; passages are encoded without.
        pooling: The token whose state is the vector: "cls" the first, "last" the last one; or the "mean" of all.
        max_length: Tokens that a text is cut to.
        batch: Texts that the model sees at a time. Weights are float16 on a GPU, else float32.

    Raises:
        MissingExtraError: transformers is not installed.
        ConfigError: There is no such model or device.
    """

    def __init__(
        self,
        *,
        model: str = "BAAI/bge-large-en-v1.5",
        device: str = "cpu",
        instruction: str = "Represent this sentence for searching relevant passages: ",
        pooling: str = "cls",
        max_length: int = 512,
        batch: int = 32,
    ) -> None:
        with needs_extra("hf"):
            import torch
            from transformers import AutoModel, AutoTokenizer
        self.instruction, self._pooling = instruction, choice("pooling", pooling, _POOLING)
        self._max_length = integer("max_length", max_length, minimum=1)
        self._batch = integer("batch", batch, minimum=1)
        self._name = f"SentenceEncoder(model={model!r}, pooling={pooling!r}, max_length={max_length})"
        self._lock = threading.Lock()  # tokenizers cannot be shared
        try:
            dtype = torch.float32 if torch.device(device).type == "cpu" else torch.float16
            self._tokenizer = AutoTokenizer.from_pretrained(model, padding_side="right", trust_remote_code=False)
            loaded = AutoModel.from_pretrained(model, dtype=dtype, use_safetensors=True, trust_remote_code=False)
            self._model = loaded.to(device).eval()
        except (OSError, ValueError, RuntimeError, AssertionError) as e:
            raise ConfigError(f"{model!r} is not a sentence encoder that runs on {device!r}: {first_line(e)}") from e

    def __repr__(self) -> str:
        """What the vectors depend on, by which an interrupted build knows its encoder."""
        return self._name

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Return the vectors, [texts, dimensions]. Raises BackendError if the model fails."""
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))  # texts of a batch are padded alike
        vectors: list[np.ndarray] = []
        for first in range(0, len(order), self._batch):
            try:
                vectors.append(self._encode([texts[number] for number in order[first : first + self._batch]]))
            except RuntimeError as e:
                raise BackendError(f"{self._name} failed: {first_line(e)}") from e
        return np.concatenate(vectors)[np.argsort(order)]

    def _encode(self, texts: list[str]) -> np.ndarray:
        import torch

        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        with self._lock, torch.inference_mode():
            tokens = self._tokenizer(
                texts, padding=True, truncation=True, max_length=self._max_length, return_tensors="pt"
            ).to(self._model.device)
            states, mask = self._model(**tokens).last_hidden_state.float(), tokens["attention_mask"]  # [texts, tokens]
            if self._pooling == "mean":
                pooled = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
            else:
                places = mask.sum(1) - 1 if self._pooling == "last" else torch.zeros_like(mask[:, 0])
                pooled = states[torch.arange(len(texts), device=states.device), places]
            return torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()
