"""The kinds of trials: what is broken, and when."""
