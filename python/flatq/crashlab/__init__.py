"""The crash laboratory: it makes a fault at every call that changes a spool, and checks what is
left. README.md has the overview."""
