// Every tile as block.h declares it, of an instruction set that has one for codes of any width. Included inside its
// namespace.

#define QK_DEFINE(sums)                                                                                             \
    Isa tile_##sums(std::span<const Stretch> stretches, const std::byte* x, size_t token_bytes, int64_t num_tokens, \
                    const Outputs& out) {                                                                           \
        return tile<Sums::sums, 8>(stretches, x, token_bytes, num_tokens, out);                                     \
    }
QK_SUMS(QK_DEFINE)
#undef QK_DEFINE
