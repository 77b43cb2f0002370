// Result shapes of a few frequent operators, without asking torch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>

namespace dougong_sim {

// A tensor like the operator's one result, without data; nothing where torch must be asked, which
// is also how wrong arguments come to be refused in torch's words.
//
// Torch computes the shapes of these in Python: up to fifty times the cost of the call, and one to
// two seconds of imports for the first of them in a process.
std::optional<at::Tensor> shape_by_rule(
    const std::string& name, c10::ArrayRef<c10::IValue> arguments);

}  // namespace dougong_sim
