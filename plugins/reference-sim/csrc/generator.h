// Random numbers of the device.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace dougong_sim {

// Seed and number of draws, as the counter-based generators of real devices keep them. Each launch
// takes the next number when it is queued, so neither seeding nor reading the state has to wait
// for the device.
class SimGenerator final : public c10::GeneratorImpl {
 public:
  explicit SimGenerator(c10::DeviceIndex index);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { *draws_ = offset; }
  uint64_t get_offset() const override { return *draws_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // What the kernel launched now draws from: called when it runs, gives a fresh CPU generator.
  // Captured kernels draw other numbers at each replay.
  std::function<at::Generator()> next_launch();

 private:
  SimGenerator* clone_impl() const override;

  uint64_t seed_;
  std::shared_ptr<std::atomic<uint64_t>> draws_;
};

const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator new_generator(c10::DeviceIndex index);
inline SimGenerator& as_sim(const at::Generator& generator) {
  return *static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl());
}

}  // namespace dougong_sim
