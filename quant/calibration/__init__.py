"""Calibration: what the inputs of each linear look like, seen one decoder layer at a time."""
