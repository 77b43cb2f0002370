// A vector of float32 for the instruction set this file is compiled for, with bfloat16 on the side.
//
// W lanes: 16 with AVX-512, 8 with AVX2. Every operation has one rounding that does not depend on
// where in a tensor it happens, so results never depend on batch or alignment.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dg {

struct bf16 {
  uint16_t bits;
};

enum DType : int32_t { kFloat32 = 0, kBFloat16 = 1 };

inline float to_float(float v) { return v; }
inline float to_float(bf16 v) {
  uint32_t word = uint32_t(v.bits) << 16;
  float out;
  std::memcpy(&out, &word, 4);
  return out;
}

#if defined(__AVX512F__)

constexpr int W = 16;
using vf = __m512;
using mask = __mmask16;

inline mask first_lanes(int n) { return mask((1u << n) - 1u); }
inline vf zero() { return _mm512_setzero_ps(); }
inline vf splat(float v) { return _mm512_set1_ps(v); }
inline vf load(const float* p) { return _mm512_loadu_ps(p); }
inline vf load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store(float* p, vf v) { _mm512_storeu_ps(p, v); }
inline void store_n(float* p, vf v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
inline vf add(vf a, vf b) { return _mm512_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm512_div_ps(a, b); }
inline vf max(vf a, vf b) { return _mm512_max_ps(a, b); }
inline vf min(vf a, vf b) { return _mm512_min_ps(a, b); }
inline float reduce_max(vf v) { return _mm512_reduce_max_ps(v); }

// Lanes outside [first, last) become -inf.
inline vf keep_range(vf v, int first, int last) {
  const mask low = first <= 0 ? mask(0xffff) : first >= 16 ? mask(0) : mask(0xffffu << first);
  const mask high = last >= 16 ? mask(0xffff) : last <= 0 ? mask(0) : first_lanes(last);
  return _mm512_mask_blend_ps(low & high, splat(-INFINITY), v);
}

inline vf widen(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline vf load(const bf16* p) { return widen(_mm256_loadu_si256((const __m256i*)p)); }
inline vf load_n(const bf16* p, int n) {
  return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

inline __m256i narrow(vf v) {
#if defined(__AVX512BF16__)
  return (__m256i)_mm512_cvtneps_pbh(v);
#else
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const mask nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  r = _mm512_mask_or_epi32(r, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
#endif
}
inline void store(bf16* p, vf v) { _mm256_storeu_si256((__m256i*)p, narrow(v)); }
inline void store_n(bf16* p, vf v, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow(v));
}
inline vf round_bf16(vf v) { return widen(narrow(v)); }

inline vf round_even(vf v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT); }
inline vf scale_by_power_of_two(vf v, vf n) { return _mm512_scalef_ps(v, n); }
inline vf zero_where_below(vf v, vf x, float limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, splat(limit), _CMP_NLT_UQ), v);
}

#elif defined(__AVX2__) && defined(__FMA__)

constexpr int W = 8;
using vf = __m256;

inline __m256i lanes_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline vf zero() { return _mm256_setzero_ps(); }
inline vf splat(float v) { return _mm256_set1_ps(v); }
inline vf load(const float* p) { return _mm256_loadu_ps(p); }
inline vf load_n(const float* p, int n) { return _mm256_maskload_ps(p, lanes_mask(n)); }
inline void store(float* p, vf v) { _mm256_storeu_ps(p, v); }
inline void store_n(float* p, vf v, int n) { _mm256_maskstore_ps(p, lanes_mask(n), v); }
inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf add(vf a, vf b) { return _mm256_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm256_div_ps(a, b); }
inline vf max(vf a, vf b) { return _mm256_max_ps(a, b); }
inline vf min(vf a, vf b) { return _mm256_min_ps(a, b); }
inline float reduce_max(vf v) {
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

inline vf keep_range(vf v, int first, int last) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane);
  const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane);
  return _mm256_blendv_ps(splat(-INFINITY), v,
                          _mm256_castsi256_ps(_mm256_andnot_si256(low, high)));
}

inline vf widen(__m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline vf load(const bf16* p) { return widen(_mm_loadu_si128((const __m128i*)p)); }
inline vf load_n(const bf16* p, int n) {
  alignas(16) uint16_t part[8] = {};
  std::memcpy(part, p, size_t(n) * 2);
  return widen(_mm_load_si128((const __m128i*)part));
}

inline __m128i narrow(vf v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  r = _mm256_blendv_epi8(r, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  r = _mm256_srli_epi32(r, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
}
inline void store(bf16* p, vf v) { _mm_storeu_si128((__m128i*)p, narrow(v)); }
inline void store_n(bf16* p, vf v, int n) {
  alignas(16) uint16_t part[8];
  _mm_store_si128((__m128i*)part, narrow(v));
  std::memcpy(p, part, size_t(n) * 2);
}
inline vf round_bf16(vf v) { return widen(narrow(v)); }

inline vf round_even(vf v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT); }
// In two steps, so that 2**128 and results below the normal range come out right.
inline vf scale_by_power_of_two(vf v, vf n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  v = mul(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
  return mul(v, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
inline vf zero_where_below(vf v, vf x, float limit) {
  return _mm256_and_ps(v, _mm256_cmp_ps(x, splat(limit), _CMP_NLT_UQ));
}

#else
#error "these kernels need AVX2 with FMA, or AVX-512"
#endif

template <class T>
inline vf round_to(vf v);
template <>
inline vf round_to<float>(vf v) { return v; }
template <>
inline vf round_to<bf16>(vf v) { return round_bf16(v); }

// Sum of the lanes by halving: one order on every machine with the same W.
inline float reduce_add(vf v) {
  alignas(64) float lane[W];
  store(lane, v);
  for (int half = W / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  return lane[0];
}

// exp with a relative error below 2e-7; exp(0) is exactly 1, below -87.3 it is exactly 0, NaN stays
// NaN (max and min return their second operand then), above 88.7 it stays finite. The degree-5 minimax polynomial on +-ln(2)/2 is the one of the Cephes library's expf.
inline vf exp(vf x) {
  const vf bounded = min(splat(88.72283f), max(splat(-87.33654f), x));
  const vf n = round_even(mul(bounded, splat(1.44269504088896341f)));
  vf r = fma(n, splat(-0.693359375f), bounded);
  r = fma(n, splat(2.12194440e-4f), r);
  vf p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(mul(r, r), p, add(r, splat(1.0f)));
  return zero_where_below(scale_by_power_of_two(p, n), x, -87.33654f);
}

// tanh as 1 - 2 / (exp(2x) + 1): absolute error below 2e-7, saturates exactly at +-1.
inline vf tanh(vf x) {
  const vf e = exp(mul(splat(2.0f), x));
  return sub(splat(1.0f), div(splat(2.0f), add(e, splat(1.0f))));
}

}  // namespace dg
