"""BM25 with Lucene's results, without Java."""
