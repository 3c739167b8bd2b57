// Context-parallel attention against attention on one rank: results, gradients, and the bytes that
// theory asks for.
#include "mtrain/dist/context_attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <mutex>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/tensor/planning.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int64_t kFirstToken = 96;  // of the micro-batch

struct ContextSetting {
  HeadLayout layout;
  std::vector<int32_t> bounds;
  int ranks;
  ContextKind kind;
  int near = 1;
  bool causal = true;
  DType dtype = DType::f32;
  int64_t most = 0;  // tokens of a sequence on a rank; 0: all ranks share each
  AttentionScores varied = {};
  bool sinks = false;
  int64_t tokens() const { return bounds.back(); }
  std::string text() const {
    return cat(name(kind), " on ", ranks, near > 1 ? cat(" near ", near) : "", ", heads ",
               layout.heads, "/", layout.groups, " x ", layout.head_dim, ", ", tokens(),
               " tokens in ", bounds.size() - 1, causal ? ", causal " : ", ", name(dtype),
               ", window ", varied.window, ", cap ", varied.cap, ", dropout ", varied.dropout,
               sinks ? ", sinks" : "");
  }
};

struct Rows {
  int64_t width;
  Values values;
  Values take(const std::vector<RowRange>& ranges) const {
    Values some;
    for (const RowRange& r : ranges)
      some.insert(some.end(), values.begin() + r.first * width,
                  values.begin() + (r.first + r.rows) * width);
    return some;
  }
};

struct Whole {
  Rows qkv, dy, o, d_qkv;
  Values sinks, d_sinks;
};

AttentionScores scores_of(const ContextSetting& s) {
  AttentionScores scores = s.varied;
  scores.scale = 1 / std::sqrt(static_cast<float>(s.layout.head_dim));
  scores.causal = s.causal;
  return scores;
}

/// Sinks as a parameter: `target` receives their gradient.
Tensor sinks_of(ExecutionContext& ctx, const ContextSetting& s, std::shared_ptr<Leaf> target) {
  if (!s.sinks) return {};
  Tensor sinks = make(ctx, random_values(s.layout.heads, "sinks"), {s.layout.heads}, s.dtype);
  target->grad = ctx.zeros({s.layout.heads}, DType::f32);
  target->has_grad = true;
  sinks.set_node(std::move(target));
  return sinks;
}

Whole on_one_rank(const ContextSetting& s) {
  Fixture lab(1);
  int64_t width = s.layout.width(), out = s.layout.heads * s.layout.head_dim;
  Whole w{{width, round_to(random_values(s.tokens() * width, "qkv"), s.dtype)},
          {out, round_to(random_values(s.tokens() * out, "dy"), s.dtype)},
          {out, {}},
          {width, {}},
          {},
          {}};
  lab.context().first_token = kFirstToken;
  auto leaf = std::make_shared<Leaf>();
  Tensor sinks = sinks_of(lab.context(), s, leaf);
  auto caught = std::make_shared<Catcher>();
  Tensor x = make(lab.context(), w.qkv.values, {s.tokens(), width}, s.dtype);
  x.set_node(caught);
  Tensor y = attention(x, s.layout, std::make_shared<const std::vector<int32_t>>(s.bounds),
                       scores_of(s), sinks);
  w.o.values = values_of(y);
  backward(y, make(lab.context(), w.dy.values, y.shape(), s.dtype));
  w.d_qkv.values = values_of(caught->grad);
  if (s.sinks) w.d_sinks = values_of(leaf->grad);
  return w;
}

struct Sent {
  int64_t forward = 0, backward = 0;
};

// One rank's part; doctest's checks are made under a lock, by any thread.
Sent play_context(Communicator& world, const ContextSetting& s, const Whole& whole,
                  std::mutex& checking) {
  Fixture lab(1);
  Mesh mesh(world, MeshLayout({{"far", s.ranks / s.near}, {"near", s.near}}));
  const Axis& axis = mesh.joint({"far", "near"});
  ContextGroups groups{&axis, s.kind == ContextKind::a2a_p2p ? &mesh["near"] : nullptr};
  auto sent = [&] {
    int64_t near = groups.near ? groups.near->comm().counters().total().bytes_sent : 0;
    return axis.comm().counters().total().bytes_sent + near;
  };
  auto slice = std::make_shared<const ContextSlice>(
      s.most > 0 ? ContextSlice::sized(s.bounds, s.ranks, axis.index(), s.most)
                 : ContextSlice(s.bounds, s.ranks, axis.index()));
  lab.context().first_token = kFirstToken;
  auto leaf = std::make_shared<Leaf>();
  Tensor sinks = sinks_of(lab.context(), s, leaf);
  auto caught = std::make_shared<Catcher>();
  Tensor x = make(lab.context(), whole.qkv.take(slice->tokens()), {slice->rows(), s.layout.width()},
                  s.dtype);
  x.set_node(caught);
  int64_t before = sent();
  Tensor y = context_attention(x, s.layout, slice, groups, s.kind, scores_of(s), sinks);
  int64_t between = sent();
  Tensor dy = make(lab.context(), whole.dy.take(slice->tokens()), y.shape(), s.dtype);
  backward(y, dy);
  Sent bytes{between - before, sent() - between};
  if (s.sinks) world.all_reduce(leaf->grad);
  std::lock_guard lock(checking);
  INFO(s.text(), ", rank ", axis.index());
  // Both round what they give, and one rank rounds nothing on the way; exchanged gradients are
  // rounded once more.
  check_close(values_of(y), whole.o.take(slice->tokens()), s.dtype, {.inner = 2, .sums = 32}, "o");
  check_close(values_of(caught->grad), whole.d_qkv.take(slice->tokens()), s.dtype,
              {.inner = 6, .sums = 64}, "d_qkv");
  if (s.sinks)  // each token adds the rounding of its result
    check_close(values_of(leaf->grad), whole.d_sinks, DType::f32,
                {.sums = 64 + 16 * roundoff(s.dtype) / 0x1p-24}, "d_sinks");
  CHECK(values_of(x) == whole.qkv.take(slice->tokens()));
  CHECK(values_of(dy) == whole.dy.take(slice->tokens()));
  return bytes;
}

std::vector<Sent> check_context(const ContextSetting& s) {
  Whole whole = on_one_rank(s);
  std::vector<Sent> sent(static_cast<size_t>(s.ranks));
  std::mutex checking;
  run_ranks(s.ranks, [&](Communicator& world) {
    Sent mine = play_context(world, s, whole, checking);
    sent[static_cast<size_t>(world.rank())] = mine;
  });
  return sent;
}

const std::vector<std::vector<int32_t>>& packs() {
  static const std::vector<std::vector<int32_t>> all = {
      {0, 64}, {0, 16, 17, 20, 40}, {0, 3, 130, 131, 200, 264}, {0, 0, 8, 8, 24}, {0, 512}};
  return all;
}

constexpr ContextKind kKinds[] = {ContextKind::p2p, ContextKind::all_gather, ContextKind::a2a};

TEST_CASE(
    "context attention: every kind equals one rank, whole and packed sequences, causal and not") {
  for (int ranks : {1, 2, 4})
    for (ContextKind kind : kKinds)
      for (const auto& bounds : packs())
        for (bool causal : {true, false})
          for (HeadLayout layout : {HeadLayout{4, 4, 8}, HeadLayout{4, 2, 16}, HeadLayout{8, 1, 5}})
            check_context({layout, bounds, ranks, kind, 1, causal});
}

TEST_CASE("context attention: windows, caps, sinks and dropout equal one rank in every kind") {
  std::vector<AttentionScores> all = {{.cap = 0.5f}, {.dropout = 0.4f, .dropout_key = 5}};
  for (int64_t window : {1, 3, 10, 40, 300}) all.push_back({.window = window});
  all.push_back({.window = 12, .cap = 2, .dropout = 0.3f, .dropout_key = 7, .first_head = 8});
  for (int ranks : {1, 2, 4})
    for (ContextKind kind : kKinds)
      for (const auto& bounds : packs())
        for (const AttentionScores& scores : all)
          for (bool causal : {true, false})
            if (causal || scores.window == 0)
              check_context({.layout = {4, 2, 16},
                             .bounds = bounds,
                             .ranks = ranks,
                             .kind = kind,
                             .causal = causal,
                             .varied = scores,
                             .sinks = true});
  for (const AttentionScores& scores : all) {
    for (const auto& bounds : packs()) {
      check_context({.layout = {8, 2, 6},
                     .bounds = bounds,
                     .ranks = 4,
                     .kind = ContextKind::a2a_p2p,
                     .near = 2,
                     .varied = scores,
                     .sinks = true});
      check_context({.layout = {4, 2, 16},
                     .bounds = bounds,
                     .ranks = 4,
                     .kind = ContextKind::p2p,
                     .most = 20,
                     .varied = scores,
                     .sinks = true});
    }
    for (int ranks : {3, 5})
      check_context({.layout = {2, 1, 8},
                     .bounds = {0, 5, 6, 77},
                     .ranks = ranks,
                     .kind = ContextKind::p2p,
                     .varied = scores,
                     .sinks = true});
    check_context({.layout = {4, 2, 16},
                   .bounds = {0, 64},
                   .ranks = 2,
                   .kind = ContextKind::all_gather,
                   .dtype = DType::bf16,
                   .varied = scores,
                   .sinks = true});
  }
}

TEST_CASE("context attention: bf16 and fp16") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (ContextKind kind : kKinds)
      for (const auto& bounds : packs())
        check_context({{4, 2, 16}, bounds, 4, kind, 1, true, dtype});
}

TEST_CASE("context attention: exchange among near ranks and a ring over their groups") {
  for (auto [ranks, near] : {std::pair{4, 2}, {4, 1}, {4, 4}, {8, 2}, {8, 4}})
    for (const auto& bounds : packs())
      for (bool causal : {true, false})
        for (HeadLayout layout : {HeadLayout{4, 4, 8}, HeadLayout{8, 2, 6}})
          check_context({layout, bounds, ranks, ContextKind::a2a_p2p, near, causal});
}

TEST_CASE(
    "context attention: a ring takes ranks with different numbers of rows, and more ranks than "
    "tokens") {
  for (int ranks : {2, 3, 5, 8})
    for (const std::vector<int32_t>& bounds :
         {std::vector<int32_t>{0, 1}, {0, 3, 7}, {0, 101}, {0, 5, 6, 77}})
      for (bool causal : {true, false})
        check_context({{2, 1, 8}, bounds, ranks, ContextKind::p2p, 1, causal});
}

TEST_CASE("context attention: sequences on as many ranks as they ask for") {
  for (int ranks : {2, 4, 8})
    for (const auto& bounds : packs())
      for (bool causal : {true, false})
        for (int64_t most : {8, 20, 70})
          check_context({{4, 2, 16}, bounds, ranks, ContextKind::p2p, 1, causal, DType::f32, most});
  for (const Sent& s : check_context(
           {{4, 2, 16}, {0, 16, 32, 48, 64}, 4, ContextKind::p2p, 1, true, DType::f32, 16}))
    CHECK(s.forward + s.backward == 0);
}

TEST_CASE("context attention: ranks send what theory asks for") {
  constexpr int64_t kTokens = 64;
  HeadLayout layout{8, 4, 16};
  for (DType dtype : {DType::f32, DType::bf16})
    for (int n : {2, 4}) {
      auto element = static_cast<int64_t>(size_of(dtype));
      int64_t keys = kTokens * 2 * layout.groups * layout.head_dim, qkv = kTokens * layout.width(),
              out = kTokens * layout.heads * layout.head_dim;
      auto sent = [&](ContextKind kind) {
        return check_context({layout, {0, kTokens}, n, kind, 1, true, dtype});
      };
      for (const Sent& s : sent(ContextKind::p2p)) {
        CHECK(s.forward == keys * element * (n - 1) / n);
        CHECK(s.backward == keys * (element + 4) * (n - 1) / n);
      }
      for (const Sent& s : sent(ContextKind::all_gather)) {
        CHECK(s.forward == keys * element * (n - 1) / n);
        CHECK(s.backward == 2 * keys * element * (n - 1) / n);
      }
      for (const Sent& s : sent(ContextKind::a2a)) {
        CHECK(s.forward == (qkv + out) * element * (n - 1) / n / n);
        CHECK(s.backward == s.forward);
      }
      if (n == 2) continue;
      int near = 2, far = n / near;  // exchanged with one rank, and half the heads' keys of a
                                     // group's tokens in a ring
      for (const Sent& s :
           check_context({layout, {0, kTokens}, n, ContextKind::a2a_p2p, near, true, dtype}))
        CHECK(s.forward == (qkv + out) * element / n * (near - 1) / near +
                               keys * element / near * (far - 1) / far);
    }
}

TEST_CASE(
    "context attention: what cannot be shared out is refused on every rank, with what to do") {
  auto message = [](const ContextSetting& s) {
    try {
      check_context(s);
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::config);
      return cat(error.message(), " | ", error.hint());
    }
    return std::string("nothing");
  };
  CHECK(message({{4, 2, 8}, {0, 63}, 2, ContextKind::all_gather}) ==
        "all_gather needs the same number of tokens on all 2 context-parallel ranks, but the "
        "micro-batch has 63 tokens | use dist.cp_comm=p2p, or make the tokens of a micro-batch a "
        "multiple of 2");
  CHECK(message({{3, 1, 8}, {0, 64}, 2, ContextKind::a2a}) ==
        "a2a cannot divide 3 heads among 2 context-parallel ranks | choose a number of ranks that "
        "divides the 3 heads of a rank, or dist.cp_comm=p2p");
  CHECK_THROWS_AS(parse_context_kind("ring"), Error);
  for (const char* text : {"p2p", "all_gather", "a2a", "a2a+p2p"})
    CHECK(name(parse_context_kind(text)) == std::string(text));
}

TEST_CASE(
    "context attention: planning computes and sends nothing, and takes the memory that a run "
    "takes") {
  for (ContextKind kind : kKinds) {
    size_t planned = 0, measured = 0;
    for (bool planning : {true, false})
      run_ranks(2, [&](Communicator& world) {
        auto real = make_cpu_backend(1);
        auto plan = make_planning_backend(*real);
        ExecutionContext ctx(planning ? *plan : *real);
        Mesh mesh(world, MeshLayout({{"cp", 2}}));
        ContextGroups groups{&mesh["cp"]};
        auto slice = std::make_shared<const ContextSlice>(std::vector<int32_t>{0, 256}, 2,
                                                          mesh["cp"].index());
        HeadLayout layout{4, 2, 32};
        {
          auto caught = std::make_shared<Catcher>();
          Tensor x = ctx.zeros({128, layout.width()}, DType::f32);
          x.set_node(caught);
          Tensor y = context_attention(x, layout, slice, groups, kind, {});
          backward(y, ctx.zeros(y.shape(), DType::f32));
          if (world.rank() == 0) (planning ? planned : measured) = ctx.memory().peak();
          if (planning && mesh["cp"].comm().counters().total().bytes_sent != 0)
            throw Error(ErrorClass::bug, "a plan sent bytes");
        }
      });
    CHECK(planned == measured);
  }
}

}  // namespace
}  // namespace mtrain
