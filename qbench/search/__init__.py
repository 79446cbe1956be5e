"""The search for the best mixed-precision file: from a budget to a recipe that is checked on held-out text."""
