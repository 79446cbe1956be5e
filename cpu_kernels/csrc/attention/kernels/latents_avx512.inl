// Latents with the kernels of AVX-512: they are multiplied as float32. Include it in a namespace with `this_isa`.
#ifndef QK_ATTENTION_LANES
#error "attention/kernels/latents_avx512.inl: include attention/lanes_*.inl before this file"
#endif

Isa attend_latents(const LatentRows& work) {
    avx512::attend_latents(work);
    return this_isa;
}
