"""Questions and passages: released rows and a generated encyclopaedia."""
