"""The machine, the model under test, and the records of what was measured."""
