#include "mtrain/recipe/cluster.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr GpuType kGpuTypes[] = {
    {"v100", 70, 32, 8, 125, 0, 150},       {"a100", 80, 80, 8, 312, 0, 300},
    {"a40", 86, 48, 2, 150, 0, 56},         {"l40s", 89, 48, 1, 362, 733, 32},
    {"rtx4090", 89, 24, 1, 165, 330, 32},   {"h100", 90, 80, 8, 989, 1979, 450},
    {"h200", 90, 141, 8, 989, 1979, 450},   {"gh200", 90, 96, 1, 990, 1979, 450},
    {"b200", 100, 180, 8, 2250, 4500, 900}, {"gb200", 100, 186, 72, 2500, 5000, 900},
    {"b300", 103, 288, 8, 2250, 4500, 900}, {"gb300", 103, 288, 72, 2500, 5000, 900},
    {"rtx5090", 120, 32, 1, 210, 419, 64},
};

}  // namespace

std::span<const GpuType> gpu_types() { return kGpuTypes; }

const GpuType& gpu_type(std::string_view name) {
  std::vector<std::string> names;
  const auto same_letter = [](char a, char b) {  // H100 is h100
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  for (const auto& type : kGpuTypes) {
    if (std::ranges::equal(name, std::string_view(type.name), same_letter)) return type;
    names.emplace_back(type.name);
  }
  auto near = nearest(name, names, 1);
  throw Error(ErrorClass::usage, cat("--gpu: unknown GPU type '", printable(name, 40), "'"),
              cat(near.empty() ? "" : cat("did you mean ", near[0], "? "),
                  "known types: ", join(names, ", ")));
}

const GpuType* gpu_type_of(std::string_view device) {
  // Whole words must match, so that a GH200 is not taken for an H200; "RTX 4090" counts as one
  // word.
  std::vector<std::string> words(1);
  for (char c : device.substr(0, device.find(','))) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (words.back() != "rtx")
      words.emplace_back();
  }
  for (const auto& type : kGpuTypes)
    for (const std::string& word : words)
      if (word == type.name) return &type;
  return nullptr;
}

}  // namespace mtrain
