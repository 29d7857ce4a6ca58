// A sequence as the kernel walks through it: steps in the order of computation, the rows of one block of the batch.
#pragma once
#include "panel.h"
#include "scornn.h"

namespace scornn::SCORNN_ISA {

// Rows that go through time together: enough to reuse W from cache, few enough to keep their states there.
constexpr i64 kBlock = 60 / kRows * kRows;

// Calls run(begin, rows) for each block of the rows [begin, end), blocks whose sizes differ by at most one.
template <class Run> void for_each_block(i64 begin, i64 end, Run run) {
    const i64 blocks = (end - begin + kBlock - 1) / kBlock;
    for (i64 k = 0; k < blocks; ++k) {
        const i64 first = begin + k * (end - begin) / blocks;
        run(first, begin + (k + 1) * (end - begin) / blocks - first);
    }
}

// z has one column for each unit, or four gates. Then the panels of the four take turns, so that the gates of a unit
// share row and lane in panels side by side; the lanes between n and the end of a last panel are zero in the weights.
SCORNN_INLINE i64 gates_of(const scornn_sequence &s) { return s.cell == SCORNN_LSTM ? 4 : 1; }

template <class T> SCORNN_INLINE i64 columns_of_z(const scornn_sequence &s) {
    return gates_of(s) == 1 ? s.hidden : gates_of(s) * panels<T>(s.hidden) * kPanel<T>;
}

// The column of span `span`, one of `spans` whose panels take turns, that belongs to a unit.
template <class T> SCORNN_INLINE i64 interleaved(i64 spans, i64 span, i64 unit) {
    return (unit / kPanel<T> * spans + span) * kPanel<T> + unit % kPanel<T>;
}

// The column of z that row i of W, U and b makes.
template <class T> SCORNN_INLINE i64 column_of_z(const scornn_sequence &s, i64 i) {
    return interleaved<T>(gates_of(s), i / s.hidden, i % s.hidden);
}

// Panels of [W U] for z = [h x] [W U]^T: k runs over the n + m columns, panels over those of z. False: out of memory.
template <class T> bool pack_forward(const scornn_sequence &s, Panels<T> &B) {
    const i64 n = s.hidden, m = s.input;
    if (!B.allocate(n + m, columns_of_z<T>(s))) return false;
    const T *W = static_cast<const T *>(s.W), *U = static_cast<const T *>(s.U);
    for (i64 i = 0; i < gates_of(s) * n; ++i) {
        const i64 to = column_of_z<T>(s, i);
        T *column = B.at(to / kPanel<T>, 0) + to % kPanel<T>;
        for (i64 j = 0; j < n; ++j) column[j * kPanel<T>] = W[i * n + j];
        for (i64 j = 0; j < m; ++j) column[(n + j) * kPanel<T>] = U[i * m + j];
    }
    return true;
}

// Panels of V for y = h V^T: k runs over the n columns, panels over the p rows.
template <class T> bool pack_head(const scornn_sequence &s, Panels<T> &B) {
    if (!B.allocate(s.hidden, s.heads)) return false;
    const T *V = static_cast<const T *>(s.V);
    for (i64 i = 0; i < s.heads; ++i)
        for (i64 j = 0; j < s.hidden; ++j) B.put(j, i, V + i * s.hidden + j, 1, 1);
    return true;
}

// Panels of [[W U] [V 0]] for [dh dx] = [dz dy] [[W U] [V 0]]: k runs over the columns of z and those of `heads`,
// panels over the n + m columns, without dx over the first n.
template <class T> bool pack_backward(const scornn_sequence &s, i64 heads, bool dx, Panels<T> &B) {
    const i64 n = s.hidden, m = s.input, width = columns_of_z<T>(s);
    if (!B.allocate(width + heads, dx ? n + m : n)) return false;
    for (i64 i = 0; i < gates_of(s) * n; ++i) {
        const i64 row = column_of_z<T>(s, i);
        B.put(row, 0, static_cast<const T *>(s.W) + i * n, 1, n);
        if (dx) B.put(row, n, static_cast<const T *>(s.U) + i * m, 1, m);
    }
    for (i64 i = 0; i < heads; ++i) B.put(width + i, 0, static_cast<const T *>(s.V) + i * n, 1, n);
    return true;
}

// The bias by lane, as one row of panels; zero where there is none.
template <class T> bool pack_bias(const scornn_sequence &s, Panels<T> &bias) {
    if (!bias.allocate(1, columns_of_z<T>(s))) return false;
    const T *b = static_cast<const T *>(s.b);
    const i64 lanes = s.cell == SCORNN_COMPLEX_MODRELU ? 2 : 1;
    if (b)
        for (i64 i = 0; i < gates_of(s) * s.hidden; ++i) bias.put(0, column_of_z<T>(s, i), b + i / lanes, 1, 1);
    return true;
}

// Rows [begin, begin + rows) of the batch, and where the current step has them in memory. Steps count in the order of
// computation; `later` is 1 for the step after the current one, -1 for the one before.
template <class T> class Block {
  public:
    Block(const scornn_sequence &s, i64 begin, i64 rows)
        : s_(s), begin_(begin), rows_(rows), index_(0), offset_(s.reverse ? first_row_of_last_step() : 0) {}

    // Steps must be visited one after the other, since the offset of a packed step is the sum of the sizes before it.
    void move_to(i64 index) {
        while (index_ != index) {
            const i64 later = index > index_ ? 1 : -1;
            offset_ += rows_to(later);
            index_ += later;
        }
    }

    i64 index() const { return index_; }
    bool has(i64 later) const { return index_ + later >= 0 && index_ + later < s_.steps; }

    // Rows of the block that are alive at a step; none before the first step or after the last.
    i64 alive(i64 later = 0) const {
        return has(later) ? larger<i64>(0, smaller<i64>(rows_, size(time(index_ + later)) - begin_)) : 0;
    }

    // From the rows of the current step to those of a neighbour; 0 where there is none.
    i64 rows_to(i64 later) const {
        if (!has(later)) return 0;
        const i64 t = time(index_), other = time(index_ + later);
        return other > t ? size(t) : -size(other);
    }

    // Row 0 of the block at the current step in a contiguous (T, B, n) or (N, n) array, and in a (B, n) array. NULL
    // stays NULL.
    T *at(void *array, i64 n) const { return array ? static_cast<T *>(array) + (offset_ + begin_) * n : nullptr; }
    const T *at(const void *array, i64 n) const { return at(const_cast<void *>(array), n); }
    T *first(void *array, i64 n) const { return array ? static_cast<T *>(array) + begin_ * n : nullptr; }
    const T *first(const void *array, i64 n) const { return first(const_cast<void *>(array), n); }

    // Row 0 of the block at the current step in an array with strides.
    const T *find(const void *base, const i64 *stride) const {
        if (!base) return nullptr;
        const T *p = static_cast<const T *>(base);
        return s_.batch_sizes ? p + (offset_ + begin_) * stride[1] : p + time(index_) * stride[0] + begin_ * stride[1];
    }

  private:
    i64 time(i64 index) const { return s_.reverse ? s_.steps - 1 - index : index; }
    i64 size(i64 t) const { return s_.batch_sizes ? s_.batch_sizes[t] : s_.batch; }
    i64 first_row_of_last_step() const {
        i64 sum = 0;
        for (i64 t = 0; t + 1 < s_.steps; ++t) sum += size(t);
        return sum;
    }

    const scornn_sequence &s_;
    const i64 begin_, rows_;
    i64 index_, offset_;
};

// Takes the rows [begin, begin + rows) through all steps: at each, start(block, r) for every row whose sequence begins
// there, step(block), and end(block, r) for every row whose sequence ends there.
template <class T, class Start, class Step, class End>
void walk(const scornn_sequence &s, i64 begin, i64 rows, Start start, Step step, End end) {
    Block<T> block(s, begin, rows);
    for (i64 index = 0; index < s.steps; ++index) {
        block.move_to(index);
        for (i64 r = block.alive(-1); r < block.alive(); ++r) start(block, r);
        step(block);
        for (i64 r = block.alive(+1); r < block.alive(); ++r) end(block, r);
    }
}

// The same backwards: end, step, start.
template <class T, class End, class Step, class Start>
void walk_back(const scornn_sequence &s, i64 begin, i64 rows, End end, Step step, Start start) {
    Block<T> block(s, begin, rows);
    for (i64 index = s.steps - 1; index >= 0; --index) {
        block.move_to(index);
        for (i64 r = block.alive(+1); r < block.alive(); ++r) end(block, r);
        step(block);
        for (i64 r = block.alive(-1); r < block.alive(); ++r) start(block, r);
    }
}

}  // namespace scornn::SCORNN_ISA
