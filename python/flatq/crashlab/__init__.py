"""The crash laboratory: faults at every call that changes a spool, and what is left after them."""
