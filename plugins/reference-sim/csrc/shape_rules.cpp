#include "shape_rules.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/result_type_native.h>

#include <cmath>
#include <unordered_map>

namespace dougong_sim {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;
using Rule = std::optional<at::Tensor> (*)(Arguments);

at::Tensor meta(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::Tensor(
      at::detail::empty_generic(
          sizes,
          c10::GetAllocator(at::kMeta),
          c10::DispatchKeySet(c10::DispatchKey::Meta),
          dtype,
          std::nullopt));
}

// where(condition, self, other)
std::optional<at::Tensor> where(Arguments arguments) {
  const at::Tensor& condition = arguments[0].toTensor();
  const at::Tensor& self = arguments[1].toTensor();
  const at::Tensor& other = arguments[2].toTensor();
  if (condition.scalar_type() != at::kBool) {
    return std::nullopt;
  }
  const auto values = at::infer_size_dimvector(self.sizes(), other.sizes());
  return meta(at::infer_size_dimvector(condition.sizes(), values), at::native::result_type(self, other));
}

// arange(start, end, step, *, out)
std::optional<at::Tensor> arange(Arguments arguments) {
  if (arguments.size() != 4 || !arguments[3].isTensor()) {
    return std::nullopt;
  }
  const double start = arguments[0].toScalar().toDouble();
  const double end = arguments[1].toScalar().toDouble();
  const double step = arguments[2].toScalar().toDouble();
  const double length = std::ceil((end - start) / step);
  if (!std::isfinite(length) || length < 0 || step == 0) {
    return std::nullopt;
  }
  return meta({static_cast<int64_t>(length)}, arguments[3].toTensor().scalar_type());
}

// index_select(self, dim, index)
std::optional<at::Tensor> index_select(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& index = arguments[2].toTensor();
  const bool is_index = index.scalar_type() == at::kLong || index.scalar_type() == at::kInt;
  int64_t dim = arguments[1].toInt();
  dim += dim < 0 ? self.dim() : 0;
  if (arguments.size() != 3 || !is_index || index.dim() > 1 || dim < 0 || dim >= self.dim()) {
    return std::nullopt;
  }
  auto sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim)] = index.numel();
  return meta(sizes, self.scalar_type());
}

// masked_fill_(self, mask, value)
std::optional<at::Tensor> masked_fill(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& mask = arguments[1].toTensor();
  if (mask.scalar_type() != at::kBool ||
      at::infer_size_dimvector(self.sizes(), mask.sizes()) != self.sizes()) {
    return std::nullopt;
  }
  return self;
}

// Fills `self` with random numbers.
std::optional<at::Tensor> same(Arguments arguments) {
  return arguments[0].toTensor();
}

}  // namespace

std::optional<at::Tensor> shape_by_rule(const std::string& name, Arguments arguments) {
  static const auto* rules = new std::unordered_map<std::string, Rule>{
      {"aten::arange", arange},
      {"aten::bernoulli_", same},
      {"aten::exponential_", same},
      {"aten::index_select", index_select},
      {"aten::masked_fill_", masked_fill},
      {"aten::normal_", same},
      {"aten::random_", same},
      {"aten::uniform_", same},
      {"aten::where", where}};
  const auto rule = rules->find(name);
  return rule == rules->end() ? std::nullopt : rule->second(arguments);
}

}  // namespace dougong_sim
