"""Words that all floors share: those that users write, and those that they read."""
