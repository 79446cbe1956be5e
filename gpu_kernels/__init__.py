"""Triton kernels, one op a file pair: `op.py` has the maths, the oracle and the checks, `op_triton.py` the kernel."""
