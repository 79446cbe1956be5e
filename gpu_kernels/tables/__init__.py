"""Which code runs each op on each device: one file of rows for each family of kernels."""
