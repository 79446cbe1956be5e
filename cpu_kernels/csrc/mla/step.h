// Absorbed latent attention of new tokens as one call: norm, rotation, store, queries to latents, attention, values.
#pragma once

#include <cstdint>

#include "attention/attention.h"
#include "fused/row_steps.h"
#include "mla/heads.h"

namespace qk::mla {

// M new tokens, of any sequences. All are stored before any is attended to, so those of one sequence see each other.
struct Step {
    const HeadMatrices* keys;    // [H, N, R]: a query's unrotated part to its part for latents
    const HeadMatrices* values;  // [H, R, V]: a sum of latents to one of values
    int64_t rotated;             // D: channels behind N of a query and behind R of a row, in pairs of neighbours
    const float* q;              // [M, H * (N + D)] as projected; rows q_stride floats apart
    int64_t q_stride;
    const float* latent;  // [M, R + D] as projected
    int64_t latent_stride;
    const float* norm;  // [R]
    float eps;
    attention::Rotation rotation;    // of M tokens
    attention::Latents latents;      // where rows are stored: its data may be written
    attention::Sequences sequences;  // of M: the place of each token's sequence, and its length with that token
    float softmax_scale;
    int64_t window;  // tokens that each sees, the last; 0: all
    const int64_t* slots = nullptr;  // [M]: the slot of each row; null: the last one of its sequence
    attention::LatentObserved observed{};  // of M queries
};

// The chosen implementations, decided while the environment may be read.
struct Choices {
    const Impl<Kernels>* heads;
    const Impl<fused::RowSteps>* rows;
    const Impl<attention::Kernels>* attention;
};

// out [M, H * V]
void attend(const Step& step, float* out, const Choices& choices);

}  // namespace qk::mla
