"""What a browser shows: the page of `agentr1 view`, the server that follows a run, and what pages are made of."""
