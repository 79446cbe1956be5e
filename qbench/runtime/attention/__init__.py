"""How attention is computed, whichever cache holds the keys: rotations, rules, modes of latent attention."""
