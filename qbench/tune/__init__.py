"""Switch points of the kernels, measured on this machine: `qbench tune`."""
