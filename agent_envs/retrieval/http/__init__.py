"""Search over HTTP: the client, its connections, and the server."""
