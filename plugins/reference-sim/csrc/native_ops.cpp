// Operators that every backend must bring itself: making tensors, views, resizing, scalars.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "allocator.h"
#include "counters.h"
#include "host_waits.h"
#include "tensors.h"

namespace dougong_sim {
namespace {

constexpr c10::DispatchKeySet kSimKeys(c10::DispatchKey::PrivateUse1);

void refuse_layout(std::optional<at::Layout> layout, std::optional<bool> is_pinned) {
  TORCH_CHECK(
      c10::layout_or_default(layout) == at::kStrided, "sim: only strided tensors are supported");
  TORCH_CHECK(!is_pinned.value_or(false), "sim: only host memory can be pinned");
}

void grow(const at::Storage& storage, size_t num_bytes) {
  if (num_bytes > storage.nbytes()) {
    at::native::resize_bytes_nocuda(storage, static_cast<int64_t>(num_bytes));
  }
}

at::Tensor empty(
    at::IntArrayRef sizes,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> is_pinned,
    std::optional<at::MemoryFormat> format) {
  static Counter& calls = counter("op:aten::empty");
  calls++;
  refuse_layout(layout, is_pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(
      sizes, &device_allocator(), kSimKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> is_pinned) {
  static Counter& calls = counter("op:aten::empty_strided");
  calls++;
  refuse_layout(layout, is_pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return empty_on_device(sizes, strides, c10::dtype_or_default(dtype));
}

at::Scalar item(const at::Tensor& self) {
  static Counter& calls = counter("op:aten::_local_scalar_dense");
  calls++;
  const c10::DeviceGuard guard(self.device());
  note_implicit_sync("item");
  synchronize(current_queue(device(self.get_device())));
  return at::native::_local_scalar_dense_cpu(host_view(self));
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  static Counter& calls = counter("op:aten::record_stream");
  calls++;
  record_use(self.storage().data(), queue_of(stream));
}

at::Tensor as_strided(
    const at::Tensor& self,
    c10::SymIntArrayRef sizes,
    c10::SymIntArrayRef strides,
    std::optional<c10::SymInt> offset) {
  static Counter& calls = counter("op:aten::as_strided");
  calls++;
  return at::cpu::as_strided_symint(self, sizes, strides, offset);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  static Counter& calls = counter("op:aten::view");
  calls++;
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor reshape_alias(
    const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides) {
  return at::native::_reshape_alias(
      self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

const at::Tensor& resize(
    const at::Tensor& self,
    c10::SymIntArrayRef sizes,
    std::optional<at::MemoryFormat> format) {
  resize_on_device(self, C10_AS_INTARRAYREF_SLOW(sizes), format);
  return self;
}

at::Tensor& set_storage_part(
    at::Tensor& self,
    at::Storage source,
    int64_t offset,
    at::IntArrayRef sizes,
    at::IntArrayRef strides) {
  if (!strides.empty()) {  // else contiguous, and within the storage
    grow(source, at::detail::computeStorageNbytes(sizes, strides, self.element_size(), offset));
  }
  return at::cpu::set_(self, std::move(source), offset, sizes, strides);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::native::set_tensor_(self, source);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_local_scalar_dense", item);
  library.impl("record_stream", record_stream);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage_storage_offset", set_storage_part);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("unfold", at::native::unfold);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
}

}  // namespace

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kSimKeys, dtype);
}

void resize_on_device(
    const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  const auto offset = static_cast<size_t>(tensor.storage_offset());
  grow(
      tensor.storage(),
      at::detail::computeStorageNbytesContiguous(sizes, tensor.element_size(), offset));
  at::native::resize_(tensor, sizes, format);
}

at::Tensor meta_like(const at::Tensor& tensor) {
  return at::Tensor(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
}

at::Tensor host_view(const at::Tensor& tensor) {
  const c10::impl::ExcludeDispatchKeyGuard no_python(c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  if (tensor.numel() == 0) {
    return at::Tensor(
        at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  }
  at::Tensor view = at::from_blob(
      host_address(tensor.const_data_ptr()),
      tensor.sizes(),
      tensor.strides(),
      at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
  view._set_conj(tensor.is_conj());
  view._set_neg(tensor.is_neg());
  return view;
}

}  // namespace dougong_sim
