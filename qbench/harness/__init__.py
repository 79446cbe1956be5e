"""The harness: what is measured of a model, how, and the records that keep it."""
