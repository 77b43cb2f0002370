// Memory a thread keeps between calls, and where parallel work starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include <omp.h>

namespace dg {

// Grows and never shrinks. What attention takes is bounded; see dg_attention_workspace.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  static size_t rounded(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  char* reserve(size_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      size_ = rounded(bytes);
      data_ = static_cast<char*>(std::aligned_alloc(4096, size_));
      if (!data_) std::abort();
    }
    return data_;
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

// Runs body(thread, threads); on the calling thread alone when one is enough, without a fork.
template <class Body>
inline void run_threads(int threads, const Body& body) {
  if (threads <= 1) {
    body(0, 1);
    return;
  }
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

// Calls body(unit) for each unit once; threads take the next one when they are free, so units of
// unlike cost, and cores that other programs use, still balance. Results must not depend on it.
template <class Body>
inline void for_each_unit(int threads, int64_t units, const Body& body) {
  if (threads > units) threads = int(units);
  std::atomic<int64_t> next{0};
  run_threads(threads, [&](int, int) {
    for (int64_t u; (u = next.fetch_add(1, std::memory_order_relaxed)) < units;) body(u);
  });
}

inline int64_t share_begin(int64_t total, int thread, int threads) {
  return total * thread / threads;
}

}  // namespace dg
