"""Service worlds: domains, rule books, customers with wishes, and what is right."""
