// h_t = act(W h_{t-1} + U x_t) where W is a map of states in lanes (fourier_map.h, rotation_map.h), for the rows of a
// shard, kWidth of them at a time through all steps.
//
// Lanes of rows that are not alive at a step hold zeros in the backward pass and anything in the forward pass; no number
// of another row depends on them.
#pragma once
#include "activation.h"
#include "fourier_map.h"
#include "rotation_map.h"
#include "sequence.h"

namespace scornn::SCORNN_ISA {

// The activations on units in lanes. backward takes z, since the backward pass makes it anew on its way.
template <class T, template <class> class Act> struct RealUnit {
    using V = Vec<T>;
    static constexpr int kParts = 1;
    static SCORNN_INLINE void forward(V (&z)[1], V b) { z[0] = Act<T>::forward(z[0], b); }
    static SCORNN_INLINE V backward(V (&dh)[1], V (&z)[1], V b) {
        V db;
        dh[0] = Act<T>::backward(dh[0], Act<T>::forward(z[0], b), b, db);
        return db;
    }
};

// With r = |z|, u = z / r and c = <dh, u>: ComplexModReLU of activation.h.
template <class T> struct ComplexUnit {
    using V = Vec<T>;
    static constexpr int kParts = 2;
    static constexpr T eps = ComplexModReLU<T>::eps;

    // z = scale (near[0] + i near[1]) with a power of two, so that the squares neither overflow nor underflow. Numbers
    // too small for an exponent of their own have scale 0: beside eps their length is nothing.
    static SCORNN_INLINE V split(const V (&z)[2], V (&near)[2], V &inverse, V &largest) {
        using Word = typename Lane<T>::Bits;
        constexpr Word one = Word(1) << Exp<T>::mantissa, most = 2 * Exp<T>::bias;  // exponents go from 0 to most + 1
        const Bits<T> high = (most - 1) * one - Bits<T>{};
        const V x = absolute<T>(z[0]), y = absolute<T>(z[1]);
        largest = x > y ? x : y;
        Bits<T> exponent = bits<T>(largest) & ((most + 1) * one);
        exponent = exponent < high ? exponent : high;
        inverse = (V)(most * one - exponent);
        near[0] = z[0] * inverse;
        near[1] = z[1] * inverse;
        return (V)exponent;
    }
    static SCORNN_INLINE V length(const V (&near)[2]) { return square_root<T>(near[0] * near[0] + near[1] * near[1]); }

    static SCORNN_INLINE void forward(V (&z)[2], V b) {
        V near[2], inverse, largest;
        const V scale = split(z, near, inverse, largest), r = scale * length(near), a = r + b, gain = a / (r + eps);
        z[0] = a <= T(0) ? V{} : z[0] * gain;
        z[1] = a <= T(0) ? V{} : z[1] * gain;
    }
    // With l = r / scale and t = (r + eps) / scale, one division gives 1 / t and 1 / (l t).
    static SCORNN_INLINE V backward(V (&dh)[2], V (&z)[2], V b) {
        V near[2], inverse, largest;
        const V scale = split(z, near, inverse, largest), l = length(near), t = l + eps * inverse, by_lt = T(1) / (l * t);
        const V a = scale * l + b, by_t = l * by_lt, db = (dh[0] * near[0] + dh[1] * near[1]) * by_t, zero{};
        const V gain = a * (by_t * inverse), bend = db * (eps - b) * (by_lt * inverse);
        const auto silent = (a <= T(0)) | (l == T(0)) | (largest * gain == T(0));  // h is 0
        dh[0] = silent ? zero : gain * dh[0] + bend * near[0];
        dh[1] = silent ? zero : gain * dh[1] + bend * near[1];
        return silent ? zero : db;
    }
};

// Components that are taken through several short loops while they are in the first cache. Short loops, since a square
// root and a division wait long, and the processor starts on the next units only if the loop is short.
template <class T> constexpr i64 kPiece = larger(64, 2 * kWidth<T>);

template <class T> using LaneRows = const T *[kWidth<T>];

// z += U x for one unit; x in lanes.
template <class T, int kParts> SCORNN_INLINE void add_input(Vec<T> (&z)[kParts], const T *U, const T *x, i64 m) {
    for (i64 j = 0; j < m; ++j)
        for (int part = 0; part < kParts; ++part) z[part] += broadcast<T>(U[part * m + j]) * load(x + j * kWidth<T>);
}

template <class T, class Map, class Unit> class LaneForward {
  public:
    explicit LaneForward(const scornn_sequence &s) : s_(s), n_(s.hidden), m_(s.input) {}

    int run(i64 row_begin, i64 row_end) {
        if (!map_.prepare(*s_.map, n_ / kParts, false) || !h_.allocate(n_) || !x_.allocate(m_))
            return SCORNN_OUT_OF_MEMORY;
        for (i64 begin = row_begin; begin < row_end; begin += kWidth<T>)
            run_rows(begin, smaller<i64>(kWidth<T>, row_end - begin));
        return SCORNN_OK;
    }

  private:
    static constexpr int kParts = Unit::kParts;
    static_assert(kParts == Map::kParts);

    void run_rows(i64 begin, i64 rows) {
        std::memset(h_.at(0), 0, n_ * kWidth<T> * sizeof(T));
        walk<T>(
            s_, begin, rows,
            [this](const Block<T> &block, i64 r) { put_lane(h_.at(0), r, block.first(s_.h0, n_) + r * n_, 1, n_); },
            [this](const Block<T> &block) { step(block); },
            [this](const Block<T> &block, i64 r) {
                std::memcpy(block.first(s_.h_n, n_) + r * n_, block.at(s_.output, n_) + r * n_, n_ * sizeof(T));
            });
    }

    void step(const Block<T> &block) {
        const i64 alive = block.alive();
        const T *x = block.find(s_.x, s_.x_stride), *U = static_cast<const T *>(s_.U), *b = static_cast<const T *>(s_.b);
        for (i64 r = 0; r < alive; ++r) put_lane(x_.at(0), r, x + r * s_.x_stride[1], s_.x_stride[2], m_);
        map_.forward(h_.at(0));
        T *out = block.at(s_.output, n_);
        for (i64 first = 0; first < n_; first += kPiece<T>) {
            const i64 end = smaller<i64>(n_, first + kPiece<T>);
            map_.result(first / kParts, end / kParts, h_.at(first));
            for (i64 i = first; i < end; i += kParts) {
                Vec<T> z[kParts];
                for (int part = 0; part < kParts; ++part) z[part] = load(h_.at(i + part));
                add_input<T, kParts>(z, U + i * m_, x_.at(0), m_);
                Unit::forward(z, b ? broadcast<T>(b[i / kParts]) : Vec<T>{});
                for (int part = 0; part < kParts; ++part) store(h_.at(i + part), z[part]);
            }
            from_lanes(h_.at(first), alive, end - first, out + first, n_);
        }
    }

    const scornn_sequence &s_;
    const i64 n_, m_;
    Map map_;
    Lanes<T> h_, x_;
};

// From h_{t-1} alone: W h_{t-1} is made anew, with what the gradients of its factors need on the way.
template <class T, class Map, class Unit> class LaneBackward {
  public:
    LaneBackward(const scornn_sequence &s, const scornn_gradients &g)
        : s_(s), g_(g), n_(s.hidden), m_(s.input), U_(static_cast<const T *>(s.U)) {}

    int run(i64 row_begin, i64 row_end) {
        if (!map_.prepare(*s_.map, n_ / kParts, true) || !zero_.allocate(larger<i64>(n_, m_)) || !h_.allocate(n_) ||
            !z_.allocate(kPiece<T>) || !carry_.allocate(n_) || !g_lanes_.allocate(n_) || !x_.allocate(m_) || !dx_.allocate(m_) ||
            !db_.allocate(n_ / kParts) || !dU_.allocate(g_.U ? n_ * m_ : 0))
            return SCORNN_OUT_OF_MEMORY;
        for (i64 begin = row_begin; begin < row_end; begin += kWidth<T>)
            run_rows(begin, smaller<i64>(kWidth<T>, row_end - begin));
        map_.write(g_.factor);
        for (i64 i = 0; g_.b && i < n_ / kParts; ++i) static_cast<T *>(g_.b)[i] = *db_.total(i);
        for (i64 i = 0; g_.U && i < n_ * m_; ++i) static_cast<T *>(g_.U)[i] = *dU_.total(i);
        return SCORNN_OK;
    }

  private:
    static constexpr int kParts = Unit::kParts;
    static constexpr i64 kChain = 128;  // steps that are summed before they go into the totals

    void run_rows(i64 begin, i64 rows) {
        std::memset(carry_.at(0), 0, n_ * kWidth<T> * sizeof(T));
        walk_back<T>(
            s_, begin, rows,
            [this](const Block<T> &block, i64 r) {
                if (g_.h_n) put_lane(carry_.at(0), r, block.first(g_.h_n, n_) + r * n_, 1, n_);
            },
            [this](const Block<T> &block) { step(block); },
            [this](const Block<T> &block, i64 r) {
                if (g_.h0) get_lane(carry_.at(0), r, block.first(g_.h0, n_) + r * n_, n_);
                put_lane(carry_.at(0), r, zero_.data(), 0, n_);
            });
    }

    void step(const Block<T> &block) {
        const i64 alive = block.alive(), before = block.alive(-1);
        const T *h = block.at(s_.output, n_) + block.rows_to(-1) * n_, *h0 = block.first(s_.h0, n_);
        LaneRows<T> from;
        for (i64 r = 0; r < kWidth<T>; ++r) from[r] = r < before ? h + r * n_ : r < alive ? h0 + r * n_ : zero_.data();
        to_lanes<T>(from, 1, n_, h_.at(0));
        gather(block, s_.x, s_.x_stride, alive, m_, x_);
        if (g_.output) gather(block, g_.output, g_.output_stride, alive, n_, g_lanes_);
        map_.forward(h_.at(0));
        differentiate();
        for (i64 r = 0; g_.x && r < alive; ++r) get_lane(dx_.at(0), r, block.at(g_.x, m_) + r * m_, m_);
        map_.backward(h_.at(0), carry_.at(0));
        if (block.index() % kChain == 0) {
            map_.flush();
            db_.flush();
            dU_.flush();
        }
    }

    // The rows of a step, with any strides, into lanes.
    void gather(const Block<T> &block, const void *base, const i64 (&stride)[3], i64 alive, i64 count, Lanes<T> &to) {
        const T *row = block.find(base, stride);
        if (stride[2] == 1) {
            LaneRows<T> from;
            for (i64 r = 0; r < kWidth<T>; ++r) from[r] = r < alive ? row + r * stride[1] : zero_.data();
            return to_lanes<T>(from, 1, count, to.at(0));
        }
        for (i64 r = 0; r < kWidth<T>; ++r)
            put_lane(to.at(0), r, r < alive ? row + r * stride[1] : zero_.data(), r < alive ? stride[2] : 0, count);
    }

    // From dh in carry_ to what the map takes there; with the gradients of x, U and b.
    void differentiate() {
        if (g_.x) std::memset(dx_.at(0), 0, m_ * kWidth<T> * sizeof(T));
        for (i64 first = 0; first < n_; first += kPiece<T>) {
            const i64 end = smaller<i64>(n_, first + kPiece<T>);
            map_.result(first / kParts, end / kParts, z_.at(0));
            activate(first, end);
            for (i64 j = 0; g_.U && j < m_; ++j) {
                const Vec<T> x = load(x_.at(j));
                for (i64 i = first; i < end; ++i) dU_.add(i * m_ + j, load(carry_.at(i)) * x);
            }
            for (i64 j = 0; g_.x && j < m_; ++j) {
                Vec<T> sum = load(dx_.at(j));
                for (i64 i = first; i < end; ++i) sum += broadcast<T>(U_[i * m_ + j]) * load(carry_.at(i));
                store(dx_.at(j), sum);
            }
            map_.enter(first / kParts, end / kParts, z_.at(0), carry_.at(first));
        }
    }

    // From dh to dz, for z without U x in z_.
    void activate(i64 first, i64 end) {
        const T *b = static_cast<const T *>(s_.b);
        for (i64 i = first; i < end; i += kParts) {
            Vec<T> z[kParts], d[kParts];
            for (int part = 0; part < kParts; ++part) {
                z[part] = load(z_.at(i - first + part));
                d[part] = load(carry_.at(i + part));
                if (g_.output) d[part] += load(g_lanes_.at(i + part));
            }
            add_input<T, kParts>(z, U_ + i * m_, x_.at(0), m_);
            db_.add(i / kParts, Unit::backward(d, z, b ? broadcast<T>(b[i / kParts]) : Vec<T>{}));
            for (int part = 0; part < kParts; ++part) store(carry_.at(i + part), d[part]);
        }
    }

    const scornn_sequence &s_;
    const scornn_gradients &g_;
    const i64 n_, m_;
    const T *const U_;
    Map map_;
    Array<T> zero_;
    Lanes<T> h_, z_, carry_, g_lanes_, x_, dx_;
    LaneSums<T> db_, dU_;
};

template <class T, class Map, class Unit>
int run_lanes(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    return g ? LaneBackward<T, Map, Unit>(s, *g).run(begin, end) : LaneForward<T, Map, Unit>(s).run(begin, end);
}

template <class T> int run_structured(const scornn_sequence &s, const scornn_gradients *g, i64 begin, i64 end) {
    if (s.map->kind == SCORNN_FOURIER) return run_lanes<T, FourierMap<T>, ComplexUnit<T>>(s, g, begin, end);
    switch (s.cell) {
        case SCORNN_COMPLEX_MODRELU: return run_lanes<T, RotationMap<T, true>, ComplexUnit<T>>(s, g, begin, end);
        case SCORNN_MODRELU: return run_lanes<T, RotationMap<T, false>, RealUnit<T, ModReLU>>(s, g, begin, end);
        case SCORNN_IDENTITY: return run_lanes<T, RotationMap<T, false>, RealUnit<T, Identity>>(s, g, begin, end);
        default: return SCORNN_INVALID;
    }
}

}  // namespace scornn::SCORNN_ISA
