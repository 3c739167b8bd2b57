#include "mtrain/record/data_changes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "mtrain/base/pairwise_sum.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytes = 80, kShownLines = 6;
constexpr const char *kFiles = "files", *kFile = "file";

/// Removes the names of prepared files: their sizes and checksums identify them.
void drop_names(Json& json) {
  if (!json.is_structured()) return;
  if (json.is_object() && json.contains(kFile) && json.contains("bin_bytes")) json.erase(kFile);
  for (Json& child : json) drop_names(child);
}

/// The numbers divided by their sum, as samples are drawn by them; nothing unless all are numbers.
std::optional<std::vector<double>> shares_of(std::span<const Json> numbers) {
  std::vector<double> out;
  for (const Json& number : numbers) {
    if (!number.is_number()) return std::nullopt;
    out.push_back(number.get<double>());
  }
  const double sum = pairwise_sum(out);
  if (!(sum > 0)) return std::nullopt;
  for (double& share : out) share /= sum;
  return out;
}

/// The shares that a text such as "80,20" gives to train, valid and test.
std::optional<std::vector<double>> shares_of_split(const std::string& text) {
  Json numbers = Json::parse(cat("[", text, "]"), nullptr, false);
  if (!numbers.is_array() || numbers.size() > 3) return std::nullopt;
  while (numbers.size() < 3) numbers.push_back(0);
  return shares_of(numbers.get_ref<const Json::array_t&>());
}

/// Whether two values of a key give the same shares.
bool same_shares(const std::string& key, const Json& a, const Json& b) {
  if (key == "split" && a.is_string() && b.is_string()) {
    const auto left = shares_of_split(a.get<std::string>());
    return left && left == shares_of_split(b.get<std::string>());
  }
  if (key != "weights" || !a.is_array() || !b.is_array()) return false;
  const auto left = shares_of(a.get_ref<const Json::array_t&>());
  return left && left == shares_of(b.get_ref<const Json::array_t&>());
}

/// The prepared files of a blend of their own, [file, file, weight, weight]: the first weight.
size_t first_weight(const Json& blend) {
  size_t files = 0;
  while (files < blend.size() && blend[files].is_object()) ++files;
  return files;
}

/// Writes in `now` as in `before` what is only another notation: shares that are in the same
/// proportion.
void align_notation(const Json& before, Json& now) {
  if (before.is_object() && now.is_object())
    for (const auto& [key, value] : before.items()) {
      const auto there = now.find(key);
      if (there == now.end()) continue;
      if (same_shares(key, value, *there))
        *there = value;
      else
        align_notation(value, *there);
    }
  if (!before.is_array() || !now.is_array() || before.size() != now.size()) return;
  const size_t files = first_weight(before);
  for (size_t i = 0; i < before.size(); ++i) align_notation(before[i], now[i]);
  if (files == 0 || files != first_weight(now) || before.size() != 2 * files) return;
  const auto weights = [&](const Json& blend) {
    return shares_of(std::span(blend.get_ref<const Json::array_t&>()).subspan(files));
  };
  const auto left = weights(before);
  if (left && left == weights(now))
    std::copy(before.begin() + static_cast<long>(files), before.end(),
              now.begin() + static_cast<long>(files));
}

bool same(Json a, Json b) {
  align_notation(a, b);
  drop_names(a);
  drop_names(b);
  return a == b;
}

/// The part of `text` around the offset of the first difference.
std::string around(const std::string& text, size_t offset) {
  constexpr size_t kBefore = 20;
  const size_t begin = offset < kBefore ? 0 : offset - kBefore;
  const std::string part = text.substr(begin, kShownBytes);
  return cat(begin > 0 ? "…" : "", printable(part, 4 * kShownBytes),
             begin + part.size() < text.size() ? "…" : "");
}

std::string text_change(const std::string& before, const std::string& now) {
  const auto at =
      std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin();
  return cat(around(before, static_cast<size_t>(at)), " -> ", around(now, static_cast<size_t>(at)));
}

/// Compares the prepared files of both sides. Reports sizes instead of checksums, which mean
/// nothing to a reader.
bool compare_pairs(const Json& before, const Json& now, std::vector<std::string>& out) {
  auto name = [](const Json& json) {
    auto file = json.is_object() ? json.find(kFile) : json.end();
    return json.is_object() && file != json.end() && file->is_string() ? file->get<std::string>()
                                                                       : std::string();
  };
  const std::string a = name(before), b = name(now);
  if (a.empty() || b.empty()) return false;
  if (a != b) {
    out.push_back(cat(printable(a), " -> ", printable(b)));
    return true;
  }
  constexpr std::string_view kBytes = "_bytes";
  std::vector<std::string> sizes;
  for (const auto& [key, value] : before.items())
    if (key.ends_with(kBytes) && now.contains(key) && now[key] != value)
      sizes.push_back(cat(printable(a), ".", key.substr(0, key.size() - kBytes.size()), " had ",
                          value.dump(), " bytes and has ", now[key].dump()));
  out.push_back(cat(printable(a), " has different contents",
                    sizes.empty() ? " of the same size" : cat(": ", join(sizes, ", "))));
  return true;
}

/// Compares files of records of both sides and how they are encoded, given as digests.
bool compare_records(const Json& before, const Json& now, const std::string& path,
                     std::vector<std::string>& out) {
  if (!before.is_string() || !now.is_string()) return false;
  for (const auto& [place, setting] : {std::pair{"files[0]", "dataset.path"},
                                       {"files[1]", "dataset.valid_path"},
                                       {"files[2]", "dataset.test_path"}})
    if (path == place)
      return out.push_back(cat("the file of ", setting, " has different contents")), true;
  if (path != "encoding") return false;
  out.emplace_back(
      "records become other tokens: the chat template's text has changed, or a setting of dataset "
      "such as columns, roles, prompt or train_on");
  return true;
}

/// The setting that determines a value of a dataset's identity.
std::string setting_of(const std::string& path) {
  for (const auto& [key, setting] : {std::pair{"seed", "rng.seed"},
                                     {"seq_length", "model.seq_length"},
                                     {"dataset", "dataset.type"}})
    if (path == key) return setting;
  return printable(path);
}

/// Compares the values of both sides; either may be absent.
void compare(const Json* before, const Json* now, const std::string& path,
             std::vector<std::string>& out) {
  if (before && now && same(*before, *now)) return;
  if (before && now &&
      (compare_pairs(*before, *now, out) || compare_records(*before, *now, path, out)))
    return;
  if (before && now && before->is_object() && now->is_object()) {
    for (const auto& [key, value] : before->items())
      compare(&value, now->contains(key) ? &(*now)[key] : nullptr,
              path.empty() ? key : cat(path, ".", key), out);
    for (const auto& [key, value] : now->items())
      if (!before->contains(key))
        compare(nullptr, &value, path.empty() ? key : cat(path, ".", key), out);
    return;
  }
  if (before && now && before->is_array() && now->is_array()) {
    for (size_t i = 0; i < std::max(before->size(), now->size()); ++i)
      compare(i < before->size() ? &(*before)[i] : nullptr, i < now->size() ? &(*now)[i] : nullptr,
              cat(path, "[", i, "]"), out);
    return;
  }
  auto text = [](const Json* value) {
    if (!value) return std::string("absent");
    return value->is_string() ? value->get<std::string>()
                              : value->dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  out.push_back(
      cat(setting_of(path), path.empty() ? "" : ": ", text_change(text(before), text(now))));
}

std::vector<std::string> shortened(std::vector<std::string> lines, size_t limit) {
  if (lines.size() <= limit) return lines;
  const size_t more = lines.size() - limit;
  lines.resize(limit);
  lines.push_back(cat("and ", more, " more"));
  return lines;
}

}  // namespace

bool same_data(const std::string& before, const std::string& now) {
  if (before == now) return true;
  Json old_data = Json::parse(before, nullptr, false), new_data = Json::parse(now, nullptr, false);
  return !old_data.is_discarded() && !new_data.is_discarded() &&
         same(std::move(old_data), std::move(new_data));
}

std::vector<std::string> data_changes(const std::string& before, const std::string& now,
                                      size_t limit) {
  if (same_data(before, now)) return {};
  const Json old_data = Json::parse(before, nullptr, false);
  Json new_data = Json::parse(now, nullptr, false);
  std::vector<std::string> out;
  align_notation(old_data, new_data);
  if (!old_data.is_discarded() && !new_data.is_discarded()) compare(&old_data, &new_data, "", out);
  if (out.empty()) out.push_back(text_change(before, now));  // not JSON
  return shortened(std::move(out), limit);
}

std::vector<std::string> data_file_changes(const std::string& before, const std::string& now) {
  const Json old_data = Json::parse(before, nullptr, false),
             new_data = Json::parse(now, nullptr, false);
  std::vector<std::string> out;
  if (old_data.is_object() && new_data.is_object() && old_data.contains(kFiles) &&
      new_data.contains(kFiles))
    compare(&old_data[kFiles], &new_data[kFiles], kFiles, out);
  return shortened(std::move(out), kShownLines);
}

}  // namespace mtrain
