"""Generated rule books and conversations' worlds."""
