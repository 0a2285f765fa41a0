"""Recorded episodes: the records, their files, and everything computed or drawn from them."""
