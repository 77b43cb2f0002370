#include "memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "device.h"

namespace dougong_sim {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kPage = 4096;
constexpr size_t kChunk = size_t{4} << 20;  // the second range is backed in steps of this
constexpr size_t kLargeBlock = size_t{1} << 20;
constexpr unsigned char kFresh = 0xFF;  // NaN in every float format, -1 in every integer
constexpr unsigned char kFreed = 0xFE;

constexpr size_t round_up(size_t value, size_t step) {
  return (value + step - 1) / step * step;
}

// A file of one chunk of 0xFF. Ranges are private mappings of it, so memory that nobody has
// written reads as poison and costs nothing.
int file_of_ones() {
  static const int file = [] {
    const int made = memfd_create("dougong-sim", MFD_CLOEXEC);
    TORCH_CHECK(made >= 0, "sim: memfd_create failed");
    const std::vector<unsigned char> ones(kChunk, kFresh);
    const ssize_t written = pwrite(made, ones.data(), ones.size(), 0);
    TORCH_CHECK(written == static_cast<ssize_t>(kChunk), "sim: cannot write to memory");
    return made;
  }();
  return file;
}

char* reserve(size_t size) {
  void* range =
      mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(range != MAP_FAILED, "sim: cannot reserve ", size, " bytes of address space");
  return static_cast<char*>(range);
}

template <class Change>
void change(c10::CachingAllocator::StatArray& array, Change change_one) {
  change_one(array[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]);
}

void add(c10::CachingAllocator::StatArray& array, size_t amount) {
  change(array, [&](auto& stat) { stat.increase(amount); });
}

void subtract(c10::CachingAllocator::StatArray& array, size_t amount) {
  change(array, [&](auto& stat) { stat.decrease(amount); });
}

auto all_of(c10::CachingDeviceAllocator::DeviceStats& stats) {
  return std::array{
      &stats.allocation,
      &stats.active,
      &stats.allocated_bytes,
      &stats.reserved_bytes,
      &stats.active_bytes,
      &stats.requested_bytes};
}

}  // namespace

PoolPtr current_pool() {
  const Capture* capture = current_capture();
  return capture == nullptr ? nullptr : capture->pool;
}

Memory::Memory(Device& device)
    : device_(device), guarded_(reserve(kSpan)), bytes_(reserve(kSpan)) {}

Memory::Place Memory::extend(size_t size) {
  TORCH_CHECK_WITH(
      OutOfMemoryError, top_ + size <= kSpan, "sim: the address space of the device is used up");
  while (mapped_ < top_ + size) {
    void* chunk = mmap(
        bytes_ + mapped_,
        kChunk,
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
        file_of_ones(),
        0);
    TORCH_CHECK(chunk != MAP_FAILED, "sim: cannot back device memory");
    mapped_ += kChunk;
  }
  const Place place{top_, true, true};
  top_ += size;
  return place;
}

void Memory::refuse_beyond_limit(size_t size, size_t num_bytes) {
  const bool is_injected = device_.faults.take("oom", "").has_value();
  const auto used = static_cast<size_t>(stats_.reserved_bytes[0].current);
  const auto limit = static_cast<size_t>(device_.memory_limit.load());
  if (!is_injected && used + size <= limit) {
    return;
  }
  stats_.num_ooms++;
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "sim:",
      static_cast<int>(device_.index),
      " out of memory. Tried to allocate ",
      num_bytes,
      " bytes; ",
      used,
      " of ",
      limit,
      " bytes are in use",
      is_injected ? " (injected)" : "");
}

Memory::Place Memory::find(size_t size, size_t num_bytes, Queue& home, Pool* pool) {
  if (pool != nullptr) {
    if (const auto block = pool->free.take(size, &home)) {
      return {block->offset, block->is_idle, false};  // reserved already
    }
  }
  refuse_beyond_limit(size, num_bytes);
  add(stats_.reserved_bytes, size);
  // A graph may be replayed on any stream, so it gets only what is idle.
  const Queue* user = pool != nullptr ? nullptr : &home;
  if (const auto block = free_.take(size, user)) {
    return {block->offset, block->is_idle, false};
  }
  free_.join_idle();
  if (const auto block = free_.take(size, user)) {
    return {block->offset, block->is_idle, false};
  }
  return extend(size);
}

void* Memory::allocate(size_t num_bytes, Queue& home) {
  if (num_bytes == 0) {
    return nullptr;
  }
  const size_t size = round_up(num_bytes, kAlignment);
  const PoolPtr pool = current_pool();
  Place place{};
  {
    std::lock_guard lock(mutex_);
    place = find(size, num_bytes, home, pool.get());
    live_[place.offset] = LiveBlock{size, num_bytes, &home, {}, pool};
    add(stats_.allocated_bytes, size);
    add(stats_.active_bytes, size);
    add(stats_.requested_bytes, num_bytes);
    add(stats_.allocation, 1);
    add(stats_.active, 1);
  }
  auto fill_fresh = [this, offset = place.offset, size] { fill(offset, size, kFresh); };
  if (pool != nullptr) {  // poisoned anew by every replay
    submit(home, make_task("fresh_memory", false, fill_fresh));
  } else if (!place.is_idle) {
    submit_uncaptured(home, make_task("fresh_memory", false, fill_fresh));
  } else if (!place.is_new) {
    fill_fresh();
  }
  return guarded_ + place.offset;
}

bool Memory::free(void* pointer) {
  const auto offset = static_cast<size_t>(static_cast<char*>(pointer) - guarded_);
  LiveBlock block;
  {
    std::lock_guard lock(mutex_);
    const auto entry = live_.find(offset);
    if (entry == live_.end()) {
      return false;
    }
    block = std::move(entry->second);
    live_.erase(entry);
    subtract(stats_.allocated_bytes, block.size);
    subtract(stats_.active_bytes, block.size);
    subtract(stats_.requested_bytes, block.num_bytes);
    subtract(stats_.allocation, 1);
    subtract(stats_.active, 1);
  }
  const PoolPtr pool = block.pool.lock();
  const bool is_captured = pool != nullptr && pool == current_pool();
  Fences fences = poison(offset, block, is_captured);
  std::lock_guard lock(mutex_);
  if (pool == nullptr) {
    subtract(stats_.reserved_bytes, block.size);
  }
  FreeList& list = pool == nullptr ? free_ : pool->free;
  list.put(offset, block.size, std::move(fences));
  return true;
}

// Overwrites freed bytes after the work that may use them, and says when they are idle.
Fences Memory::poison(size_t offset, const LiveBlock& block, bool is_captured) {
  Fences fences;
  for (Queue* queue : block.also_used_on) {
    if (!queue->is_idle()) {
      fences.push_back({queue, queue->submitted});
    }
  }
  auto fill_freed = [this, offset, size = block.size] { fill(offset, size, kFreed); };
  if (is_captured) {
    submit(*block.home, make_task("freed_memory", false, fill_freed));
  } else if (!fences.empty()) {
    // Its own stream does not know when the others are done: poisoned when it is handed out again.
    fences.push_back({block.home, block.home->submitted});
  } else if (block.home->is_idle()) {
    fill_freed();
  } else {
    const uint64_t number =
        submit_uncaptured(*block.home, make_task("freed_memory", false, fill_freed));
    fences.push_back({block.home, number});
  }
  return fences;
}

void Memory::fill(size_t offset, size_t size, unsigned char byte) const {
  char* begin = bytes_ + offset;
  if (size < kLargeBlock) {
    std::memset(begin, byte, size);
    return;
  }
  // The pages between go back to the system and read 0xFF again.
  const size_t head = round_up(offset, kPage) + kPage - offset;
  const size_t tail = (offset + size) % kPage;
  std::memset(begin, byte, head);
  std::memset(begin + size - tail, byte, tail);
  madvise(begin + head, size - tail - head, MADV_DONTNEED);
}

void Memory::record_use(const void* pointer, Queue& queue) {
  const auto offset = static_cast<size_t>(static_cast<const char*>(pointer) - guarded_);
  std::lock_guard lock(mutex_);
  const auto entry = live_.find(offset);
  if (entry == live_.end() || entry->second.home == &queue) {
    return;
  }
  auto& used_on = entry->second.also_used_on;
  if (std::find(used_on.begin(), used_on.end(), &queue) == used_on.end()) {
    used_on.push_back(&queue);
  }
}

void Memory::release(const PoolPtr& pool) {
  Fences fences;  // replays may be queued anywhere
  for (Queue* queue : all_queues(device_)) {
    if (!queue->is_idle()) {
      fences.push_back({queue, queue->submitted});
    }
  }
  std::lock_guard lock(mutex_);
  subtract(stats_.reserved_bytes, pool->free.move_to(free_, fences));
}

size_t Memory::free_bytes() {
  std::lock_guard lock(mutex_);
  const int64_t left = device_.memory_limit - stats_.reserved_bytes[0].current;
  return static_cast<size_t>(std::max<int64_t>(left, 0));
}

c10::CachingDeviceAllocator::DeviceStats Memory::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Memory::reset_accumulated() {
  std::lock_guard lock(mutex_);
  for (auto* array : all_of(stats_)) {
    change(*array, [](auto& stat) { stat.reset_accumulated(); });
  }
}

void Memory::reset_peak() {
  std::lock_guard lock(mutex_);
  for (auto* array : all_of(stats_)) {
    change(*array, [](auto& stat) { stat.reset_peak(); });
  }
}

}  // namespace dougong_sim
