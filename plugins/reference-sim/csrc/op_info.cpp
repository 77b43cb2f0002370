#include "op_info.h"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

namespace dougong_sim {
namespace {

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OpInfo>> infos;
  std::unordered_set<std::string> declared;
};

Table& table() {
  static auto* table = new Table;
  return *table;
}

bool is_tensor_type(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::ListType) {
    return type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
  }
  return type.kind() == c10::TypeKind::TensorType;
}

bool is_optional_generator(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType &&
      type.castRaw<c10::OptionalType>()->getElementType()->kind() ==
      c10::TypeKind::GeneratorType;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

int argument_returned_as(const c10::FunctionSchema& schema, const c10::Argument& result) {
  for (size_t i = 0; i < schema.arguments().size(); i++) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && result.alias_info() != nullptr && *alias == *result.alias_info()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

OpInfo::OpInfo(const c10::OperatorHandle& op)
    : name(op.schema().name()),
      num_arguments(op.schema().arguments().size()),
      num_returns(op.schema().returns().size()),
      calls(counter("op:" + name)),
      has_dynamic_shape(op.hasTag(at::Tag::dynamic_output_shape)) {
  const c10::FunctionSchema& schema = op.schema();
  bool are_written_outs = true;
  for (size_t i = 0; i < num_arguments; i++) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_written(argument)) {
      written_arguments.push_back(i);
      are_written_outs = are_written_outs && argument.kwarg_only() &&
          argument.type()->kind() == c10::TypeKind::TensorType;
    }
    if (is_optional_generator(*argument.type())) {
      generator_argument = static_cast<int>(i);
    }
  }
  bool are_returns_arguments = num_returns > 0;
  for (const c10::Argument& result : schema.returns()) {
    returned_argument.push_back(argument_returned_as(schema, result));
    returns_only_tensors = returns_only_tensors && is_tensor_type(*result.type());
    returns_view = returns_view || (result.alias_info() != nullptr && !is_written(result));
    are_returns_arguments = are_returns_arguments && returned_argument.back() >= 0;
  }
  writes_only_outs = are_returns_arguments && are_written_outs && !written_arguments.empty();
}

const OpInfo& op_info(const c10::OperatorHandle& op) {
  const c10::FunctionSchema* key = &op.schema();
  {
    std::shared_lock lock(table().mutex);
    if (const auto known = table().infos.find(key); known != table().infos.end()) {
      return *known->second;
    }
  }
  auto info = std::make_unique<OpInfo>(op);
  std::unique_lock lock(table().mutex);
  info->is_declared = table().declared.count(info->name) > 0;
  return *table().infos.try_emplace(key, std::move(info)).first->second;
}

void declare_ops(const std::vector<std::string>& names) {
  std::unique_lock lock(table().mutex);
  table().declared = {names.begin(), names.end()};
  for (auto& [key, info] : table().infos) {
    info->is_declared = table().declared.count(info->name) > 0;
  }
}

}  // namespace dougong_sim
