"""Encoder-decoders: the input is encoded once, and a decoder reads it at every token that it writes."""

from qbench.runtime.encoder_decoder.load import load_encoder_decoder
from qbench.runtime.encoder_decoder.model import Conditioned, EncoderDecoder

__all__ = ["Conditioned", "EncoderDecoder", "load_encoder_decoder"]
