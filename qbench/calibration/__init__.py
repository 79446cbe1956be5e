"""Calibration as the command line asks for it: which text, cut how, run by which decoder."""
