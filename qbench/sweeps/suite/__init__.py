"""Suites: what to measure, as data, and the cases that it comes to."""
