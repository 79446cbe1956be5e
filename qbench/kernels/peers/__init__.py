"""Others' linears on the same weights, run by the libraries that carry them."""
