#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "device.h"

namespace dougong_sim {
namespace {

using State = std::array<uint64_t, 2>;  // seed, draws

// SplitMix64 of the pair: launches of one generator are unrelated to one another.
uint64_t mix(uint64_t seed, uint64_t draw) {
  uint64_t z = seed + (draw + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

SimGenerator::SimGenerator(c10::DeviceIndex index)
    : c10::GeneratorImpl(
          c10::Device(kDeviceType, index),
          c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val),
      draws_(std::make_shared<std::atomic<uint64_t>>(0)) {}

void SimGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  // A new counter: what a captured graph draws is not disturbed half-way.
  draws_ = std::make_shared<std::atomic<uint64_t>>(0);
}

uint64_t SimGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void SimGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(
      state.numel() == sizeof(State) && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
          state.device().is_cpu() && state.is_contiguous(),
      "sim: a generator's state is a CPU uint8 tensor of ",
      sizeof(State),
      " bytes");
  State values;
  std::memcpy(values.data(), state.data(), sizeof(State));
  set_current_seed(values[0]);
  *draws_ = values[1];
}

c10::intrusive_ptr<c10::TensorImpl> SimGenerator::get_state() const {
  at::Tensor state(at::detail::empty_cpu({sizeof(State)}, at::kByte));
  const State values{seed_, *draws_};
  std::memcpy(state.mutable_data_ptr(), values.data(), sizeof(State));
  return state.getIntrusivePtr();
}

SimGenerator* SimGenerator::clone_impl() const {
  auto* copy = new SimGenerator(device_.index());
  copy->set_current_seed(seed_);
  *copy->draws_ = draws_->load();
  return copy;
}

std::function<at::Generator()> SimGenerator::next_launch() {
  const auto generator_for = [seed = seed_](uint64_t draw) {
    return at::make_generator<at::CPUGeneratorImpl>(mix(seed, draw));
  };
  if (current_capture() != nullptr) {
    return [generator_for, draws = draws_] { return generator_for((*draws)++); };
  }
  return [generator_for, draw = (*draws_)++] { return generator_for(draw); };
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static auto* mutex = new std::mutex;
  static auto* generators = new std::array<at::Generator, kMaxDevices>;
  const c10::DeviceIndex asked = index < 0 ? current_device() : index;
  device(asked);
  std::lock_guard lock(*mutex);
  at::Generator& generator = (*generators)[static_cast<size_t>(asked)];
  if (!generator.defined()) {
    generator = new_generator(asked);
  }
  return generator;
}

at::Generator new_generator(c10::DeviceIndex index) {
  const c10::DeviceIndex asked = index < 0 ? current_device() : index;
  device(asked);
  return at::make_generator<SimGenerator>(asked);
}

}  // namespace dougong_sim
