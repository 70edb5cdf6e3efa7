"""What decides whether an outcome is right: it reads a spool without the verbs, and compares it
with what must be there."""
