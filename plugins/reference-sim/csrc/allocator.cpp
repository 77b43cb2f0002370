// Torch's view of device memory and of page-locked host memory.
#include "allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "device.h"
#include "memory.h"

namespace dougong_sim {
namespace {

void free_device_memory(void* pointer) {
  if (pointer == nullptr || is_bad_fork()) {
    return;
  }
  if (Device* owner = device_of_pointer(pointer)) {
    owner->memory->free(pointer);
  }
}

struct SimAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    Device& owner = device(current_device());
    ensure_context(owner);
    void* pointer = owner.memory->allocate(num_bytes, current_queue(owner));
    return {pointer, pointer, &free_device_memory, c10::Device(kDeviceType, owner.index)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device_memory; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    if (num_bytes > 0) {
      copy_on_device(to, from, num_bytes);
    }
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // nothing is kept back
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_use(data.get(), queue_of(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    Device& asked = device(index);
    return asked.has_context ? asked.memory->stats() : c10::CachingDeviceAllocator::DeviceStats{};
  }
  void resetAccumulatedStats(c10::DeviceIndex index) override {
    if (Device& asked = device(index); asked.has_context) {
      asked.memory->reset_accumulated();
    }
  }
  void resetPeakStats(c10::DeviceIndex index) override {
    if (Device& asked = device(index); asked.has_context) {
      asked.memory->reset_peak();
    }
  }
  // A driver answers this without making a context, so a parent process may ask.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    Device& asked = device(index);
    const auto total = static_cast<size_t>(asked.memory_limit.load());
    return {asked.has_context ? asked.memory->free_bytes() : total, total};
  }
};

// Addresses of page-locked blocks, to answer `is_pinned`.
struct Pinned {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;
};

Pinned& pinned() {
  static auto* pinned = new Pinned;
  return *pinned;
}

void free_pinned(void* pointer) {
  {
    std::lock_guard lock(pinned().mutex);
    pinned().blocks.erase(static_cast<char*>(pointer));
  }
  std::free(pointer);
}

// Copies hold the storage that they read, so a block is never reused too early.
struct SimHostAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    constexpr size_t kLine = 64;
    void* pointer = nullptr;
    if (num_bytes > 0) {
      pointer = std::aligned_alloc(kLine, (num_bytes + kLine - 1) / kLine * kLine);
      TORCH_CHECK(pointer != nullptr, "sim: no host memory for ", num_bytes, " pinned bytes");
      std::lock_guard lock(pinned().mutex);
      pinned().blocks[static_cast<char*>(pointer)] = num_bytes;
    }
    return {pointer, pointer, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    std::memcpy(to, from, num_bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

SimHostAllocator& host_allocator() {
  static auto* allocator = new SimHostAllocator;
  return *allocator;
}

}  // namespace

c10::Allocator& device_allocator() {
  static auto* allocator = new SimAllocator;
  return *allocator;
}

c10::Allocator& pinned_allocator() {
  return host_allocator();
}

bool is_pinned(const void* pointer) {
  const auto* address = static_cast<const char*>(pointer);
  std::lock_guard lock(pinned().mutex);
  auto after = pinned().blocks.upper_bound(address);
  if (after == pinned().blocks.begin()) {
    return false;
  }
  const auto& [begin, size] = *std::prev(after);
  return address < begin + size;
}

void* host_address(const void* pointer) {
  if (pointer == nullptr) {
    return nullptr;
  }
  const Device* owner = device_of_pointer(pointer);
  TORCH_CHECK(owner != nullptr, "sim: ", pointer, " is no address of device memory");
  return owner->memory->host_address(pointer);
}

void record_use(const void* pointer, Queue& queue) {
  if (const Device* owner = device_of_pointer(pointer)) {
    owner->memory->record_use(pointer, queue);
  }
}

void copy_on_device(void* to, const void* from, size_t num_bytes) {
  Device& owner = *device_of_pointer(to);
  auto copy = [target = host_address(to), source = host_address(from), num_bytes] {
    std::memcpy(target, source, num_bytes);
  };
  submit(current_queue(owner), make_task("copy_bytes", true, std::move(copy)));
}

void register_allocators() {
  c10::SetAllocator(kDeviceType, &device_allocator());
  at::setHostAllocator(kDeviceType, &host_allocator());
}

}  // namespace dougong_sim
