// Keys and values of one tile of 64 positions, taken from the paged cache into the panel layout.
#pragma once

#include "gemm.h"

namespace dg {

constexpr int kTile = 64;  // positions; tiles start at multiples of it, so results never depend on
                           // how a prompt was cut or which block size holds it

#if defined(__AVX512F__)
inline void transpose_words(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 8)
#pragma GCC unroll 16
    for (int j = 0; j < 4; j++) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
    }
#pragma GCC unroll 16
  for (int j = 0; j < 8; j++) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
  }
}

// 16 rows of `count` 32-bit words -> [count][16]; `row(j, w, n)` gives n words of row j from w on.
template <class Row>
inline void pack_words(const Row& row, int64_t count, float* out) {
  int64_t w = 0;
  for (; w + 16 <= count; w += 16) {
    // The row addresses are read again: 16 of them kept would take the transposition's registers.
    asm volatile("" ::: "memory");
    __m512i r[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) r[j] = row(j, w, 16);
    transpose_words(r);
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) _mm512_storeu_si512(out + (w + j) * kPanel, r[j]);
  }
  if (w == count) return;
  __m512i rest[16];
  for (int j = 0; j < 16; j++) rest[j] = row(j, w, int(count - w));
  transpose_words(rest);
  for (int j = 0; j < count - w; j++) _mm512_storeu_si512(out + (w + j) * kPanel, rest[j]);
}

inline __m512i words(const void* row, int64_t from, int n) {
  const int32_t* p = static_cast<const int32_t*>(row) + from;
  return n == 16 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi32(first_lanes(n), p);
}

inline void pack_keys(const bf16* const* rows, int64_t dim, bf16* out) {
  pack_words([&](int j, int64_t w, int n) { return words(rows[j], w, n); }, dim / 2, (float*)out);
}
inline void pack_keys(const float* const* rows, int64_t dim, float* out) {
  pack_words([&](int j, int64_t w, int n) { return words(rows[j], w, n); }, dim, out);
}
inline void pack_keys(const bf16* const* rows, int64_t dim, float* out) {
  pack_words([&](int j, int64_t w, int) { return _mm512_castps_si512(load(rows[j] + w)); }, dim,
             out);
}

// Two rows of 16 -> 16 pairs.
inline __m512i interleave(const bf16* a, const bf16* b) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)a));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)b));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Two rows of `dim` -> pairs, 16 columns to a panel.
inline void pack_pair(const bf16* a, const bf16* b, int64_t dim, bf16* out, int64_t panel_stride) {
  const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  // Lane i: element i of the first row below element i of the second, 32 places on.
  const __m512i first = _mm512_or_si512(
      count, _mm512_slli_epi32(_mm512_add_epi32(count, _mm512_set1_epi32(32)), 16));
  const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
  int64_t d = 0;
  for (; d + 32 <= dim; d += 32, out += 2 * panel_stride) {
    const __m512i x = _mm512_loadu_si512(a + d), y = _mm512_loadu_si512(b + d);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi16(x, first, y));
    _mm512_storeu_si512(out + panel_stride, _mm512_permutex2var_epi16(x, second, y));
  }
  if (d < dim) _mm512_storeu_si512(out, interleave(a + d, b + d));
}
#else
template <class T, class E>
inline void pack_keys(const T* const* rows, int64_t dim, E* out) {
  for (int j = 0; j < kPanel; j++)
    for (int64_t i = 0; i < dim; i++) out[i * kPanel + j] = to_float(rows[j][i]);
}
#endif

// Values of positions [first, last) -> panels of 16 columns, kTile positions apart. Row `last`, where
// it completes a pair, must be readable and finite; `first` is even.
template <class C, class E>
inline void pack_values(const C* const* rows, int first, int last, int64_t dim, E* out) {
  if constexpr (sizeof(E) == 2) {
#if defined(__AVX512F__)
    for (int t = first; t < last; t += 2)
      pack_pair(rows[t], rows[t + 1], dim, out + t * kPanel, kPanel * kTile);
#endif
  } else {
    for (int t = first; t < last; t++)
      for (int64_t d = 0; d < dim; d += kPanel)
        for (int v = 0; v < kPanel; v += W)
          store(out + d * kTile + t * kPanel + v, load(rows[t] + d + v));
  }
}

// Where one tile's keys and values lie.
template <class C>
struct TileRows {
  const C* key[kTile];
  const C* value[kTile];
  int count;  // positions that exist; the rest point at zeros
};

template <class C>
inline void prefetch_rows(const C* const* rows, int first, int last, int64_t dim) {
  for (int t = first; t < last; t++)
    for (int64_t d = 0; d < dim; d += 64 / int64_t(sizeof(C))) _mm_prefetch(rows[t] + d, _MM_HINT_T1);
}

// Whether rows [first, last) hold neither NaN nor infinity.
template <class C>
inline bool all_finite(const C* const* rows, int first, int last, int64_t dim) {
  vf zeros = zero();
  for (int t = first; t < last; t++)
    for (int64_t d = 0; d < dim; d += W) {
      const vf v = load(rows[t] + d);
      zeros = add(zeros, sub(v, v));
    }
  return reduce_add(zeros) == 0.0f;
}

// Packs `here` while `next`, which may be longer, is on its way from memory.
template <class C, class E>
inline void load_tile(const TileRows<C>& here, const TileRows<C>& next, int64_t dim, E* keys,
                      E* values) {
  for (int t = 0; t < here.count; t += kPanel) {
    prefetch_rows(next.key, t, t + kPanel < next.count ? t + kPanel : next.count, dim);
    pack_keys(here.key + t, dim, keys + t * dim);
  }
  const int packed = (here.count + kPanel - 1) / kPanel * kPanel;
  prefetch_rows(next.key, packed, next.count, dim);
  for (int t = 0; t < here.count; t += kPanel) {
    const int last = t + kPanel < here.count ? t + kPanel : here.count;
    prefetch_rows(next.value, t, t + kPanel < next.count ? t + kPanel : next.count, dim);
    pack_values(here.value, t, last, dim, values);
  }
  prefetch_rows(next.value, packed, next.count, dim);
}

// One row of scores -> probabilities relative to the running maximum; rescales what came before.
struct RowState {
  float top;     // running maximum, -inf at first
  float sum[W];  // running sum of the probabilities, one chain per lane
};

inline void store_probabilities(float* p, const vf* v) {
  for (int i = 0; i < kTile / W; i++) store(p + i * W, v[i]);
}
inline void store_probabilities(bf16* p, const vf* v) {
  for (int i = 0; i < kTile / W; i++) store(p + i * W, v[i]);
}

inline float exp_scalar(float x) {
  float lane[W];
  store(lane, exp(splat(x)));
  return lane[0];
}

// Only positions [first, last) of the tile are seen; columns from `computed` on hold no score.
template <class E>
inline void softmax_row(const float* s, int computed, int first, int last, float scale, float cap,
                        RowState& state, float* acc, int64_t dim, E* p) {
  vf v[kTile / W];
  vf top = splat(-INFINITY);
  for (int i = 0; i < kTile / W; i++) {
    if (i * W >= computed) {
      v[i] = splat(-INFINITY);
      continue;
    }
    v[i] = mul(load(s + i * W), splat(scale));
    if (cap > 0) v[i] = mul(tanh(mul(v[i], splat(1.0f / cap))), splat(cap));
    if (first > i * W || last < (i + 1) * W) v[i] = keep_range(v[i], first - i * W, last - i * W);
    top = max(top, v[i]);
  }
  const float before = state.top;
  const float peak = reduce_max(top);
  const float now = peak > before ? peak : before;
  const vf base = splat(now == -INFINITY ? 0.0f : now);
  vf sum = load(state.sum);
  if (now != before && before != -INFINITY) {
    const vf shrink = splat(exp_scalar(before - now));
    sum = mul(sum, shrink);
    for (int64_t d = 0; d < dim; d += W) store(acc + d, mul(load(acc + d), shrink));
  }
  for (int i = 0; i < kTile / W; i++) {
    v[i] = exp(sub(v[i], base));
    sum = add(sum, v[i]);
  }
  state.top = now;
  store(state.sum, sum);
  store_probabilities(p, v);
}

}  // namespace dg
