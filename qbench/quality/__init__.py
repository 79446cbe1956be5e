"""A model's perplexity and divergence on a text, from a spec to the numbers."""
