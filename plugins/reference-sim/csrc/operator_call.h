// One call of an operator, as the fallback passes it from step to step.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>

#include "op_info.h"
#include "tensors.h"

namespace dougong_sim {

using torch::jit::Stack;

struct Call {
  Call(const c10::OperatorHandle& op, const Stack& stack)
      : op(op),
        info(op_info(op)),
        arguments(stack.end() - static_cast<ptrdiff_t>(info.num_arguments), stack.end()) {}

  const c10::OperatorHandle& op;
  const OpInfo& info;
  const Stack arguments;
  c10::DeviceIndex index = -1;  // the device it is for
};

// Python code must not come between while the fallback calls an operator on its own account.
inline c10::DispatchKeySet python_keys() {
  return c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});
}

// The results as tensors without data. Nothing where their shapes depend on values, which only the
// device has. Wrong arguments raise here, at the call; out= tensors are resized if they must be.
std::optional<Stack> shapes_of_results(const Call& call);

// Calls `change` for each tensor of a value and puts its answer in the place of the tensor.
template <class Change>
void map_tensors(c10::IValue& value, Change change) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      value = change(value.toTensor());
    }
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> changed;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      changed.push_back(tensor.defined() ? change(tensor) : tensor);
    }
    value = std::move(changed);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> changed;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      const bool is_there = tensor.has_value() && tensor->defined();
      changed.push_back(is_there ? std::optional(change(*tensor)) : tensor);
    }
    value = std::move(changed);
  }
}

template <class Visit>
void visit_tensors(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) {
        visit(tensor);
      }
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor.has_value() && tensor->defined()) {
        visit(*tensor);
      }
    }
  }
}

}  // namespace dougong_sim
