// What each instruction set's copy of kernel.cpp offers to dispatch.cpp.
#pragma once
#include "scornn.h"

#define SCORNN_DECLARE(isa)                                                                             \
    namespace scornn::isa {                                                                             \
    /* Forward where gradients is NULL, else backward. */                                               \
    int run(const scornn_sequence &, const scornn_gradients *, std::int64_t begin, std::int64_t end);   \
    /* From the free numbers to W, or from the gradient of W to theirs. */                              \
    int run(const scornn_cayley &, bool backward);                                                      \
    /* A stream in `memory`: its bytes, its outputs, its begin. */                                      \
    std::int64_t prepare(const scornn_network &, std::int32_t isa, void *memory);                       \
    std::int64_t step(void *memory, bool single, std::int64_t frames, const void *x, void *y);          \
    void reset(void *memory, bool single);                                                              \
    double peak(std::int32_t dtype, std::int64_t iterations);                                           \
    }

#include <cstdint>

SCORNN_DECLARE(portable)
SCORNN_DECLARE(avx2)
SCORNN_DECLARE(avx512)

#undef SCORNN_DECLARE
