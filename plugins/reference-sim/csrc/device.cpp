#include "device.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "config.h"
#include "counters.h"
#include "memory.h"

namespace dougong_sim {
namespace {

// Leaked, as all globals here: worker threads and tensors outlive the destructors of statics.
std::vector<std::unique_ptr<Device>>& devices() {
  static auto* devices = new std::vector<std::unique_ptr<Device>>;
  return *devices;
}

std::mutex& context_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::atomic<bool> bad_fork{false};
thread_local c10::DeviceIndex current_index = 0;

// A context does not survive fork(): the child has the memory, but neither workers nor driver.
void after_fork_in_child() {
  for (const auto& device : devices()) {
    if (device->has_context) {
      bad_fork = true;
    }
  }
}

std::string name_of(const Device& device) {
  return "sim:" + std::to_string(static_cast<int>(device.index));
}

// Held until the process ends: the kernel releases the lock, however it ends.
void take_exclusively(const Device& device) {
  const std::string path =
      config().state_dir + "/dougong-sim-" + std::to_string(device.physical) + ".lock";
  const int file = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  TORCH_CHECK(file >= 0, "sim: cannot open the lock file ", path, " (errno ", errno, ")");
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    close(file);
    raise_device_error(
        ErrorCode::kBusy,
        name_of(device) + ": device busy: another process uses it, and SIM_EXCLUSIVE is set (" +
            path + ")");
  }
}

}  // namespace

Device::Device(c10::DeviceIndex index, int physical, int64_t memory_limit)
    : index(index), physical(physical), memory_limit(memory_limit) {}
Device::~Device() = default;

Config& config() {
  static auto* config = new Config;
  return *config;
}

void configure_devices(const std::vector<int64_t>& visible, int64_t memory_limit) {
  TORCH_CHECK(devices().empty(), "sim: the devices are configured already");
  TORCH_CHECK(visible.size() <= kMaxDevices, "sim: at most ", kMaxDevices, " devices");
  for (const int64_t physical : visible) {
    const auto index = static_cast<c10::DeviceIndex>(devices().size());
    auto made = std::make_unique<Device>(index, static_cast<int>(physical), memory_limit);
    made->queues.emplace_back(*made, 0);
    devices().push_back(std::move(made));
  }
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

int device_count() noexcept {
  return static_cast<int>(devices().size());
}

Device& device(c10::DeviceIndex index) {
  if (index < 0 || index >= device_count()) {
    raise_device_error(
        ErrorCode::kBadOrdinal,
        "sim: invalid device ordinal " + std::to_string(static_cast<int>(index)) + "; " +
            std::to_string(device_count()) + " devices are visible");
  }
  return *devices()[static_cast<size_t>(index)];
}

Device* device_of_pointer(const void* pointer) noexcept {
  for (const auto& device : devices()) {
    if (device->has_context && device->memory->contains(pointer)) {
      return device.get();
    }
  }
  return nullptr;
}

c10::DeviceIndex current_device() noexcept {
  return current_index;
}

void set_current_device(c10::DeviceIndex index) {
  device(index);
  current_index = index;
}

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  current_index = index;
}

bool is_bad_fork() noexcept {
  return bad_fork;
}

void check_usable(Device& device) {
  TORCH_CHECK(
      !bad_fork,
      "sim: cannot use the device in a forked process whose parent has used it; start the process "
      "with the 'spawn' method");
  device.faults.raise_reported_failure(device.index);
}

void ensure_context(Device& device) {
  check_usable(device);
  if (device.has_context) {
    return;
  }
  std::lock_guard lock(context_mutex());
  if (device.has_context) {
    return;
  }
  if (config().is_exclusive) {
    take_exclusively(device);
  }
  device.memory = std::make_unique<Memory>(device);
  device.has_context = true;
  count("context:" + std::to_string(static_cast<int>(device.index)));
}

}  // namespace dougong_sim
