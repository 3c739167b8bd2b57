#include "mtrain/recipe/hf_windows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mtrain::hf {
namespace {

/// Every n-th block has no window; 0: all have one; -n: the first of every n blocks has none.
std::vector<bool> all_but(int64_t n, int64_t layers) {
  std::vector<bool> out;
  for (int64_t i = 0; i < layers; ++i) out.push_back(n == 0 || (n > 0 ? i + 1 : i) % n != 0);
  return out;
}

}  // namespace

std::optional<std::vector<bool>> windows_of(const Json& layer_types, int64_t layers) {
  if (layers > 0 && layer_types.is_number_integer() && layer_types != 0)
    return all_but(layer_types.get<int64_t>(), layers);
  if (!layer_types.is_array()) return std::nullopt;
  std::vector<bool> out;
  for (const Json& type : layer_types) {
    if (type != "full_attention" && type != "sliding_attention") return std::nullopt;
    out.push_back(type == "sliding_attention");
  }
  return out;
}

std::optional<int64_t> interval_of(const std::vector<bool>& windows, const Json& usual) {
  const auto full = std::find(windows.begin(), windows.end(), false);
  const int64_t first = full == windows.end() ? 0 : full - windows.begin() + 1;
  for (const int64_t n : {usual.is_number_integer() ? usual.get<int64_t>() : 0, first})
    if (n >= 0 && windows == all_but(n, std::ssize(windows))) return n;
  return std::nullopt;
}

Json ones_of(const std::vector<bool>& windows) {
  Json out = Json::array();
  for (const bool window : windows) out.push_back(window ? 1 : 0);
  return out;
}

}  // namespace mtrain::hf
