"""Calibration: statistics of the inputs of each linear, one decoder layer at a time."""
