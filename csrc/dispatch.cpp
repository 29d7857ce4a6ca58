// The C interface: checks its arguments and hands them to the instruction set that was asked for.
#include "kernel.h"

namespace {

bool supported(std::int32_t isa) {
    switch (isa) {
        case SCORNN_ISA_PORTABLE: return true;
#if defined(SCORNN_AVX2)  // __builtin_cpu_supports also asks whether the system saves the wide registers
        case SCORNN_ISA_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(SCORNN_AVX512)
        case SCORNN_ISA_AVX512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
        default: return false;
    }
}

std::int32_t best() {
    for (std::int32_t isa = SCORNN_ISA_AVX512; isa > SCORNN_ISA_PORTABLE; --isa)
        if (supported(isa)) return isa;
    return SCORNN_ISA_PORTABLE;
}

std::int32_t run(const scornn_sequence *s, const scornn_gradients *g, std::int64_t begin, std::int64_t end) {
    if (!s || s->steps < 1 || s->batch < 0 || s->hidden < 1 || s->input < 1 || begin < 0 || begin > end ||
        end > s->batch || (s->dtype != SCORNN_FLOAT32 && s->dtype != SCORNN_FLOAT64) ||
        (s->activation == SCORNN_COMPLEX_MODRELU && s->hidden % 2 != 0))
        return SCORNN_INVALID;
    const std::int32_t isa = s->isa == SCORNN_ISA_BEST ? best() : s->isa;
    if (!supported(isa)) return SCORNN_INVALID;
    switch (isa) {
#if defined(SCORNN_AVX2)
        case SCORNN_ISA_AVX2: return scornn::avx2::run(*s, g, begin, end);
#endif
#if defined(SCORNN_AVX512)
        case SCORNN_ISA_AVX512: return scornn::avx512::run(*s, g, begin, end);
#endif
        default: return scornn::portable::run(*s, g, begin, end);
    }
}

}  // namespace

std::int32_t scornn_abi_version(void) { return SCORNN_ABI_VERSION; }

std::int32_t scornn_isa_supported(std::int32_t isa) { return supported(isa); }

std::int32_t scornn_best_isa(void) { return best(); }

std::int32_t scornn_forward(const scornn_sequence *s, std::int64_t begin, std::int64_t end) {
    return run(s, nullptr, begin, end);
}

std::int32_t scornn_backward(const scornn_sequence *s, const scornn_gradients *g, std::int64_t begin, std::int64_t end) {
    return g ? run(s, g, begin, end) : std::int32_t(SCORNN_INVALID);
}

double scornn_peak(std::int32_t dtype, std::int32_t isa, std::int64_t iterations) {
    switch (isa == SCORNN_ISA_BEST ? best() : isa) {
#if defined(SCORNN_AVX2)
        case SCORNN_ISA_AVX2: return supported(SCORNN_ISA_AVX2) ? scornn::avx2::peak(dtype, iterations) : 0;
#endif
#if defined(SCORNN_AVX512)
        case SCORNN_ISA_AVX512: return supported(SCORNN_ISA_AVX512) ? scornn::avx512::peak(dtype, iterations) : 0;
#endif
        default: return scornn::portable::peak(dtype, iterations);
    }
}
