"""Text to search terms, as Lucene's English analyzer makes them."""
