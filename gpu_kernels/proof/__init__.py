"""Proof of the kernels: checks, compilation and timing of each, with a GPU and without one."""
