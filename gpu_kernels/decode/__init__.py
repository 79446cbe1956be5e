"""A whole decode step out of the kernels, to be captured and measured."""
