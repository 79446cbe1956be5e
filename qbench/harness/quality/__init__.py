"""Perplexity under the conventions of the field, from a text to the numbers."""
