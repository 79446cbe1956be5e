"""`qbench mla`: the cost of each mode of multi-head latent attention, counted and measured."""
