"""flatq: the Python side of the message queue in POSIX shell."""
