"""The generated encyclopaedia and its questions."""
