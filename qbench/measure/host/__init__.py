"""The machine that measures: its hardware, its other load meanwhile, its energy."""
