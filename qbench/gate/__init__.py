"""The gate: whether a change made anything worse than the baseline, and how sure that is."""
