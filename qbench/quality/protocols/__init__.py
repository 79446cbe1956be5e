"""Protocols of perplexity: how a text becomes windows of tokens, and which tokens are scored."""
