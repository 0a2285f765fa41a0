"""Generated tables, and questions with the programs that answer them."""
