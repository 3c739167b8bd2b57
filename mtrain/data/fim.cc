#include "mtrain/data/fim.h"

#include <algorithm>
#include <array>
#include <functional>

#include "mtrain/data/sample_draws.h"

namespace mtrain {

namespace {

/// Calls `part` with each span between marks, and `mark` after each span except the last one and
/// empty ones.
void each_part(std::span<const int32_t> ids, int32_t mark, std::vector<int32_t>& out,
               const std::function<void(std::span<const int32_t>)>& part) {
  size_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != mark) continue;
    if (i > begin) {
      part(ids.subspan(begin, i - begin));
      out.push_back(mark);
    }
    begin = i + 1;
  }
  part(ids.subspan(begin));
}

/// The byte offsets of characters, and the size.
std::vector<size_t> character_starts(std::string_view text) {
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) out.push_back(i);
  out.push_back(text.size());
  return out;
}

}  // namespace

void FimTransform::permute(std::span<const int32_t> ids, double rate, SampleDraws& draws,
                           std::vector<int32_t>& out) const {
  auto append = [&](std::span<const int32_t> part) {
    out.insert(out.end(), part.begin(), part.end());
  };
  if (!draws.chance(rate)) return append(ids);
  std::array<std::vector<int32_t>, 3> parts;  // prefix, middle, suffix
  auto cuts = [&](size_t most) {
    const size_t a = draws.below(most + 1), b = draws.below(most + 1);
    return std::pair(std::min(a, b), std::max(a, b));
  };
  const std::string bytes =
      config_.by_token && config_.no_prefix.empty() ? std::string() : tokenizer_.decode_bytes(ids);
  if (!config_.no_prefix.empty() && bytes.starts_with(config_.no_prefix)) return append(ids);
  if (config_.by_token) {
    auto [first, second] = cuts(ids.size());
    parts[0].assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first));
    parts[1].assign(ids.begin() + static_cast<std::ptrdiff_t>(first),
                    ids.begin() + static_cast<std::ptrdiff_t>(second));
    parts[2].assign(ids.begin() + static_cast<std::ptrdiff_t>(second), ids.end());
  } else {
    const std::vector<size_t> starts = character_starts(bytes);
    auto [first, second] = cuts(starts.size() - 1);
    const std::string_view text = bytes;
    tokenizer_.encode_to(text.substr(0, starts[first]), parts[0]);
    tokenizer_.encode_to(text.substr(starts[first], starts[second] - starts[first]), parts[1]);
    tokenizer_.encode_to(text.substr(starts[second]), parts[2]);
  }
  out.push_back(config_.prefix);
  if (draws.chance(config_.spm_rate)) {
    out.push_back(config_.suffix);
    append(parts[2]);
    out.push_back(config_.middle);
    append(parts[0]);
  } else {
    append(parts[0]);
    out.push_back(config_.suffix);
    append(parts[2]);
    out.push_back(config_.middle);
  }
  append(parts[1]);
}

void FimTransform::text(std::span<const int32_t> ids, SampleDraws& draws,
                        std::vector<int32_t>& out) const {
  if (!config_.fragment || std::find(ids.begin(), ids.end(), *config_.fragment) == ids.end())
    return permute(ids, config_.rate, draws, out);
  if (!draws.chance(config_.rate)) {
    out.insert(out.end(), ids.begin(), ids.end());
    return;
  }
  each_part(ids, *config_.fragment, out, [&](std::span<const int32_t> part) {
    permute(part, config_.fragment_rate, draws, out);
  });
}

void FimTransform::apply(uint64_t sample, std::span<int32_t> ids) const {
  SampleDraws draws(seed_, name_key("fim"), sample);
  std::vector<int32_t> out;
  out.reserve(ids.size() + 64);
  auto one = [&](std::span<const int32_t> part) { text(part, draws, out); };
  if (config_.eod)
    each_part(ids, *config_.eod, out, one);
  else
    one(ids);
  out.resize(ids.size(), config_.pad);
  std::copy(out.begin(), out.end(), ids.begin());
}

}  // namespace mtrain
