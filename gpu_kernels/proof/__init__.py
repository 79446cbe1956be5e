"""Proof of the kernels: what each is checked, compiled and timed on, with a GPU and without one."""
