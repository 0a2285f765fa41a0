"""What a chat model is shown: messages, and their tokens."""
