"""Training of the reference models, apart from the package: `python -m training.train`, `distil` and `lengthen`."""
