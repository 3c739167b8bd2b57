// Attention to cached keys: a text that is read in pieces has the rows of attention() over the
// whole text, on every backend and in every dtype.
#include "mtrain/autograd/cached_attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "contract/harness.h"
#include "contract/test_backends.h"

namespace mtrain::contract {
namespace {

struct CachedRow {
  const char* name;
  HeadLayout layout;
  std::vector<int64_t> pieces;  // tokens that are read together
  AttentionScores scores = {.scale = 0.3f};
  bool sinks = false;
};

const CachedRow kCachedRows[] = {
    {"one by one", {2, 2, 16}, {1, 1, 1, 1, 1}},
    {"a prompt and its answer", {4, 2, 12}, {67, 1, 1, 1}},
    {"pieces over the ends of tiles", {4, 1, 8}, {60, 9, 63, 1, 70, 2}},
    {"window", {4, 2, 16}, {50, 40, 1, 33, 1}, {.scale = 0.3f, .window = 24}},
    {"cap", {2, 1, 16}, {5, 70, 1}, {.scale = 0.3f, .cap = 2}},
    {"sinks in a window", {4, 2, 16}, {65, 1, 1, 64}, {.scale = 0.3f, .window = 7}, true},
};

double largest_gap(const Values& got, const Values& want, size_t from) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double gap = std::fabs(got[i] - want[from + i]);
    worst = gap <= worst ? worst : gap;  // NaN stays
  }
  return worst;
}

AttentionSpans span_of(int64_t first, int64_t tokens, int64_t first_row = 0) {
  return std::make_shared<const std::vector<AttentionSpan>>(
      1, AttentionSpan{.queries = static_cast<int32_t>(tokens),
                       .first_key = static_cast<int32_t>(first_row),
                       .keys = static_cast<int32_t>(first + tokens),
                       .offset = static_cast<int32_t>(first)});
}

struct Text {
  Tensor qkv, sinks;
  Values want;  // attention over the whole text
};

Text text_of(ExecutionContext& ctx, const CachedRow& row, DType dtype, const std::string& key) {
  const HeadLayout& layout = row.layout;
  int64_t tokens = 0;
  for (int64_t piece : row.pieces) tokens += piece;
  Text out;
  out.qkv = make(ctx, random_values(tokens * layout.width(), key), {tokens, layout.width()}, dtype);
  if (row.sinks) out.sinks = make(ctx, random_values(layout.heads, "sinks"), {layout.heads}, dtype);
  const auto bounds = std::make_shared<const std::vector<int32_t>>(
      std::vector<int32_t>{0, static_cast<int32_t>(tokens)});
  out.want = values_of(attention(out.qkv, layout, bounds, row.scores, out.sinks));
  return out;
}

/// Rows for texts. Those that nobody wrote are NaN, so that one who reads them is found.
Tensor empty_rows(ExecutionContext& ctx, const HeadLayout& layout, int64_t rows, DType dtype) {
  const int64_t width = layout.groups * 2 * layout.head_dim;
  return make(ctx, Values(static_cast<size_t>(rows * width), NAN), {rows, width}, dtype);
}

/// The largest difference of a row.
double worst_of(ExecutionContext& ctx, const CachedRow& row, DType dtype) {
  const Text text = text_of(ctx, row, dtype, row.name);
  const int64_t tokens = text.qkv.size(0), before = 2, after = 3;
  const Tensor kv = empty_rows(ctx, row.layout, before + tokens + after, dtype);
  double worst = 0;
  int64_t first = 0;
  for (int64_t piece : row.pieces) {
    const Tensor some = text.qkv.slice(0, first, first + piece);
    const AttentionSpans span = span_of(first, piece, before);
    store_keys(some, row.layout, kv, span);
    const Values got =
        values_of(cached_attention(some, row.layout, kv, span, row.scores, text.sinks));
    const auto from = static_cast<size_t>(first * row.layout.heads * row.layout.head_dim);
    const double gap = largest_gap(got, text.want, from);
    worst = gap <= worst ? worst : gap;
    first += piece;
  }
  return worst;
}

}  // namespace

TEST_CASE("a text read in pieces attends as the whole text does") {
  for (const TestBackend& one : test_backends())
    for (DType dtype : kDTypes)
      for (const CachedRow& row : kCachedRows) {
        Fixture fixture(one.make(2));
        GradMode off(fixture.context(), false);
        CAPTURE(one.name);
        CAPTURE(std::string(row.name));
        CAPTURE(std::string(name(dtype)));
        CHECK(worst_of(fixture.context(), row, dtype) <= 4 * roundoff(dtype));
      }
}

TEST_CASE(
    "texts that are read together have the results of texts that are read alone, to the bit") {
  const CachedRow row{"together", {4, 2, 12}, {70, 1}, {.scale = 0.3f, .window = 60}};
  constexpr int64_t kTexts = 3, kRows = 80;
  for (const TestBackend& one : test_backends())
    for (DType dtype : kDTypes) {
      CAPTURE(one.name);
      Fixture fixture(one.make(2));
      ExecutionContext& ctx = fixture.context();
      GradMode off(ctx, false);
      const Tensor kv = empty_rows(ctx, row.layout, kTexts * kRows, dtype);
      const Tensor last = ctx.empty({kTexts, row.layout.width()}, dtype);
      std::vector<AttentionSpan> spans;
      Values alone;
      for (int64_t i = 0; i < kTexts; ++i) {
        const Text text = text_of(ctx, row, dtype, cat("text ", i));
        const int64_t tokens = 70 - 3 * i;  // texts of other lengths
        store_keys(text.qkv.slice(0, 0, tokens), row.layout, kv, span_of(0, tokens, i * kRows));
        Tensor to = last.slice(0, i, i + 1);
        ctx.copy(to, text.qkv.slice(0, tokens, tokens + 1));
        const AttentionSpans span = span_of(tokens, 1, i * kRows);
        store_keys(to, row.layout, kv, span);
        const Values own = values_of(cached_attention(to, row.layout, kv, span, row.scores));
        alone.insert(alone.end(), own.begin(), own.end());
        spans.push_back(span->front());
        spans.back().first_query = static_cast<int32_t>(i);
      }
      const auto all = std::make_shared<const std::vector<AttentionSpan>>(spans);
      CHECK(values_of(cached_attention(last, row.layout, kv, all, row.scores)) == alone);
    }
}

TEST_CASE("cached attention refuses gradients and a cache that is too short") {
  Fixture fixture;
  ExecutionContext& ctx = fixture.context();
  const HeadLayout layout{2, 1, 8};
  const Tensor qkv =
      make(ctx, random_values(3 * layout.width(), "x"), {3, layout.width()}, DType::f32);
  const Tensor kv = ctx.zeros({4, 16}, DType::f32);
  CHECK_THROWS_AS(cached_attention(qkv, layout, kv, span_of(0, 3), {}), Error);
  GradMode off(ctx, false);
  CHECK_NOTHROW(cached_attention(qkv, layout, kv, span_of(1, 3), {}));
  CHECK_THROWS_AS(cached_attention(qkv, layout, kv, span_of(2, 3), {}), Error);
  CHECK_THROWS_AS(store_keys(qkv, layout, kv, span_of(2, 3)), Error);
}

}  // namespace mtrain::contract
