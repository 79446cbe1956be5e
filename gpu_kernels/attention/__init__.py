"""Attention over a cache of pages: latent (MLA) and grouped heads, decode and prefill.

`textbook.py` is the oracle of all, `agreement.py` the bound, `parts_triton.py` the shared parts of the kernels.
"""
