"""The layers of a decoder: equations over tensors, on torch or in one call of cpu_kernels."""
