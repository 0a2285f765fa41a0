"""What clients of HTTP servers share: the check of an address, and requests with an error for each failure."""
