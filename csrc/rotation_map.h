// W = diag(e^{i omega}) R_L ... R_1 of the EURNN, on states in lanes: a layer R turns disjoint pairs of units,
//
//     h_a' = cos h_a - e^{i phi} sin h_b,   h_b' = sin h_a + e^{i phi} cos h_b;
//
// real units have neither phi nor omega.
#pragma once
#include <type_traits>

#include "lanes.h"
#include "scornn.h"

namespace scornn::SCORNN_ISA {

template <class T, bool kComplex> class RotationMap {
  public:
    static constexpr int kParts = kComplex ? 2 : 1;

    // False where memory is short.
    bool prepare(const scornn_map &map, i64 n, bool gradients) {
        n_ = n, layers_ = map.layers, layer_ = map.index;
        turn_ = static_cast<const T *>(map.factor[0]);
        phase_ = static_cast<const T *>(map.factor[1]);
        last_ = static_cast<const T *>(map.factor[2]);
        pairs_ = 0;
        for (i64 k = 0; k < layers_; ++k) pairs_ += layer_[3 * k + 2];
        if (!kept_.allocate(larger<i64>(layers_, 1) * n * kParts)) return false;
        return !gradients || (angles_.allocate(pairs_) && phases_.allocate(kComplex ? pairs_ : 0) &&
                              omega_.allocate(kComplex ? n : 0));
    }

    // Makes W h, of which result() tells the units. Keeps the state after each layer.
    void forward(const T *h) {
        i64 first = 0;  // pair of the layer
        for (i64 k = 0; k < layers_; ++k) {
            const T *from = before(h, k);
            T *to = after(k);
            copy_rest(from, to, k);
            for_pairs(k, [&](i64 p, i64 a, i64 b) {
                const Vec<T> c = broadcast<T>(turn_[2 * (first + p)]), s = broadcast<T>(turn_[2 * (first + p) + 1]);
                Unit x = get(from, a), y = get(from, b);
                if constexpr (kComplex) y = y * broadcast_complex(phase_ + 2 * (first + p));
                put(to, a, combine(c, x, -s, y));
                put(to, b, combine(s, x, c, y));
            });
            first += layer_[3 * k + 2];
        }
        turned_ = before(h, layers_);
    }

    // The units [i, end) of W h.
    void result(i64 i, i64 end, T *z) const {
        for (i64 k = 0; i < end; ++i, ++k) {
            if constexpr (kComplex) {
                put(z, k, get(turned_, i) * broadcast_complex(last_ + 2 * i));
            } else {
                put(z, k, get(turned_, i));
            }
        }
    }

    // Before backward, for all units in turn: g = dL/dz of z = result(), with the gradient of omega, becomes what stands
    // before w.
    void enter([[maybe_unused]] i64 i, [[maybe_unused]] i64 end, [[maybe_unused]] const T *z, [[maybe_unused]] T *g) {
        if constexpr (kComplex)
            for (i64 k = 0; i < end; ++i, ++k) {
                const Unit e = get(g, k);
                omega_.add(i, times_conj(e, get(z, k)).im);
                put(g, k, times_conj(e, broadcast_complex(last_ + 2 * i)));
            }
    }

    // From what enter() left in g to dL/dh there, for the h of the last call of forward, with the factors' gradients.
    void backward(const T *h, T *g) {
        i64 first = pairs_;
        for (i64 k = layers_ - 1; k >= 0; --k) {
            first -= layer_[3 * k + 2];
            const T *from = before(h, k), *to = after(k);
            for_pairs(k, [&](i64 p, i64 a, i64 b) {
                const Vec<T> c = broadcast<T>(turn_[2 * (first + p)]), s = broadcast<T>(turn_[2 * (first + p) + 1]);
                const Unit x = get(g, a), y = get(g, b);
                angles_.add(first + p, inner(y, get(to, a)) - inner(x, get(to, b)));
                put(g, a, combine(c, x, s, y));
                Unit turned = combine(c, y, -s, x);
                if constexpr (kComplex) {
                    turned = times_conj(turned, broadcast_complex(phase_ + 2 * (first + p)));
                    phases_.add(first + p, times_conj(turned, get(from, b)).im);
                }
                put(g, b, turned);
            });
        }
    }

    void flush() {
        angles_.flush();
        phases_.flush();
        omega_.flush();
    }

    // The sums: of theta and phi (pairs of all layers), and of omega (n).
    void write(void *const (&factor)[3]) {
        LaneSums<T> *sums[3] = {&angles_, &phases_, &omega_};
        const i64 count[3] = {pairs_, kComplex ? pairs_ : 0, kComplex ? n_ : 0};
        for (int f = 0; f < 3; ++f)
            for (i64 i = 0; factor[f] && i < count[f]; ++i) static_cast<T *>(factor[f])[i] = *sums[f]->total(i);
    }

  private:
    static constexpr i64 kUnit = kParts * kWidth<T>;
    struct Real {
        Vec<T> re;
    };
    using Unit = typename std::conditional<kComplex, Complex<T>, Real>::type;

    static SCORNN_INLINE Unit get(const T *h, i64 i) {
        if constexpr (kComplex) {
            return load_complex(h + i * kUnit);
        } else {
            return {load(h + i * kUnit)};
        }
    }
    static SCORNN_INLINE void put(T *h, i64 i, Unit v) {
        store(h + i * kUnit, v.re);
        if constexpr (kComplex) store(h + i * kUnit + kWidth<T>, v.im);
    }
    static SCORNN_INLINE Unit combine(Vec<T> a, Unit x, Vec<T> b, Unit y) {
        if constexpr (kComplex) {
            return {a * x.re + b * y.re, a * x.im + b * y.im};
        } else {
            return {a * x.re + b * y.re};
        }
    }
    static SCORNN_INLINE Vec<T> inner(Unit x, Unit y) {  // as pairs of reals
        if constexpr (kComplex) {
            return x.re * y.re + x.im * y.im;
        } else {
            return x.re * y.re;
        }
    }

    T *after(i64 layer) { return kept_.at(layer * n_ * kParts); }
    const T *before(const T *h, i64 layer) { return layer ? after(layer - 1) : h; }

    template <class Run> SCORNN_INLINE void for_pairs(i64 layer, Run run) const {
        const i64 offset = layer_[3 * layer], stride = layer_[3 * layer + 1], pairs = layer_[3 * layer + 2];
        if (stride == 1) {
            for (i64 p = 0; p < pairs; ++p) run(p, offset + 2 * p, offset + 2 * p + 1);
            return;
        }
        for (i64 p = 0, a = offset; p < pairs; a += 2 * stride)
            for (i64 i = 0; i < stride; ++i, ++p) run(p, a + i, a + i + stride);
    }

    // Units that are in no pair.
    void copy_rest(const T *from, T *to, i64 layer) const {
        const i64 offset = layer_[3 * layer], end = offset + 2 * layer_[3 * layer + 2];
        std::memcpy(to, from, offset * kUnit * sizeof(T));
        std::memcpy(to + end * kUnit, from + end * kUnit, (n_ - end) * kUnit * sizeof(T));
    }

    i64 n_ = 0, layers_ = 0, pairs_ = 0;
    const i64 *layer_ = nullptr;
    const T *turn_ = nullptr, *phase_ = nullptr, *last_ = nullptr;
    const T *turned_ = nullptr;  // the state after the last layer
    Lanes<T> kept_;
    LaneSums<T> angles_, phases_, omega_;
};

}  // namespace scornn::SCORNN_ISA
