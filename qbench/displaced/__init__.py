"""Displaced patches: a small diffusion transformer on several ranks, with activations of the step before."""
