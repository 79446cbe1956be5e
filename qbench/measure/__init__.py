"""The machine, the model under test, and the records of measurements."""
