// What the fallback needs to know of an operator, worked out once from its schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <string>
#include <vector>

#include "counters.h"

namespace dougong_sim {

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& op);

  const std::string name;  // "aten::add", without the overload
  const size_t num_arguments;
  const size_t num_returns;
  std::atomic<bool> is_declared{false};
  Counter& calls;  // op:<name>

  // Per return: the argument that it is (an in-place or out= result), or -1 for a new tensor.
  std::vector<int> returned_argument;
  std::vector<size_t> written_arguments;
  bool returns_view = false;          // aliases an argument that it does not write
  bool returns_only_tensors = true;   // or lists of them
  bool writes_only_outs = false;      // add.out and the like: results go to out= tensors only
  bool has_dynamic_shape = false;     // torch's tag: the result's shape may depend on values
  int generator_argument = -1;
};

const OpInfo& op_info(const c10::OperatorHandle& op);

// The operators that the device says it has; the rest is refused in strict mode.
void declare_ops(const std::vector<std::string>& names);

}  // namespace dougong_sim
