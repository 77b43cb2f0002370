// Weights that stay as files store them: 32 integers of one output share a scale (and a minimum).
//
// Layouts in the file: ggml-common.h of ggml, `block_q4_0`, `block_q4_1`, `block_q8_0`. Here 16
// outputs lie together, as in a panel of the plain layout, so a unit of 32 inputs has the bytes of
// 16 blocks: 16 scales, 16 minima (q4_1), then the integers, in one of two orders (`place_of`).
//
// Where there are bfloat16 products, "in words": an integer of at most 8 bits is a bfloat16, so 32
// products of one output are summed before its scale is applied, and no value is rounded at all.
// Elsewhere a value q * d + m is made of each integer first. With d of 11 bits and q of at most 8
// the product is exact in float32, so there is one rounding, as where the file is turned into
// floats, and then one to the panel's type: the same bits as with weights that were turned at load.
#pragma once

#include "gemm.h"

namespace dg {

enum Storage : int32_t { kPlain = 0, kQ4_0 = 1, kQ4_1 = 2, kQ8_0 = 3 };

constexpr int kGroup = 32;
constexpr int kPairs = kGroup / 2;

inline int64_t block_bytes(int32_t storage) {
  return storage == kQ4_0 ? 18 : storage == kQ4_1 ? 20 : 34;
}
inline int64_t unit_bytes(int32_t storage) { return block_bytes(storage) * kPanel; }

#if defined(__AVX512BF16__)
constexpr bool kHasWords = true;
#else
constexpr bool kHasWords = false;
#endif

inline float half_at(const uint8_t* unit, int index) {
  uint16_t half;
  std::memcpy(&half, unit + 2 * index, 2);
  return _cvtsh_ss(half);
}
inline void put_float(float* out, float v) { *out = v; }
inline void put_float(bf16* out, float v) {
  alignas(64) bf16 lanes[W];
  store(lanes, splat(v));
  *out = lanes[0];
}

#if defined(__AVX512F__)
inline vf half_to_float(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
inline vf low_nibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm512_cvtepi32_ps(_mm512_and_si512(bytes, _mm512_set1_epi32(15)));
}
inline vf high_nibbles(const uint8_t* p) {
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes, 4));
}
inline vf signed_bytes(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
inline void store_pair(bf16* out, vf even, vf odd) {
  const __m512i low = _mm512_cvtepu16_epi32(narrow(even));
  const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow(odd)), 16);
  _mm512_storeu_si512(out, _mm512_or_si512(low, high));
}
#else
inline vf half_to_float(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
inline vf low_nibbles(const uint8_t* p) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
  return _mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(15)));
}
inline vf high_nibbles(const uint8_t* p) {
  const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
  return _mm256_cvtepi32_ps(_mm256_srli_epi32(bytes, 4));
}
inline vf signed_bytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
inline void store_pair(bf16* out, vf even, vf odd) {
  const __m256i low = _mm256_cvtepu16_epi32(narrow(even));
  const __m256i high = _mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow(odd)), 16);
  _mm256_storeu_si256((__m256i*)out, _mm256_or_si256(low, high));
}
#endif
inline void store_pair(float* out, vf even, vf odd) {
  store(out, even);
  store(out + kPanel, odd);
}

// Where lanes of pair i begin in a panel of T, W at a time from column j on.
inline bf16* pair_at(bf16* out, int i, int j) { return out + (i * kPanel + j) * 2; }
inline float* pair_at(float* out, int i, int j) { return out + i * 2 * kPanel + j; }

// 32 inputs of 16 outputs, as a panel of T holds them.
template <class T, int S>
inline void unpack_unit(const uint8_t* unit, T* out) {
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(unit);
  const uint8_t* q = unit + kPanel * (S == kQ4_1 ? 4 : 2);
  for (int j = 0; j < kPanel; j += W) {
    const vf d = half_to_float(scales + j);
    const vf m = S == kQ4_1 ? half_to_float(scales + kPanel + j) : mul(d, splat(-8.0f));
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; i++) {
      if (S == kQ8_0) {
        const uint8_t* at = q + i * 2 * kPanel + j;
        store_pair(pair_at(out, i, j), mul(signed_bytes(at), d),
                   mul(signed_bytes(at + kPanel), d));
      } else {
        const uint8_t* at = q + i * kPanel + j;
        store_pair(pair_at(out, i, j), fma(low_nibbles(at), d, m), fma(high_nibbles(at), d, m));
      }
    }
  }
}

template <class T>
inline void unpack_units(int32_t storage, const uint8_t* units, int64_t count, T* out) {
  for (int64_t g = 0; g < count; g++, units += unit_bytes(storage), out += kGroup * kPanel) {
    if (storage == kQ4_0)
      unpack_unit<T, kQ4_0>(units, out);
    else if (storage == kQ4_1)
      unpack_unit<T, kQ4_1>(units, out);
    else
      unpack_unit<T, kQ8_0>(units, out);
  }
}

#if defined(__AVX512BF16__)

// The 4-bit integers as bfloat16: 32 entries, of which an index has 16.
template <int S>
inline __m512i nibble_values() {
  alignas(64) bf16 values[32];
  alignas(64) float exact[16];
  for (int i = 0; i < 16; i++) exact[i] = float(i - (S == kQ4_0 ? 8 : 0));
  store(values, load(exact));
  store(values + 16, load(exact));
  return _mm512_load_si512(values);
}

// Pair i of a unit's integers, as a panel of bfloat16 has it; `quarter` of 4-bit words.
inline __m512i nibble_pair(__m512i words, int quarter, __m512i values) {
  const __m512i index =
      _mm512_and_si512(_mm512_srli_epi16(words, 4 * quarter), _mm512_set1_epi16(15));
  return _mm512_permutexvar_epi16(index, values);
}
inline __m512i byte_pair(const uint8_t* q, int i) {
  const __m128i* at = (const __m128i*)(q + i * 2 * kPanel);
  const vf low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at)));
  const vf high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at + 1)));
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// Integers of `groups` units as a panel of bfloat16 holds them, for many rows.
template <int S>
inline void spread_units(const uint8_t* units, int64_t groups, bf16* out) {
  const __m512i values = nibble_values<S>();
  for (int64_t g = 0; g < groups; g++, units += unit_bytes(S)) {
    const uint8_t* q = units + kPanel * (S == kQ4_1 ? 4 : 2);
    for (int i = 0; i < kPairs; i++, out += 2 * kPanel)
      _mm512_storeu_si512(out, S == kQ8_0 ? byte_pair(q, i)
                                          : nibble_pair(_mm512_loadu_si512(q + i / 4 * 64), i % 4,
                                                        values));
  }
}

// C[rows][16 * panels] (+)= X . W over `groups` units: the sum of a unit's products, times its
// scale, and the minimum times the sum of its inputs, `sums` [rows][groups]. `spread` has the
// integers of panels at `spread_panel`, or is null: they are taken from the units.
template <int MR, int NP, int S>
inline void micro_words(const bf16* x, int64_t ldx, const uint8_t* units, int64_t panel_bytes,
                        const bf16* spread, int64_t spread_panel, int64_t groups,
                        const float* sums, int64_t ldsums, float* c, int64_t ldc,
                        bool accumulate) {
  vf out[MR][NP];
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int p = 0; p < NP; p++) out[r][p] = accumulate ? load(c + r * ldc + p * kPanel) : zero();
  const __m512i values = nibble_values<S>();
  for (int64_t g = 0; g < groups; g++) {
    const uint8_t* unit = units + g * unit_bytes(S);
    const uint8_t* q = unit + kPanel * (S == kQ4_1 ? 4 : 2);
    vf acc[MR][NP];
#pragma GCC unroll 8
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
      for (int p = 0; p < NP; p++) acc[r][p] = zero();
    for (int t = 0; t < kPairs / 4; t++) {
      __m512i words[NP];
      if (S != kQ8_0 && !spread) {
#pragma GCC unroll 8
        for (int p = 0; p < NP; p++) words[p] = _mm512_loadu_si512(q + p * panel_bytes + t * 64);
      }
#pragma GCC unroll 4
      for (int s = 0; s < 4; s++) {
        const int i = t * 4 + s;
        __m512i pair[NP];
#pragma GCC unroll 8
        for (int p = 0; p < NP; p++)
          pair[p] = spread ? _mm512_loadu_si512(spread + p * spread_panel +
                                                (g * kPairs + i) * 2 * kPanel)
                    : S == kQ8_0 ? byte_pair(q + p * panel_bytes, i)
                                 : nibble_pair(words[p], s, values);
#pragma GCC unroll 8
        for (int r = 0; r < MR; r++) {
          const __m512bh xr =
              (__m512bh)_mm512_set1_epi32(int(load_pair(x + r * ldx + g * kGroup + 2 * i)));
#pragma GCC unroll 8
          for (int p = 0; p < NP; p++) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], xr, (__m512bh)pair[p]);
        }
      }
    }
#pragma GCC unroll 8
    for (int p = 0; p < NP; p++) {
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(unit + p * panel_bytes);
      const vf d = half_to_float(scales);
#pragma GCC unroll 8
      for (int r = 0; r < MR; r++) out[r][p] = fma(acc[r][p], d, out[r][p]);
      if (S == kQ4_1) {
        const vf m = half_to_float(scales + kPanel);
#pragma GCC unroll 8
        for (int r = 0; r < MR; r++) out[r][p] = fma(splat(sums[r * ldsums + g]), m, out[r][p]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int p = 0; p < NP; p++) store(c + r * ldc + p * kPanel, out[r][p]);
}

using WordsFn = void (*)(const bf16*, int64_t, const uint8_t*, int64_t, const bf16*, int64_t,
                         int64_t, const float*, int64_t, float*, int64_t, bool);

// Two registers for each output of the block, which 32 hold.
constexpr int word_panels_for(int rows) { return rows <= 2 ? 4 : 2; }

template <int S, int NP>
WordsFn words_for_rows(int rows) {
  switch (rows) {
    case 1: return micro_words<1, NP, S>;
    case 2: return micro_words<2, NP, S>;
    case 3: return micro_words<3, NP < 3 ? NP : 2, S>;
    case 4: return micro_words<4, NP < 3 ? NP : 2, S>;
    case 5: return micro_words<5, NP < 3 ? NP : 2, S>;
    default: return micro_words<6, NP < 3 ? NP : 2, S>;
  }
}

template <int S>
WordsFn choose_words(int rows, int panels) {
  switch (panels) {
    case 1: return words_for_rows<S, 1>(rows);
    case 2: return words_for_rows<S, 2>(rows);
    case 3: return words_for_rows<S, 3>(rows);
    default: return words_for_rows<S, 4>(rows);
  }
}

// C[rows][16 * panels] (+)= X[rows][32 * groups] . W for any number of rows and up to kMaxPanels.
template <int S>
inline void gemm_words(const bf16* x, int64_t ldx, int rows, const uint8_t* units,
                       int64_t panel_bytes, const bf16* spread, int64_t spread_panel, int panels,
                       int64_t groups, const float* sums, int64_t ldsums, float* c, int64_t ldc,
                       bool accumulate) {
  const int blocks = (rows + kMaxRows - 1) / kMaxRows;
  for (int b = 0, r = 0; b < blocks; b++) {
    const int count = (rows - r + (blocks - b) - 1) / (blocks - b);
    const int step = word_panels_for(count);
    for (int p = 0; p < panels; p += step) {
      const int wide = panels - p < step ? panels - p : step;
      choose_words<S>(count, wide)(x + r * ldx, ldx, units + p * panel_bytes, panel_bytes,
                                   spread ? spread + p * spread_panel : nullptr, spread_panel,
                                   groups, sums + r * ldsums, ldsums, c + r * ldc + p * kPanel, ldc,
                                   accumulate);
    }
    r += count;
  }
}

// The sum of each group of inputs, in one order: [rows][groups].
inline void sum_groups(const bf16* x, int64_t ldx, int rows, int64_t groups, float* sums) {
  for (int r = 0; r < rows; r++)
    for (int64_t g = 0; g < groups; g++) {
      const bf16* at = x + r * ldx + g * kGroup;
      sums[r * groups + g] = reduce_add(add(load(at), load(at + W)));
    }
}

#endif

// Integer of input i in a block of the file, as it is stored.
inline uint8_t stored_integer(const uint8_t* q, int32_t storage, int i) {
  if (storage == kQ8_0) return q[i];
  return i < kPairs ? q[i] & 15 : q[i - kPairs] >> 4;
}

// Where the kernels of a dtype find the integer of input i of output j in a unit: the byte, and how
// far up in it.
struct Place {
  int byte;
  int shift;
};

inline Place place_of(int32_t storage, bool in_words, int i, int j) {
  const int pair = i / 2, odd = i % 2;
  if (!in_words && storage == kQ8_0) return {i * kPanel + j, 0};
  if (!in_words) return {pair * kPanel + j, odd * 4};
  if (storage == kQ8_0) return {(pair * kPanel + j) * 2 + odd, 0};
  const int word = pair / 4 * 2 * kPanel + j * 2 + odd, quarter = pair % 4;
  return {word * 2 + quarter / 2, quarter % 2 * 4};
}

// Blocks of up to 16 outputs -> one unit; outputs that are not there become zeros.
inline void pack_unit(const uint8_t* blocks, int64_t row_bytes, int outputs, int32_t storage,
                      bool in_words, uint8_t* unit) {
  const int head = storage == kQ4_1 ? 4 : 2;
  std::memset(unit, 0, size_t(unit_bytes(storage)));
  uint8_t* packed = unit + kPanel * head;
  for (int j = 0; j < outputs; j++) {
    const uint8_t* block = blocks + j * row_bytes;
    std::memcpy(unit + 2 * j, block, 2);
    if (storage == kQ4_1) std::memcpy(unit + 2 * (kPanel + j), block + 2, 2);
    for (int i = 0; i < kGroup; i++) {
      const Place at = place_of(storage, in_words, i, j);
      packed[at.byte] |= uint8_t(stored_integer(block + head, storage, i) << at.shift);
    }
  }
}

// One output of a unit, as the file's values are: 32 inputs.
template <class T>
inline void unpack_output(const uint8_t* unit, int32_t storage, bool in_words, int j, T* out) {
  const uint8_t* q = unit + kPanel * (storage == kQ4_1 ? 4 : 2);
  const float d = half_at(unit, j), m = storage == kQ4_1 ? half_at(unit, kPanel + j) : 0.0f;
  for (int i = 0; i < kGroup; i++) {
    const Place at = place_of(storage, in_words, i, j);
    const uint8_t byte = q[at.byte];
    const int integer = storage == kQ8_0 ? int8_t(byte)
                                         : (byte >> at.shift & 15) - (storage == kQ4_0 ? 8 : 0);
    put_float(out + i, float(integer) * d + m);
  }
}

}  // namespace dg
