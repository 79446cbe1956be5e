"""The machine that measures: what it is, what else it does meanwhile, what it spends."""
