// The backend-wide questions of torch, and what is registered when the library is loaded.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "allocator.h"
#include "device.h"
#include "generator.h"

namespace dougong_sim {
namespace {

struct SimHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return device(index).has_context;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const c10::DeviceIndex before = current_device();
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* pointer) const override {
    const Device* owner = device_of_pointer(pointer);
    TORCH_CHECK(owner != nullptr, "sim: ", pointer, " is no address of device memory");
    return {kDeviceType, owner->index};
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t num_bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    c10::DataPtr data = device_allocator().allocate(num_bytes);
    if (const size_t kept = std::min(num_bytes, storage.nbytes()); kept > 0) {
      copy_on_device(data.get(), storage.data(), kept);
    }
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(num_bytes);
  }
};

// Hooks are torch's to keep: it never frees them.
[[maybe_unused]] const bool is_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new SimHooks);
  register_allocators();
  return true;
}();

}  // namespace
}  // namespace dougong_sim
