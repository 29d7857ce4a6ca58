// One instruction set's kernel: this file is compiled once for each, with SCORNN_ISA naming its namespace.
#include "kernel.h"

#include "backward.h"
#include "forward.h"
#include "gated.h"
#include "lstm.h"
#include "bank.h"
#include "cayley.h"
#include "peak.h"
#include "stream.h"
#include "structured.h"

namespace scornn::SCORNN_ISA {
namespace {

template <class Forward, class Backward>
int run_either(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    return g ? Backward(s, *g).run(begin, end) : Forward(s).run(begin, end);
}

template <class T, template <class> class Act>
int run_dense(Name<Act>, const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    return run_either<Forward<T, Act>, Backward<T, Act>>(s, g, begin, end);
}

template <class T> int choose(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    if (s.map) return run_structured<T>(s, g, begin, end);
    switch (s.cell) {
        case SCORNN_LSTM: return run_either<LstmForward<T>, LstmBackward<T>>(s, g, begin, end);
        case SCORNN_GRU: return run_either<GatedForward<T, Tanh>, GatedBackward<T, Tanh>>(s, g, begin, end);
        case SCORNN_GORU: return run_either<GatedForward<T, ModReLU>, GatedBackward<T, ModReLU>>(s, g, begin, end);
        case SCORNN_BANK: return run_bank<T>(s, g, begin, end);
        default: return with_activation(s.cell, [&](auto act) { return run_dense<T>(act, s, g, begin, end); });
    }
}

}  // namespace

int run(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    return s.dtype == SCORNN_FLOAT32 ? choose<float>(s, g, begin, end) : choose<double>(s, g, begin, end);
}

int run(const scornn_cayley &c, bool backward) {
    if (c.dtype == SCORNN_FLOAT32) return backward ? cayley_backward<float>(c) : cayley_forward<float>(c);
    return backward ? cayley_backward<double>(c) : cayley_forward<double>(c);
}

i64 prepare(const scornn_network &net, std::int32_t isa, void *memory) {
    char *const bytes = static_cast<char *>(memory);
    return net.dtype == SCORNN_FLOAT32 ? Stream<float>::prepare(net, isa, bytes) : Stream<double>::prepare(net, isa, bytes);
}

i64 step(void *memory, bool single, i64 frames, const void *x, void *y) {
    char *const bytes = static_cast<char *>(memory);
    if (single) return Stream<float>::step(bytes, frames, static_cast<const float *>(x), static_cast<float *>(y));
    return Stream<double>::step(bytes, frames, static_cast<const double *>(x), static_cast<double *>(y));
}

void reset(void *memory, bool single) {
    char *const bytes = static_cast<char *>(memory);
    single ? Stream<float>::reset(bytes) : Stream<double>::reset(bytes);
}

double peak(std::int32_t dtype, i64 iterations) {
    return dtype == SCORNN_FLOAT32 ? peak_of<float>(iterations) : peak_of<double>(iterations);
}

}  // namespace scornn::SCORNN_ISA
