// Rotary positions in place, and the write of new keys and values into the paged cache.
#include <algorithm>

#include "scratch.h"
#include "vec.h"

namespace dg {

extern "C" struct dg_rope_desc {
  const float* cos_sin;  // [max_position, rotary_dim]: cosines, then sines
  int64_t rotary_dim;
  int64_t head_dim;
  int32_t num_heads;     // of q
  int32_t num_kv_heads;  // of k; 0: k is not given
  int32_t interleaved;
  int32_t dtype;
  int32_t num_threads;
};

extern "C" struct dg_cache_desc {
  void* k_cache;  // [num_blocks, num_kv_heads, block_size, head_dim], last axis contiguous
  void* v_cache;
  int64_t k_stride_block, k_stride_head, k_stride_token;
  int64_t v_stride_block, v_stride_head, v_stride_token;
  int64_t block_size;
  int64_t head_dim;
  int32_t num_kv_heads;
  int32_t dtype;        // of k and v
  int32_t cache_dtype;  // of the cache
  int32_t num_threads;
};

namespace {

constexpr int64_t kSerialElements = 32768;

template <class T>
void rotate_halves(T* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i += W) {
    const int64_t left = half - i;
    const bool whole = left >= W;
    const int n = int(left);
    const vf a = whole ? load(x + i) : load_n(x + i, n);
    const vf b = whole ? load(x + half + i) : load_n(x + half + i, n);
    const vf c = whole ? load(cos + i) : load_n(cos + i, n);
    const vf s = whole ? load(sin + i) : load_n(sin + i, n);
    const vf first = sub(mul(a, c), mul(b, s));
    const vf second = add(mul(b, c), mul(a, s));
    if (whole) {
      store(x + i, first);
      store(x + half + i, second);
    } else {
      store_n(x + i, first, n);
      store_n(x + half + i, second, n);
    }
  }
}

inline void assign(float* to, float v) { *to = v; }
inline void assign(bf16* to, float v) { store_n(to, splat(v), 1); }

template <class T>
void rotate_pairs(T* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; i++) {
    const float a = to_float(x[2 * i]);
    const float b = to_float(x[2 * i + 1]);
    const float ac = a * cos[i], bs = b * sin[i], bc = b * cos[i], as = a * sin[i];
    assign(x + 2 * i, ac - bs);
    assign(x + 2 * i + 1, bc + as);
  }
}

template <class T>
void rotate_heads(const dg_rope_desc& d, T* x, int heads, const float* cos_sin) {
  const int64_t half = d.rotary_dim / 2;
  for (int h = 0; h < heads; h++, x += d.head_dim) {
    if (d.interleaved)
      rotate_pairs(x, cos_sin, cos_sin + half, half);
    else
      rotate_halves(x, cos_sin, cos_sin + half, half);
  }
}

template <class T>
void rope_token(const dg_rope_desc& d, T* q, T* k, int64_t position) {
  const float* cos_sin = d.cos_sin + position * d.rotary_dim;
  rotate_heads(d, q, d.num_heads, cos_sin);
  if (d.num_kv_heads) rotate_heads(d, k, d.num_kv_heads, cos_sin);
}

template <class T, class C>
void copy_row(const T* from, C* to, int64_t count) {
  for (int64_t i = 0; i < count; i += W) {
    if (count - i >= W)
      store(to + i, load(from + i));
    else
      store_n(to + i, load_n(from + i, int(count - i)), int(count - i));
  }
}
template <class T>
void copy_row(const T* from, T* to, int64_t count) {
  std::memcpy(to, from, size_t(count) * sizeof(T));
}

template <class T, class C>
void write_token(const dg_cache_desc& d, const T* k, const T* v, int64_t slot) {
  if (slot < 0) return;
  const int64_t block = slot / d.block_size;
  const int64_t offset = slot % d.block_size;
  C* to_k = (C*)d.k_cache + block * d.k_stride_block + offset * d.k_stride_token;
  C* to_v = (C*)d.v_cache + block * d.v_stride_block + offset * d.v_stride_token;
  for (int h = 0; h < d.num_kv_heads; h++) {
    copy_row(k + h * d.head_dim, to_k + h * d.k_stride_head, d.head_dim);
    copy_row(v + h * d.head_dim, to_v + h * d.v_stride_head, d.head_dim);
  }
}

template <class Body>
void each_token(int threads, int64_t tokens, int64_t elements, const Body& body) {
  if (tokens * elements < kSerialElements) threads = 1;
  run_threads(int(std::min<int64_t>(threads, tokens)), [&](int t, int n) {
    for (int64_t i = share_begin(tokens, t, n); i < share_begin(tokens, t + 1, n); i++) body(i);
  });
}

template <class T, class C>
void write(const dg_cache_desc& d, const T* k, int64_t ldk, const T* v, int64_t ldv,
           const int64_t* slots, int64_t tokens) {
  each_token(d.num_threads, tokens, 2 * d.num_kv_heads * d.head_dim, [&](int64_t i) {
    write_token<T, C>(d, k + i * ldk, v + i * ldv, slots[i]);
  });
}

template <class T>
void rope(const dg_rope_desc& d, T* q, int64_t ldq, T* k, int64_t ldk, const int64_t* positions,
          int64_t tokens) {
  const int64_t elements = (d.num_heads + d.num_kv_heads) * d.rotary_dim;
  each_token(d.num_threads, tokens, elements, [&](int64_t i) {
    rope_token<T>(d, q + i * ldq, k + i * ldk, positions[i]);
  });
}

template <class T, class C>
void rope_write(const dg_rope_desc& d, const dg_cache_desc& c, T* q, int64_t ldq, T* k, int64_t ldk,
                const T* v, int64_t ldv, const int64_t* positions, const int64_t* slots,
                int64_t tokens) {
  const int64_t elements = (d.num_heads + 3 * d.num_kv_heads) * d.head_dim;
  each_token(d.num_threads, tokens, elements, [&](int64_t i) {
    rope_token<T>(d, q + i * ldq, k + i * ldk, positions[i]);
    write_token<T, C>(c, k + i * ldk, v + i * ldv, slots[i]);
  });
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

void dg_rope(const dg_rope_desc* d, void* q, int64_t ldq, void* k, int64_t ldk,
             const int64_t* positions, int64_t tokens) {
  if (d->dtype == kBFloat16)
    rope(*d, (bf16*)q, ldq, (bf16*)k, ldk, positions, tokens);
  else
    rope(*d, (float*)q, ldq, (float*)k, ldk, positions, tokens);
}

void dg_write_kv(const dg_cache_desc* d, const void* k, int64_t ldk, const void* v, int64_t ldv,
                 const int64_t* slots, int64_t tokens) {
  if (d->dtype == kBFloat16)
    write<bf16, bf16>(*d, (const bf16*)k, ldk, (const bf16*)v, ldv, slots, tokens);
  else if (d->cache_dtype == kBFloat16)
    write<float, bf16>(*d, (const float*)k, ldk, (const float*)v, ldv, slots, tokens);
  else
    write<float, float>(*d, (const float*)k, ldk, (const float*)v, ldv, slots, tokens);
}

void dg_rope_and_write_kv(const dg_rope_desc* d, const dg_cache_desc* c, void* q, int64_t ldq,
                          void* k, int64_t ldk, const void* v, int64_t ldv,
                          const int64_t* positions, const int64_t* slots, int64_t tokens) {
  if (d->dtype == kBFloat16)
    rope_write<bf16, bf16>(*d, *c, (bf16*)q, ldq, (bf16*)k, ldk, (const bf16*)v, ldv, positions,
                           slots, tokens);
  else if (c->cache_dtype == kBFloat16)
    rope_write<float, bf16>(*d, *c, (float*)q, ldq, (float*)k, ldk, (const float*)v, ldv, positions,
                            slots, tokens);
  else
    rope_write<float, float>(*d, *c, (float*)q, ldq, (float*)k, ldk, (const float*)v, ldv,
                             positions, slots, tokens);
}

#pragma GCC visibility pop
}  // extern "C"

}  // namespace dg
