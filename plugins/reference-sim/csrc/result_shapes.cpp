// What an operator returns, found out at the call: by a rule, or by running it without data.
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "operator_call.h"
#include "shape_rules.h"

namespace dougong_sim {
namespace {

void resize_if_needed(const c10::IValue& written, const at::Tensor& shape) {
  if (written.toTensor().sizes() != shape.sizes()) {
    resize_on_device(written.toTensor(), shape.sizes());
  }
}

// Whether the shapes of the results may depend on values. An index does only where it is a mask.
bool may_depend_on_values(const Call& call) {
  if (call.info.name != "aten::index") {
    return call.info.has_dynamic_shape;
  }
  bool has_mask = false;
  visit_tensors(call.arguments[1], [&](const at::Tensor& index) {
    has_mask = has_mask || index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return has_mask;
}

// The arguments as tensors without data.
Stack meta_arguments(const Call& call) {
  Stack arguments = call.arguments;
  for (c10::IValue& value : arguments) {
    map_tensors(value, [](const at::Tensor& tensor) {
      return is_sim(tensor) ? meta_like(tensor) : tensor;
    });
    if (value.isDevice()) {
      value = c10::Device(at::kMeta);
    } else if (value.isGenerator()) {
      value = c10::IValue();
    }
  }
  return arguments;
}

}  // namespace

std::optional<Stack> shapes_of_results(const Call& call) {
  if (!call.info.returns_only_tensors) {
    return std::nullopt;
  }
  if (auto shape = shape_by_rule(call.info.name, call.arguments)) {
    for (const size_t i : call.info.written_arguments) {
      resize_if_needed(call.arguments[i], *shape);
    }
    return Stack{*shape};
  }
  Stack stack = meta_arguments(call);
  const Stack inputs = stack;
  try {
    const c10::InferenceMode inference(true);
    const c10::impl::ExcludeDispatchKeyGuard no_python(python_keys());
    call.op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;  // torch cannot tell
  } catch (const std::exception&) {  // nor can it, in Python: any exception
    if (may_depend_on_values(call)) {
      return std::nullopt;
    }
    throw;
  }
  for (const size_t i : call.info.written_arguments) {
    if (inputs[i].isTensor() && inputs[i].toTensor().defined()) {
      resize_if_needed(call.arguments[i], inputs[i].toTensor());
    }
  }
  return stack;
}

}  // namespace dougong_sim
