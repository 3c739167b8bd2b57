#include "mtrain/train/cluster.h"

#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr GpuType kGpuTypes[] = {
    {"v100", 70, 32, 8},     {"a100", 80, 80, 8},     {"a40", 86, 48, 2},    {"l40s", 89, 48, 1},
    {"rtx4090", 89, 24, 1},  {"h100", 90, 80, 8},     {"h200", 90, 141, 8},  {"gh200", 90, 96, 1},
    {"b200", 100, 180, 8},   {"gb200", 100, 186, 72}, {"b300", 103, 288, 8}, {"gb300", 103, 288, 72},
    {"rtx5090", 120, 32, 1},
};

}  // namespace

std::span<const GpuType> gpu_types() {
  return kGpuTypes;
}

const GpuType& gpu_type(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& type : kGpuTypes) {
    if (name == type.name) return type;
    names.emplace_back(type.name);
  }
  auto near = nearest(name, names, 1);
  throw Error(ErrorClass::usage, cat("--gpu: there is no GPU type '", printable(name, 40), "'"),
              cat(near.empty() ? "" : cat("did you mean ", near[0], "? "), "there are: ", join(names, ", ")));
}

}  // namespace mtrain
