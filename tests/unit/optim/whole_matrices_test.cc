// An optimizer of whole matrices: the same bits on one rank, over tensor-parallel ranks, over
// experts and in every ZeRO stage.
#include "mtrain/optim/whole_matrices.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/optim/grad_reducer.h"
#include "mtrain/optim/optimizer_state.h"

namespace mtrain {
namespace {

using namespace contract;

// Momentum; each row of a matrix is divided by its norm and by that of the matrix, and the matrix
// by the trace of the sum of its gradients' Gram matrices. Tables move by the sign, element by
// element.
class RowNorm final : public Optimizer {
 public:
  // Fused weights have one more state, which counts the steps in each element.
  std::vector<std::string> state_names(const ParamInfo& p) const override {
    if (p.matrices.size() > 1) return {"momentum", "steps"};
    return {"momentum"};
  }
  UpdateScope scope(const ParamInfo& p) const override {
    bool table = p.role == ParamRole::embedding || p.role == ParamRole::head;
    return table ? UpdateScope::elements : UpdateScope::whole_matrices;
  }
  std::vector<MatrixState> matrix_state(const ParamInfo& p,
                                        const LogicalMatrix& matrix) const override {
    CHECK(scope(p) == UpdateScope::whole_matrices);
    if (matrix.cols > 6) return {};
    return {{"gram", {matrix.cols, matrix.cols}}, {"count", {1}}};
  }
  void update(const ParamUpdate& u) override {
    check(u);
    count_steps(u);
    Values g = values_of(u.grad), m = values_of(u.state[0]);
    for (size_t i = 0; i < m.size(); ++i)
      m[i] = static_cast<float>(0.9 * m[i] + g[i] * static_cast<double>(u.grad_scale));
    u.ctx.copy(u.state[0], make(u.ctx, m, u.master.shape(), DType::f32));
    if (u.scope == UpdateScope::elements)
      step(u, u.master, sign(m));
    else if (u.matrices.empty())
      step(u, u.master, normed(m, static_cast<int64_t>(m.size())));
    for (size_t i = 0; i < u.matrices.size(); ++i) {
      const LogicalMatrix& matrix = u.matrices[i];
      Tensor p = matrix_of(u.master, matrix);
      Values by = normed(values_of(matrix_of(u.state[0], matrix)), matrix.cols);
      const double trace = add_gram(u, i, values_of(matrix_of(u.grad, matrix)));
      for (double& v : by) v /= 1 + trace;
      step(u, p, by);
      set_matrix(u.master, matrix, p);
      matrices[std::string(u.param.name)].push_back(matrix.name);
    }
    if (u.value.defined()) u.ctx.copy(u.value, u.master);
  }
  std::map<std::string, std::vector<std::string>> matrices;  // seen

 private:
  static void check(const ParamUpdate& u) {
    CHECK(u.grad.shape() == u.master.shape());
    CHECK(u.state[0].shape() == u.master.shape());
    int64_t elements = 0;
    for (const ParamBox& box : u.boxes) elements += box.local.extent.numel();
    CHECK(elements == u.master.numel());
    CHECK(static_cast<size_t>(u.param.shape.rank()) == u.param.dims.size());
    if (u.scope == UpdateScope::elements) {
      CHECK(u.matrices.empty());
      return;
    }
    bool experts = u.param.role == ParamRole::expert_matrix;
    CHECK(u.master.shape() == u.local);
    for (int d = experts; d < u.local.rank(); ++d) CHECK(u.local[d] == u.param.shape[d]);
    CHECK(u.matrices.size() ==
          (experts ? static_cast<size_t>(u.local[0]) : u.param.matrices.size()));
  }
  static void count_steps(const ParamUpdate& u) {
    REQUIRE(u.state.size() == (u.param.matrices.size() > 1 ? 2 : 1));
    if (u.state.size() == 1) return;
    const auto size = static_cast<size_t>(u.master.numel());
    CHECK(values_of(u.state[1]) == Values(size, static_cast<double>(u.step - 1)));
    u.ctx.fill(u.state[1], static_cast<float>(u.step));
  }
  // Adds GᵀG to the matrix's state, and returns the trace of that.
  static double add_gram(const ParamUpdate& u, size_t matrix, const Values& g) {
    const std::vector<Tensor>& state = u.matrix_state[matrix];
    if (state.empty()) return 0;
    const auto cols = static_cast<size_t>(u.matrices[matrix].cols);
    Values gram = values_of(state[0]), count = values_of(state[1]);
    for (size_t row = 0; row < g.size(); row += cols)
      for (size_t i = 0; i < cols; ++i)
        for (size_t j = 0; j < cols; ++j) gram[i * cols + j] += g[row + i] * g[row + j];
    CHECK(++count[0] == static_cast<double>(u.step));
    u.ctx.copy(state[0], make(u.ctx, gram, state[0].shape(), DType::f32));
    u.ctx.copy(state[1], make(u.ctx, count, {1}, DType::f32));
    gram = values_of(state[0]);
    double trace = 0;
    for (size_t i = 0; i < cols; ++i) trace += gram[i * (cols + 1)];
    return trace;
  }
  static void step(const ParamUpdate& u, const Tensor& to, const Values& by) {
    Values p = values_of(to);
    for (size_t i = 0; i < p.size(); ++i) p[i] -= u.lr * (by[i] + u.weight_decay * p[i]);
    u.ctx.copy(to, make(u.ctx, p, to.shape(), DType::f32));
  }
  static Values sign(Values m) {
    for (double& v : m) v = static_cast<double>((v > 0) - (v < 0));
    return m;
  }
  static Values normed(Values m, int64_t cols) {
    double all = 0;
    for (double v : m) all += v * v;
    for (auto row = m.begin(); row != m.end(); row += cols) {
      double squares = 0;
      for (auto v = row; v != row + cols; ++v) squares += *v * *v;
      for (auto v = row; v != row + cols; ++v) *v /= std::sqrt(squares * all);
    }
    return m;
  }
};

struct Layout {
  int ranks = 1, tp = 1, ep = 1, etp = 1, zero_stage = 0, hsdp = 1;
  bool outer_zero = false, sequence = false;
  int64_t bucket_size = 0;
  DType dtype = DType::f32;
};

std::string layout_text(const Layout& l) {
  return cat("ranks ", l.ranks, " tp ", l.tp, " ep ", l.ep, " etp ", l.etp, " zero ", l.zero_stage,
             " hsdp ", l.hsdp, l.outer_zero ? " outer" : "", l.sequence ? " sequence" : "",
             " bucket ", l.bucket_size, " ", name(l.dtype));
}

struct Axes {
  Axes(Communicator& world, const Layout& l) {
    int rank = world.rank(), n = l.ranks, expert_ranks = l.ep * l.etp;
    auto axis = [&](const char* name, int stride, int size) {
      int index = rank / stride % size;
      return std::make_unique<Axis>(name, world.split(rank - index * stride, index, name));
    };
    tp = axis("tp", 1, l.tp), dp = axis("dp", l.tp, n / l.tp);
    etp = axis("etp", 1, l.etp), ep = axis("ep", l.etp, l.ep);
    edp = axis("edp", expert_ranks, n / expert_ranks);
    if (l.hsdp > 1) {
      int shards = n / l.tp / l.hsdp;
      shard = axis("shard", l.tp, shards), copy = axis("copy", l.tp * shards, l.hsdp);
    }
    parallel = {.tp = tp.get(), .ep = ep.get(), .etp = etp.get(), .edp = edp.get()};
    parallel.sequence_parallel = l.sequence;
    parallel.kv_copies = tp.get();  // of a layer with one key/value head
  }
  std::unique_ptr<Axis> tp, dp, etp, ep, edp, shard, copy;
  ParallelContext parallel;
};

/// What all ranks hold together, by the name of a tensor.
struct MatrixOutcome {
  std::map<std::string, Values> tensors;
  std::map<std::string, std::multiset<std::string>> matrices;  // that the optimizer saw
};

/// One rank. Gradients are functions of the element and the step; the first rank of each group
/// that adds them up has them, the others have zeros.
struct MatrixRank {
  MatrixRank(const Layout& layout, Communicator& world)
      : l(layout),
        axes(world, layout),
        settings{.ctx = lab.context(),
                 .parameters = list,
                 .dtype = layout.dtype,
                 .defer_memory = layout.zero_stage > 0,
                 .parallel = &axes.parallel} {
    build();
    ReplicaGroup dense{.all = &axes.dp->comm()};
    if (axes.shard) dense.shards = &axes.shard->comm(), dense.outer = &axes.copy->comm();
    buckets.emplace(lab.context(), list,
                    ShardingOptions{.dense = dense,
                                    .expert = {.all = &axes.edp->comm()},
                                    .zero_stage = l.zero_stage,
                                    .outer_zero = l.outer_zero,
                                    .bucket_size = l.bucket_size});
    state.emplace(lab.context(), *buckets, optimizer);
    reducer.emplace(*buckets, ReduceOptions{});
  }
  void build() {
    Scope s(settings), block = s / "layers" / 0;
    Dim embed{"embed", 6}, vocab{"vocab", 13}, mlp{"mlp", 9};
    Embedding(s / "embed", vocab, embed);
    Norm(block / "norm", Norm::Kind::layer, embed, 1e-5f);
    Attention(block / "groups", embed, {.layout = {4, 2, 2}, .bias = true});
    Attention(block / "shared", embed, {.layout = {4, 1, 2}, .bias = true});
    GatedMlp(block / "mlp", embed, mlp, 0.02f, 0.02f);
    Scope experts = s / "layers" / 1;
    Dim count{"experts", 4}, width{"expert_mlp", 5};
    for (const Dims& dims : {Dims{count, width, embed}, Dims{count, embed, width}})
      experts.param(dims[1].name, dims, Init::normal(1), true, ParamRole::expert_matrix);
    LmHead(s / "head", vocab, embed, 13, nullptr, 0.02f);
  }
  void give_gradient(Parameter& p, int step) {
    const Communicator& replicas = p.expert ? axes.edp->comm() : axes.dp->comm();
    Values all = round_to(random_values(p.global.numel(), cat(p.name, step)), DType::f32),
           own(static_cast<size_t>(p.numel()), 0.0);
    if (replicas.rank() == 0)
      for (const ParamBox& box : p.boxes())
        for_each_run(box.global, p.global, box.local, p.local,
                     [&](int64_t from, int64_t to, int64_t n) {
                       std::copy_n(all.begin() + from, n, own.begin() + to);
                     });
    for (const PartialSum& part : p.partial)
      if (part.axis->index() > 0) std::fill_n(own.begin() + part.begin, part.size, 0.0);
    InputGrad(p.leaf.get()).give(lab.context(), make(lab.context(), own, p.local, DType::f32));
  }
  void step(int number) {
    reducer->begin_step();
    for (auto p = list.all().rbegin(); p != list.all().rend(); ++p) give_gradient(*p, number);
    for (size_t b = 0; b < reducer->buckets().size(); ++b) reducer->start(b);
    reducer->micro_batch_done();
    if (buckets->options().zero_stage >= 2) reducer->reduce_scatter();
    reducer->finish_step();
    if (number == 1) state->rehearse_update();
    state->update({.lr = 0.1, .weight_decay = 0.01, .grad_norm = 1, .step = number});
    for (Parameter& p : list.all()) p.leaf->has_grad = false;
  }
  void collect(MatrixOutcome& out) {
    for (const auto& entry : state->entries()) {
      const Parameter& p = *entry.parameter;
      auto put = [&](Values& whole, const Tensor& tensor) {
        whole.resize(static_cast<size_t>(p.global.numel()), std::nan(""));
        Values part = values_of(tensor);
        for (const ParamBox& box : p.boxes_of(entry.begin, entry.begin + entry.count)) {
          if (!box.is_primary || !entry.is_primary) continue;
          for_each_run(box.global, p.global, box.local, p.local,
                       [&](int64_t to, int64_t from, int64_t n) {
                         CHECK(std::isnan(whole[static_cast<size_t>(to)]));  // counted once
                         std::copy_n(part.begin() + (from - entry.begin), n, whole.begin() + to);
                       });
        }
      };
      put(out.tensors[p.name], entry.master);
      put(out.tensors[p.name + ".momentum"], entry.state[0]);
    }
    for (const auto& m : state->matrix_entries())
      if (m.is_primary) {
        CHECK(!out.tensors.contains(m.name));  // saved once
        out.tensors[m.name] = values_of(m.tensor);
      }
    for (const auto& [name, seen] : optimizer.matrices)
      out.matrices[name].insert(seen.begin(), seen.end());
  }
  void check_values(const MatrixOutcome& out) {
    GradMode off(lab.context(), false);
    buckets->gather_stage(0);
    for (const Parameter& p : list.all()) {
      Values masters = round_to(out.tensors.at(p.name), l.dtype), values = values_of(p.use());
      for (const ParamBox& box : p.boxes())
        for_each_run(
            box.global, p.global, box.local, p.local, [&](int64_t from, int64_t to, int64_t n) {
              CHECK(
                  std::equal(values.begin() + to, values.begin() + to + n, masters.begin() + from));
            });
    }
    buckets->release_values();
  }

  Layout l;
  Axes axes;
  contract::Fixture lab{1};
  ParamList list;
  BuildSettings settings;
  RowNorm optimizer;
  std::optional<ParamBuckets> buckets;
  std::optional<OptimizerState> state;
  std::optional<GradReducer> reducer;
};

MatrixOutcome train_matrices(const Layout& layout) {
  MatrixOutcome out;
  std::mutex mutex;
  run_ranks(layout.ranks, [&](Communicator& world) {
    MatrixRank rank(layout, world);
    for (int step = 1; step <= 2; ++step) rank.step(step);
    {
      std::lock_guard lock(mutex);
      rank.collect(out);
    }
    world.barrier();
    rank.check_values(out);
    world.barrier();
  });
  return out;
}

void check_same(const Layout& layout) {
  static std::map<DType, MatrixOutcome> one;
  if (!one.contains(layout.dtype)) one[layout.dtype] = train_matrices({.dtype = layout.dtype});
  INFO(layout_text(layout));
  MatrixOutcome out = train_matrices(layout);
  const MatrixOutcome& plain = one[layout.dtype];
  REQUIRE(out.tensors.size() == plain.tensors.size());
  for (const auto& [name, values] : plain.tensors)
    CHECK_MESSAGE(out.tensors.at(name) == values, name);
}

TEST_CASE("whole matrices: queries, keys, values and experts are matrices of their own") {
  MatrixOutcome one = train_matrices({});
  using Names = std::multiset<std::string>;  // in two steps
  CHECK(one.matrices["layers.0.groups.qkv.weight"] == Names{"k", "k", "q", "q", "v", "v"});
  CHECK(one.matrices["layers.0.mlp.up.weight"] == Names{"", ""});
  CHECK(one.matrices["layers.1.embed"] == Names{"0", "0", "1", "1", "2", "2", "3", "3"});
  CHECK(!one.matrices.contains("embed.weight"));
  CHECK(one.tensors["layers.0.groups.qkv.weight.q.gram"].size() == 36);
  CHECK(one.tensors["layers.0.mlp.up.weight.gram"].size() == 36);
  CHECK(one.tensors["layers.1.embed.3.count"] == Values{2});
  CHECK(!one.tensors.contains("layers.0.mlp.down.weight.gram"));
  // The definition, for the keys after one step from the initial values.
  run_ranks(1, [](Communicator& world) {
    MatrixRank rank({}, world);
    Parameter& p = *rank.list.find("layers.0.groups.qkv.weight");
    Values before = values_of(p.master);
    rank.step(1);
    Values after = values_of(p.master),
           g = round_to(random_values(p.numel(), cat(p.name, 1)), DType::f32);
    double all = 0;  // two groups of two queries, a key and a value, two rows each, six columns
    auto each_key = [](auto&& visit) {
      for (size_t row : {4, 5, 12, 13}) visit(row * 6);
    };
    each_key([&](size_t at) {
      for (size_t i = at; i < at + 6; ++i) all += g[i] * g[i];
    });
    each_key([&](size_t at) {
      double squares = 0;
      for (size_t i = at; i < at + 6; ++i) squares += g[i] * g[i];
      for (size_t i = at; i < at + 6; ++i)
        CHECK(after[i] ==
              doctest::Approx(before[i] - 0.1 * (g[i] / std::sqrt(squares * all) / (1 + all) +
                                                 0.01 * before[i]))
                  .epsilon(1e-6));
    });
  });
}

TEST_CASE("whole matrices: tensor-parallel ranks compute what one rank computes, to the bit") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (bool sequence : {false, true})
      check_same({.ranks = 2, .tp = 2, .sequence = sequence, .dtype = dtype});
}

TEST_CASE("whole matrices: every ZeRO stage computes what one rank computes, to the bit") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int zero_stage : {0, 1, 2, 3})
      for (int64_t bucket_size : {0, 60})
        for (int ranks : {2, 3})
          check_same({.ranks = ranks,
                      .zero_stage = zero_stage,
                      .bucket_size = bucket_size,
                      .dtype = dtype});
}

TEST_CASE("whole matrices: tensor parallelism, experts and ZeRO together") {
  for (int zero_stage : {0, 1, 2, 3})
    for (bool sequence : {false, true}) {
      check_same({.ranks = 4, .tp = 2, .zero_stage = zero_stage, .sequence = sequence});
      check_same({.ranks = 4, .tp = 2, .ep = 2, .zero_stage = zero_stage, .sequence = sequence});
      check_same({.ranks = 4, .etp = 2, .zero_stage = zero_stage});
      check_same({.ranks = 8, .tp = 2, .ep = 2, .etp = 2, .zero_stage = zero_stage});
    }
}

TEST_CASE("whole matrices: hybrid sharding, and copies that share the state") {
  for (DType dtype : {DType::f32, DType::bf16})
    for (int tp : {1, 2}) {
      for (int zero_stage : {1, 2, 3})
        check_same(
            {.ranks = 4 * tp, .tp = tp, .zero_stage = zero_stage, .hsdp = 2, .dtype = dtype});
      for (int hsdp : {2, 4})
        check_same({.ranks = 4 * tp,
                    .tp = tp,
                    .zero_stage = 3,
                    .hsdp = hsdp,
                    .outer_zero = true,
                    .sequence = true,
                    .dtype = dtype});
    }
}

}  // namespace
}  // namespace mtrain
