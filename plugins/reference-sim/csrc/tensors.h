// Making device tensors, and looking at them from kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include "device.h"

namespace dougong_sim {

inline bool is_sim(const at::Tensor& tensor) {
  return tensor.device().type() == kDeviceType;
}

// On the current device, uninitialised.
at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

// As `resize_`, with the storage grown on the device where torch's own function would do it on the
// host.
void resize_on_device(const at::Tensor& tensor, at::IntArrayRef sizes,
    std::optional<at::MemoryFormat> format = std::nullopt);

// A tensor of the same shape without data, to ask torch what an operator would return.
at::Tensor meta_like(const at::Tensor& tensor);

}  // namespace dougong_sim
