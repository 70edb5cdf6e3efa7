"""What holds the calls of a process tree, and breaks one of them."""
