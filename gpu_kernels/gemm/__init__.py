"""Matrix products of quantized weights and activations."""
