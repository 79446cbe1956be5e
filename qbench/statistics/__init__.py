"""Differences with their intervals: paired wherever both sides saw the same text, items or moments.

Import each name from its module. Command lines read records, whose classes need `estimate` and no numpy.
"""
