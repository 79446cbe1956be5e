"""The same sweep on the nodes of a Ray cluster."""
