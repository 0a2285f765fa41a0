"""A policy that asks any server with OpenAI's chat-completions API."""
