// Large pages for what is streamed through in every step: weights and the cache.
#include <sys/mman.h>

#include <cstdint>

// Asks for huge pages on the whole ones inside [data, data + bytes). Takes effect on pages not
// touched yet; a system that has none ignores it.
extern "C" __attribute__((visibility("default"))) void dg_advise_huge_pages(void* data,
                                                                            int64_t bytes) {
  constexpr uintptr_t kHuge = uintptr_t(2) << 20;
  constexpr uintptr_t kPage = 4096;
  if (bytes < int64_t(kHuge)) return;
  const uintptr_t first = (uintptr_t(data) + kPage - 1) / kPage * kPage;
  const uintptr_t last = (uintptr_t(data) + uintptr_t(bytes)) / kPage * kPage;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}
