"""Questions over a table that programs read as a CSV file."""
