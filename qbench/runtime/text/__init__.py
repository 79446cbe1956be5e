"""Between text and logits: tokenizer, sampling, generation."""
