"""Text generation with Hugging Face causal models in this process; `loading.make_engine` picks one of two engines."""
