"""Options of a run: devices, precisions, caches and ranks, by the names that users give."""
