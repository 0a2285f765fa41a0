"""Text generation from Hugging Face causal models in this process, many requests at once, log-probabilities included.

Two engines with the same methods: `slot_engine.BatchEngine`, which requests join and leave at any token and which keeps
what it has computed, for models with plain full attention; `padded_engine.PaddedEngine`, which runs one batch after the
other with Transformers' own `generate`, for every other model. `server.GenerateServer` serves either to coroutines.
"""

__all__: list[str] = []
