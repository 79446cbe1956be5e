"""Every CPU kernel with its oracle and its cost: one list for the self-test, `qbench kernels` and the benchmarks."""
