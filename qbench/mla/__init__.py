"""`qbench mla`: what each way to attend by multi-head latent attention costs, counted and measured."""
