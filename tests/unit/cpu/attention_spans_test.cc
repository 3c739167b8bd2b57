// Attention a part of the keys at a time, as ranks that share out a sequence compute it: any way of
// splitting queries and keys gives what one call over all of them gives.
#include <array>

#include "attention_reference.h"

namespace mtrain::testing {
namespace {

/// A sequence split into pieces at these shares of its length; queries of a piece meet the keys
/// before them in parts.
struct Splitting {
  AttentionCase shape;
  std::vector<double> queries, keys;
};

std::vector<Splitting> splittings() {
  std::vector<Splitting> all;
  auto add = [&](std::vector<int32_t> cu_seqlens, std::array<int64_t, 3> heads,
                 std::vector<double> queries, std::vector<double> keys) {
    all.push_back({{std::move(cu_seqlens), heads[0], heads[1], heads[2]},
                   std::move(queries),
                   std::move(keys)});
  };
  add({0, 1}, {1, 1, 4}, {0, 1}, {0, 1});
  add({0, 130}, {2, 1, 64}, {0, 0.5, 1}, {0, 0.5, 1});
  add({0, 300}, {2, 2, 33}, {0, 0.1, 0.37, 1}, {0, 0.1, 0.21, 0.37});
  add({0, 2, 131, 132, 330}, {4, 2, 16}, {0, 0.25, 0.5, 0.75, 1}, {0, 0.25, 0.5});
  add({0, 700}, {2, 1, 20}, {0, 0.93, 1}, {0, 0.4, 0.93});
  add({0, 64, 128, 192}, {4, 1, 128}, {0, 0.5, 1}, {0});
  return all;
}

int32_t split_at(double share, int32_t length) {
  return static_cast<int32_t>(std::lround(share * length));
}

/// One call for each piece of the queries and part of the keys; without `causal` every piece meets
/// all keys.
std::vector<std::vector<AttentionSpan>> calls_of(const Splitting& c, bool causal) {
  std::vector<std::vector<AttentionSpan>> calls;
  std::vector<double> parts = c.keys;
  if (parts.back() < 1) parts.push_back(1);
  for (size_t piece = 0; piece + 1 < c.queries.size(); ++piece)
    for (size_t part = 0; part + 1 < parts.size(); ++part) {
      std::vector<AttentionSpan> spans;
      for (size_t s = 0; s + 1 < c.shape.cu_seqlens.size(); ++s) {
        int32_t start = c.shape.cu_seqlens[s], n = c.shape.cu_seqlens[s + 1] - start;
        int32_t from = split_at(c.queries[piece], n), to = split_at(c.queries[piece + 1], n);
        int32_t first = split_at(parts[part], n),
                last = std::min(split_at(parts[part + 1], n), causal ? to : n);
        if (causal && first > from) continue;  // its keys come with those of the part before
        bool ends = causal && part + 2 < parts.size() && split_at(parts[part + 1], n) > from;
        if (ends) last = to;
        if (first < last && from < to)
          spans.push_back({start + from, to - from, start + first, last - first, from - first});
      }
      if (!spans.empty()) calls.push_back(spans);
    }
  return calls;
}

template <class T>
void check_splitting(const Splitting& splitting, bool causal, Level& level, AttentionWants& wants) {
  AttentionData<T> d(splitting.shape, causal);
  AttentionGrads<T> grads(d);
  Buffer<float> o(d.o.count()), lse(d.lse.count(), -std::numeric_limits<double>::infinity());
  Buffer<float> d_qkv(d.qkv.count());
  AttentionArgs args = d.args();
  args.o = o.data(), args.lse = lse.data(), args.add = true;
  auto with = [&](const std::vector<AttentionSpan>& spans) {
    args.spans = spans.data(), args.sequences = static_cast<int64_t>(spans.size());
    args.cu_seqlens = nullptr;
    return args;
  };
  auto calls = calls_of(splitting, causal);
  for (const auto& spans : calls) level.kernels.attention(*level.stream, with(spans));
  const AttentionWant& want =
      wants.get<T>(d, [&] { return reference_attention_backward(d, grads.d_o); });
  // Values are rounded to T on the way in, and a bf16 kernel rounds probabilities, but the parts
  // are added in float.
  double factor = kRounding<T> / kRounding<float> * 2;
  check_close(
      o, [&](int64_t i) { return want.o[static_cast<size_t>(i)]; }, "o", 0.5, factor);
  check_close(
      lse, [&](int64_t i) { return want.lse[static_cast<size_t>(i)]; }, "lse", 1);
  for (int64_t i = 0; i < o.count(); ++i) d.o.set(i, o[i]);
  args.o = d.o.data();
  for (const auto& spans : calls) {
    AttentionBackwardArgs back{.forward = with(spans), .d_o = grads.d_o.data(), .add = true};
    auto view = [&](int64_t offset) {
      return HeadsView{d_qkv.data() + offset, d.row_stride, d.group_stride};
    };
    int64_t e = d.shape.head_dim;
    back.dq = view(0), back.dk = view(d.per_group * e), back.dv = view((d.per_group + 1) * e);
    level.kernels.attention_backward(*level.stream, back);
  }
  check_close(
      d_qkv,
      [&](int64_t i) {
        double w = want.d_qkv[static_cast<size_t>(i)];
        return std::isnan(w) ? 0 : w;
      },
      "d_qkv", 1, kRounding<T> / kRounding<float> * (std::is_same_v<T, float> ? 4 : 3));
}

}  // namespace

TEST_CASE("attention a part at a time adds up to attention over all keys") {
  AttentionWants wants;
  for (int threads : {1, 3})
    each_level_and_dtype(
        [&]<class T>(T, Level& level) {
          for (const Splitting& splitting : splittings())
            for (bool causal : {true, false}) {
              INFO(splitting.shape.text(), causal ? " causal" : "", ", ", threads, " threads");
              check_splitting<T>(splitting, causal, level, wants);
            }
        },
        threads);
}

TEST_CASE("spans that are whole sequences give the bits of sequence bounds") {
  each_level_and_dtype([]<class T>(T, Level& level) {
    for (bool causal : {true, false}) {
      AttentionData<T> a({{0, 5, 70, 199}, 2, 1, 32}, causal),
          b({{0, 5, 70, 199}, 2, 1, 32}, causal);
      std::vector<AttentionSpan> spans = {
          {0, 5, 0, 5, 0}, {5, 65, 5, 65, 0}, {70, 129, 70, 129, 0}};
      AttentionArgs args = b.args();
      args.cu_seqlens = nullptr, args.spans = spans.data();
      level.kernels.attention(*level.stream, a.args());
      level.kernels.attention(*level.stream, args);
      CHECK(a.o.same_bits(b.o));
      CHECK(a.lse.same_bits(b.lse));
      AttentionGrads<T> ga(a), gb(b);
      AttentionBackwardArgs back = gb.args(b);
      back.forward = args;
      level.kernels.attention_backward(*level.stream, ga.args(a));
      level.kernels.attention_backward(*level.stream, back);
      CHECK(ga.d_qkv.same_bits(gb.d_qkv));
    }
  });
}

}  // namespace mtrain::testing
