"""Text generation with Hugging Face causal models in this process, many requests at once, log-probabilities included.

Two engines with the same methods: `engine.BatchEngine`, whose requests join and leave at any token and reuse what has
been computed, for models with plain full attention; `padded_engine.PaddedEngine`, which runs one batch after the other
with Transformers' own `generate`, for all other models. `loading.make_engine` picks one; `server.GenerateServer` serves
it to coroutines.
"""

__all__: list[str] = []
