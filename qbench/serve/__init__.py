"""A model over HTTP, in the words of the OpenAI API: what speaks it, client or load generator, runs against it."""
