// One tile for a few rows, straight from the cache: a decode. Storing the packed tile and reading it
// again would cost as much as the products. The same chains of operations as packing and `micro`, so
// the same bits.
#pragma once

#include "attention_tile.h"

#if defined(__AVX512BF16__)
namespace dg {

inline __m512bh splat_pair(const bf16* p) {
  return (__m512bh)_mm512_set1_epi32(int(load_pair(p)));
}

// acc[r] += products of the first n pairs of q's row r with 16 keys' pairs.
template <int MR>
inline void add_key_pairs(vf* acc, const __m512i* pairs, int n, const bf16* q, int64_t dim) {
#pragma GCC unroll 16
  for (int i = 0; i < n; i++)
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++)
      acc[r] = _mm512_dpbf16_ps(acc[r], splat_pair(q + r * dim + 2 * i), (__m512bh)pairs[i]);
}

// Scores of MR queries for the 16 keys at `keys`.
template <int MR>
inline void direct_scores(const bf16* const* keys, int64_t dim, const bf16* q, float* out) {
  vf acc[MR];
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++) acc[r] = zero();
  const int64_t count = dim / 2;
  int64_t w = 0;
  for (; w + 16 <= count; w += 16) {
    asm volatile("" ::: "memory");  // as in pack_words
    __m512i t[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) t[j] = words(keys[j], w, 16);
    transpose_words(t);
    add_key_pairs<MR>(acc, t, 16, q + 2 * w, dim);
  }
  if (w < count) {
    __m512i t[16];
    for (int j = 0; j < 16; j++) t[j] = words(keys[j], w, int(count - w));
    transpose_words(t);
    add_key_pairs<MR>(acc, t, int(count - w), q + 2 * w, dim);
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++) store(out + r * kTile, acc[r]);
}

// 16 * NP columns of two rows -> NP vectors of pairs.
template <int NP>
inline void pair_columns(const bf16* a, const bf16* b, __m512i* out) {
  const __m512i count = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i first = _mm512_or_si512(  // as in pack_pair
      count, _mm512_slli_epi32(_mm512_add_epi32(count, _mm512_set1_epi32(32)), 16));
  const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
#pragma GCC unroll 8
  for (int j = 0; j + 2 <= NP; j += 2) {
    const __m512i x = _mm512_loadu_si512(a + j * W), y = _mm512_loadu_si512(b + j * W);
    out[j] = _mm512_permutex2var_epi16(x, first, y);
    out[j + 1] = _mm512_permutex2var_epi16(x, second, y);
  }
  if constexpr (NP % 2) out[NP - 1] = interleave(a + (NP - 1) * W, b + (NP - 1) * W);
}

// acc[r] += sum over positions below `depth`, which is even, of p[r] * value, in 16 * NP columns.
template <int MR, int NP>
inline void add_value_columns(const bf16* const* values, int depth, const bf16* p, float* acc,
                              int64_t dim, int64_t column) {
  vf sum[MR][NP];
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int j = 0; j < NP; j++) sum[r][j] = load(acc + r * dim + column + j * W);
  for (int t = 0; t < depth; t += 2) {
    __m512i v[NP];
    pair_columns<NP>(values[t] + column, values[t + 1] + column, v);
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++) {
      const __m512bh x = splat_pair(p + r * kTile + t);
#pragma GCC unroll 8
      for (int j = 0; j < NP; j++) sum[r][j] = _mm512_dpbf16_ps(sum[r][j], x, (__m512bh)v[j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int j = 0; j < NP; j++) store(acc + r * dim + column + j * W, sum[r][j]);
}

template <int MR>
inline void direct_values(const bf16* const* values, int depth, const bf16* p, float* acc,
                          int64_t dim) {
  int64_t column = 0;
  for (; column + 64 <= dim; column += 64)
    add_value_columns<MR, 4>(values, depth, p, acc, dim, column);
  for (; column < dim; column += 16)
    add_value_columns<MR, 1>(values, depth, p, acc, dim, column);
}

struct Direct {
  void (*scores)(const bf16* const*, int64_t, const bf16*, float*);
  void (*values)(const bf16* const*, int, const bf16*, float*, int64_t);
};

inline Direct direct_for(int rows) {
  switch (rows) {
    case 1: return {direct_scores<1>, direct_values<1>};
    case 2: return {direct_scores<2>, direct_values<2>};
    case 3: return {direct_scores<3>, direct_values<3>};
    case 4: return {direct_scores<4>, direct_values<4>};
    case 5: return {direct_scores<5>, direct_values<5>};
    default: return {direct_scores<6>, direct_values<6>};
  }
}

}  // namespace dg
#endif
