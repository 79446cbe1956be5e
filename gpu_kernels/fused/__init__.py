"""Steps between the products, each with what follows it in the same pass over memory."""
