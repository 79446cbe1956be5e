"""Divergence from a reference: its statistics, and the reference's logits kept on disk."""
