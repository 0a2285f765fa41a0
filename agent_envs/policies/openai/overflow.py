"""How servers say that a request does not fit the model's context."""

from __future__ import annotations

import re

__all__ = ["is_overflow"]

_WORDS = (
    r"context_length_exceeded",  # OpenAI's code, and that of lmdeploy, Groq and Azure
    r"maximum context length",  # OpenAI, vLLM, DeepSeek, Mistral; SGLang for prompt and response together
    r"maximum prompt length is \d",  # xAI
    r"model'?s? context length",  # SGLang, vLLM: "... is longer than the model's"; lmdeploy: "exceeds the model"
    r"max_tokens must be at least 1, got -",  # vLLM, where the prompt leaves no room
    r"decoder prompt \(length \d+\) is longer than the maximum model length",  # vLLM, pictures counted
    r"prompt \(total length \d+\) is too long to fit into the model",  # vLLM before 0.8, pictures counted
    r"input length \(\d+( tokens)?\) exceeds the maximum allowed length",  # SGLang
    r"`inputs` must have less than \d+ tokens",  # TGI
    r"`inputs` tokens \+ `max_new_tokens` must be <=",  # TGI, Together
    r"prompt is too long: \d+ tokens > \d+",  # Anthropic
    r"input length and `?max_tokens`? exceed context limit",  # Anthropic
    r"input is too long for (the )?requested model",  # Anthropic on Bedrock
    r"input token count.{0,40}exceeds the maximum number of tokens",  # Gemini
    r"exceed_context_size|exceeds the available context size",  # llama.cpp
    r"exceeded max context length|input length exceeds the context length",  # Ollama
    r"exceeds? `?session_len",  # lmdeploy's turbomind engine
    r"exceeded model token limit",  # Kimi
)
_OVERFLOW = re.compile("|".join(_WORDS), re.IGNORECASE)


def is_overflow(message: str) -> bool:
    """Return whether a server's error says that a prompt, or a prompt and its response, is too long for the model.

    >>> is_overflow("This model's maximum context length is 16 tokens."), is_overflow("Too many tokens per minute")
    (True, False)
    """
    return _OVERFLOW.search(message) is not None
