"""How attention is computed, whichever cache holds the keys: rotations, rules, plans of latent attention."""
