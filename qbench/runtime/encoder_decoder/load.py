"""From a source to an encoder-decoder that runs."""

from qbench.run.choices import FAST, check_compute, set_threads
from qbench.runtime.encoder_decoder.model import Attention, DecoderLayer, EncoderDecoder, EncoderLayer
from qbench.runtime.encoder_decoder.relative_bias import RelativeBias
from qbench.runtime.layers.builder import Builder
from qbench.runtime.layers.embedding import Embedding
from qbench.runtime.layers.feed_forward import FeedForward
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.linear import choose_linear
from qbench.runtime.layers.norm import RMSNorm
from qbench.runtime.load import IMPL_OF
from quant.models.encoder_decoder import (
    BIAS,
    DECODER_NORM,
    ENCODER_NORM,
    HEAD,
    SHARED,
    EncoderDecoderConfig,
    net_inputs,
)
from quant.source import Source


def load_encoder_decoder(
    source: Source, *, impl: str = "auto", compute: str = FAST, threads: int | None = None
) -> EncoderDecoder:
    """The source's model, ready to run; parameters as those of `load_model`.

    raises   InputError for a config that does not fit
    """
    check_compute(compute)
    if impl == "auto":
        impl = IMPL_OF[compute]
    set_threads(threads)
    choose_linear("f32", impl)
    return _Loader(source, impl).model()


class _Loader(Builder):
    def __init__(self, source: Source, impl: str) -> None:
        super().__init__(source.read, impl)
        self.config = EncoderDecoderConfig.of(source)

    def model(self) -> EncoderDecoder:
        config = self.config
        embedding, head = self.tied() if config.tie_word_embeddings else self.untied()
        return EncoderDecoder(
            config,
            embedding,
            [self.encoder_layer(f"encoder.block.{layer}.layer") for layer in range(config.num_encoder_layers)],
            self.bias("encoder", is_two_way=True),
            self.norm(ENCODER_NORM),
            [self.decoder_layer(f"decoder.block.{layer}.layer") for layer in range(config.num_layers)],
            self.bias("decoder", is_two_way=False),
            self.norm(DECODER_NORM),
            head,
            self.impls,
            self.weight_bytes,
        )

    def tied(self) -> tuple[Embedding, FusedLinears]:
        table, head = self.tied_table(SHARED, SHARED)
        return Embedding(table, self.config.vocab_size), head

    def untied(self) -> tuple[Embedding, FusedLinears]:
        return Embedding(self.stored_table(SHARED), self.config.vocab_size), self.linears(HEAD)

    def encoder_layer(self, prefix: str) -> EncoderLayer:
        return EncoderLayer(self.attention(f"{prefix}.0", "SelfAttention", "qkv"), *self.net(f"{prefix}.1"))

    def decoder_layer(self, prefix: str) -> DecoderLayer:
        return DecoderLayer(
            self.attention(f"{prefix}.0", "SelfAttention", "qkv"),
            self.attention(f"{prefix}.1", "EncDecAttention", "q"),
            self.linears(*(f"{prefix}.1.EncDecAttention.{name}" for name in "kv")),
            *self.net(f"{prefix}.2"),
        )

    def attention(self, prefix: str, name: str, projections: str) -> Attention:
        module = f"{prefix}.{name}"
        inputs = self.linears(*(f"{module}.{letter}" for letter in projections))
        return Attention(self.norm(f"{prefix}.layer_norm"), inputs, self.linears(f"{module}.o"), self.config.head_dim)

    def net(self, prefix: str) -> tuple[RMSNorm, FeedForward]:
        inputs = self.linears(*(f"{prefix}.{name}" for name in net_inputs(self.config)))
        output = self.linears(f"{prefix}.DenseReluDense.wo")
        return self.norm(f"{prefix}.layer_norm"), FeedForward(inputs, output, self.config.activation)

    def bias(self, stack: str, *, is_two_way: bool) -> RelativeBias:
        table = self.vector(BIAS.format(stack))
        self.weight_bytes += table.nbytes
        return RelativeBias(table, self.config.max_distance, is_two_way=is_two_way)

    def norm(self, name: str) -> RMSNorm:
        return self.rms_norm(name, self.config.norm_eps)
