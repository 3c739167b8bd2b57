#include "mtrain/nn/key_value_cache.h"

#include <algorithm>
#include <utility>

#include "mtrain/base/error.h"

namespace mtrain {

KeyValueCache::KeyValueCache(int64_t capacity, int64_t texts)
    : capacity_(capacity), held_(static_cast<size_t>(texts)) {
  MT_CHECK(capacity > 0 && texts > 0, capacity, " tokens, ", texts, " texts");
}

void KeyValueCache::keep(int64_t count, int64_t text) {
  MT_CHECK(count >= 0 && count <= tokens(text), count, " of ", tokens(text), " tokens");
  held_[static_cast<size_t>(text)] = count;
}

void KeyValueCache::read(std::vector<Part> parts) {
  constexpr int64_t kFirstRows = 256;
  parts_ = std::move(parts);
  int64_t longest = 0;
  for (const Part& part : parts_) longest = std::max(longest, tokens(part.text) + part.tokens);
  MT_CHECK(longest <= capacity_, longest, " tokens of ", capacity_);
  if (longest > rows_) rows_ = std::min(capacity_, std::max({longest, 2 * rows_, kFirstRows}));
  std::vector<AttentionSpan> spans;
  int64_t row = 0;
  for (const auto& [text, further] : parts_) {
    spans.push_back({.first_query = static_cast<int32_t>(row),
                     .queries = static_cast<int32_t>(further),
                     .first_key = static_cast<int32_t>(text * rows_),
                     .keys = static_cast<int32_t>(tokens(text) + further),
                     .offset = static_cast<int32_t>(tokens(text))});
    row += further;
  }
  spans_ = std::make_shared<const std::vector<AttentionSpan>>(std::move(spans));
}

void KeyValueCache::advance() {
  for (const Part& part : parts_) held_[static_cast<size_t>(part.text)] += part.tokens;
  parts_.clear();
  spans_ = nullptr;
}

bool KeyValueCache::begins() const {
  return std::ranges::all_of(parts_, [&](const Part& part) { return tokens(part.text) == 0; });
}

const Tensor& KeyValueCache::rows(const void* layer, const HeadLayout& layout, const Tensor& like) {
  Layer& of = layers_[layer];
  if (of.of_text == rows_) return of.rows;
  ExecutionContext& ctx = like.context();
  Tensor more = ctx.empty({texts() * rows_, layout.groups * 2 * layout.head_dim}, like.dtype());
  for (int64_t text = 0; text < texts(); ++text) {
    const int64_t earlier = std::min(tokens(text), of.of_text);
    if (earlier == 0) continue;
    Tensor to = more.slice(0, text * rows_, text * rows_ + earlier);
    ctx.copy(to, of.rows.slice(0, text * of.of_text, text * of.of_text + earlier));
  }
  of = {std::move(more), rows_};
  return of.rows;
}

}  // namespace mtrain
