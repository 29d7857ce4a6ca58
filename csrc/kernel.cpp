// One instruction set's kernel: this file is compiled once for each, with SCORNN_ISA naming its namespace.
#include "kernel.h"

#include "backward.h"
#include "forward.h"
#include "gated.h"
#include "lstm.h"
#include "bank.h"
#include "cayley.h"
#include "peak.h"
#include "structured.h"

namespace scornn {
namespace SCORNN_ISA {
namespace {

template <class T, template <class> class Act>
int run(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    return g ? Backward<T, Act>(s, *g).run(begin, end) : forward_rows<T, Act>(s, begin, end);
}

template <class T, template <class> class Act>
int run_gated(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    return g ? GatedBackward<T, Act>(s, *g).run(begin, end) : GatedForward<T, Act>(s).run(begin, end);
}

template <class T> int choose(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    if (s.map) return run_structured<T>(s, g, begin, end);
    switch (s.activation) {
        case SCORNN_IDENTITY: return run<T, Identity>(s, g, begin, end);
        case SCORNN_RELU: return run<T, ReLU>(s, g, begin, end);
        case SCORNN_LEAKY_RELU: return run<T, LeakyReLU>(s, g, begin, end);
        case SCORNN_TANH: return run<T, Tanh>(s, g, begin, end);
        case SCORNN_MODRELU: return run<T, ModReLU>(s, g, begin, end);
        case SCORNN_COMPLEX_MODRELU: return run<T, ComplexModReLU>(s, g, begin, end);
        case SCORNN_LSTM: return g ? LstmBackward<T>(s, *g).run(begin, end) : LstmForward<T>(s).run(begin, end);
        case SCORNN_GRU: return run_gated<T, Tanh>(s, g, begin, end);
        case SCORNN_GORU: return run_gated<T, ModReLU>(s, g, begin, end);
        case SCORNN_BANK: return run_rotations<T>(s, g, begin, end);
        default: return SCORNN_INVALID;
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

double peak(std::int32_t dtype, i64 iterations) {
    return dtype == SCORNN_FLOAT32 ? peak_of<float>(iterations) : peak_of<double>(iterations);
}

}  // namespace SCORNN_ISA
}  // namespace scornn
