"""Steps between the products, each fused with the next in the same pass over memory."""
