"""Protocols of perplexity: how a text becomes windows of tokens, and what is scored of them."""
