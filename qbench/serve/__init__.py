"""A model over HTTP, by the OpenAI API: clients and load generators of this API work with it."""
