// Kernels of the table on the GPU against the CPU's, on the same inputs: those that no op of the
// contract reaches, those whose bits must be the CPU's, and shapes that take other paths (rows that
// are not aligned, long rows, many equal ids).
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "contract/harness.h"
#include "cuda_backend.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/tensor/profile.h"

using namespace mtrain;
using contract::random_values;
using contract::Values;

namespace {

/// The same call on both backends. Tensors are made on a run of each.
struct Pair2 {
  std::unique_ptr<Backend> cpu_backend = make_cpu_backend(2);
  std::unique_ptr<Backend> gpu_backend = std::make_unique<cuda::CudaBackend>();
  ExecutionContext cpu{*cpu_backend}, gpu{*gpu_backend};

  template <class F>
  void both(F&& f) {
    f(cpu);
    f(gpu);
  }
  /// f(run) gives a tensor; its values on the CPU and on the GPU.
  template <class F>
  std::pair<Values, Values> values(F&& f) {
    return {contract::values_of(f(cpu)), contract::values_of(f(gpu))};
  }
};

double roundings(DType dtype) {
  return dtype == DType::f32 ? 1e-5 : 1.01 * contract::roundoff(dtype) * 2;
}

void check_near(const std::pair<Values, Values>& v, double allowed, const std::string& what) {
  REQUIRE(v.first.size() == v.second.size());
  double worst = 0, scale = 1e-3;
  for (double x : v.first) scale = std::max(scale, std::fabs(x));
  for (size_t i = 0; i < v.first.size(); ++i)
    worst = std::max(worst, std::fabs(v.first[i] - v.second[i]) / scale);
  INFO(what);
  CHECK(worst <= allowed);
}

constexpr int64_t kRows[] = {1, 7, 300}, kCols[] = {8, 33, 1024, 1032, 4096, 20000};

}  // namespace

TEST_CASE("dropout draws the CPU's bits") {
  Pair2 on;
  for (int64_t count : {int64_t{1}, int64_t{1000}, int64_t{65537}})
    for (float p : {0.0f, 0.3f, 1.0f}) {
      auto [cpu, gpu] = on.values([&](ExecutionContext& ctx) {
        Tensor x = contract::make(ctx, random_values(count, "x"), {count}, DType::f32),
               y = ctx.empty({count}, DType::f32);
        ctx.kernels().dropout(ctx.stream(), {.x = x.raw(),
                                             .y = y.raw(),
                                             .count = count,
                                             .first_index = 123456789012,
                                             .seed = 7,
                                             .name_key = 99,
                                             .step = 5,
                                             .p = p,
                                             .dtype = DType::f32});
        return y;
      });
      CHECK(cpu == gpu);
    }
}

TEST_CASE("the embedding and its gradient have the CPU's bits, with ids that occur often") {
  Pair2 on;
  constexpr int64_t kTokens = 3000, kVocab = 97;
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t)
    ids.push_back(static_cast<int32_t>(t % 5 == 0 ? 3 : t * 7919 % (kVocab + 20)));
  for (int64_t cols : {int64_t{8}, int64_t{33}, int64_t{768}})
    for (DType dtype : contract::kDTypes) {
      auto forward = on.values([&](ExecutionContext& ctx) {
        Tensor table =
            contract::make(ctx, random_values(kVocab * cols, "table"), {kVocab, cols}, dtype);
        Tensor y = ctx.empty({kTokens, cols}, dtype), id = contract::make_ids(ctx, ids);
        ctx.kernels().embedding(ctx.stream(), {.table = table.raw(),
                                               .ids = id.data<int32_t>(),
                                               .y = y.raw(),
                                               .tokens = kTokens,
                                               .rows = kVocab,
                                               .cols = cols,
                                               .dtype = dtype,
                                               .first_row = 10});
        return y;
      });
      CHECK(forward.first == forward.second);
      auto backward = on.values([&](ExecutionContext& ctx) {
        Tensor dy =
            contract::make(ctx, random_values(kTokens * cols, "dy"), {kTokens, cols}, dtype);
        Tensor d =
            contract::make(ctx, random_values(kVocab * cols, "prior"), {kVocab, cols}, DType::f32);
        Tensor id = contract::make_ids(ctx, ids);
        ctx.kernels().embedding_backward(ctx.stream(), {.dy = dy.raw(),
                                                        .ids = id.data<int32_t>(),
                                                        .d_table = d.data<float>(),
                                                        .tokens = kTokens,
                                                        .rows = kVocab,
                                                        .cols = cols,
                                                        .dtype = dtype,
                                                        .first_row = 10});
        return d;
      });
      CHECK(backward.first == backward.second);
    }
}

TEST_CASE("conversions have the CPU's bits") {
  Pair2 on;
  for (DType from : contract::kDTypes)
    for (DType to : contract::kDTypes)
      for (int64_t count : {int64_t{1}, int64_t{1001}, int64_t{4096}}) {
        auto [cpu, gpu] = on.values([&](ExecutionContext& ctx) {
          Tensor x = contract::make(ctx, random_values(count, "x", 100), {count}, from),
                 y = ctx.empty({count}, to);
          ctx.copy(y, x);
          return y;
        });
        CHECK(cpu == gpu);
      }
}

TEST_CASE("copied blocks have the CPU's bits, added or not, aligned or not") {
  Pair2 on;
  struct Form {
    int64_t outer, inner, count, gap;
  };
  for (Form f : {Form{1, 1, 1, 0}, Form{3, 5, 33, 7}, Form{300, 2, 128, 64}, Form{64, 8, 1024, 0}})
    for (DType dtype : contract::kDTypes)
      for (bool accumulate : {false, true}) {
        auto [cpu, gpu] = on.values([&](ExecutionContext& ctx) {
          int64_t row = f.inner * (f.count + f.gap), size = f.outer * row;
          Tensor x = contract::make(ctx, random_values(size, "x"), {size}, dtype),
                 y = contract::make(ctx, random_values(size, "y"), {size}, dtype);
          // Blocks change places: (i, j) of one lies where (j, i) is in the other.
          ctx.kernels().copy_blocks(ctx.stream(), {.src = x.raw(),
                                                   .dst = y.raw(),
                                                   .outer = f.outer,
                                                   .inner = f.inner,
                                                   .count = f.count,
                                                   .src_outer = row,
                                                   .src_inner = f.count + f.gap,
                                                   .dst_outer = f.count + f.gap,
                                                   .dst_inner = f.outer * (f.count + f.gap),
                                                   .accumulate = accumulate,
                                                   .dtype = dtype});
          return y;
        });
        CHECK(cpu == gpu);
      }
}

TEST_CASE("AdamW and the norm of gradients") {
  Pair2 on;
  for (int64_t count : {int64_t{5}, int64_t{70000}, int64_t{200003}}) {
    for (DType dtype : {DType::f32, DType::bf16})
      check_near(on.values([&](ExecutionContext& ctx) {
        auto tensor = [&](const char* key) {
          return contract::make(ctx, random_values(count, key), {count}, DType::f32);
        };
        Tensor p = tensor("p"), g = tensor("g"), m = tensor("m"),
               v = ctx.zeros({count}, DType::f32);
        Tensor value = ctx.empty({count}, dtype);
        for (int step = 0; step < 2; ++step)
          ctx.kernels().adamw(ctx.stream(), {.param = p.data<float>(),
                                             .grad = g.data<float>(),
                                             .exp_avg = m.data<float>(),
                                             .exp_avg_sq = v.data<float>(),
                                             .value = value.raw(),
                                             .count = count,
                                             .lr = 1e-3f,
                                             .beta1 = 0.9f,
                                             .beta2 = 0.95f,
                                             .eps = 1e-8f,
                                             .weight_decay = 0.1f,
                                             .correction1 = 0.1f,
                                             .correction2 = 0.05f,
                                             .grad_scale = 0.5f,
                                             .value_dtype = dtype});
        return value;
      }),
                 roundings(dtype), "adamw");
    double norms[2] = {};
    int which = 0;
    on.both([&](ExecutionContext& ctx) {
      Tensor x = contract::make(ctx, random_values(count, "x"), {count}, DType::f32);
      ctx.kernels().squared_norm(ctx.stream(),
                                 {.x = x.data<float>(), .count = count, .out = &norms[which]});
      ctx.stream().synchronize();
      ++which;
    });
    CHECK(std::fabs(norms[0] - norms[1]) <= 1e-12 * norms[0]);
  }
}

TEST_CASE("rows of every length take the paths of warps and blocks, staged or not") {
  Pair2 on;
  for (int64_t rows : kRows)
    for (int64_t cols : kCols)
      for (DType dtype : contract::kDTypes) {
        auto x = [&](ExecutionContext& ctx) {
          return contract::make(ctx, random_values(rows * cols, "x"), {rows, cols}, dtype);
        };
        check_near(on.values([&](ExecutionContext& ctx) {
          Tensor in = x(ctx), w = contract::make(ctx, random_values(cols, "w"), {cols}, dtype);
          Tensor y = ctx.empty({rows, cols}, dtype), rstd = ctx.empty({rows}, DType::f32);
          ctx.kernels().rms_norm(ctx.stream(), {.x = in.raw(),
                                                .w = w.raw(),
                                                .y = y.raw(),
                                                .rstd = rstd.data<float>(),
                                                .rows = rows,
                                                .cols = cols,
                                                .eps = 1e-5f,
                                                .dtype = dtype});
          return y;
        }),
                   roundings(dtype), cat("rms_norm ", rows, "x", cols, " ", name(dtype)));
        check_near(on.values([&](ExecutionContext& ctx) {
          Tensor in = x(ctx), out = ctx.zeros({cols}, DType::f32);
          ctx.kernels().column_sum(ctx.stream(), {.x = in.raw(),
                                                  .out = out.data<float>(),
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .accumulate = false,
                                                  .dtype = dtype});
          return out;
        }),
                   1e-5, cat("column_sum ", rows, "x", cols));
        check_near(on.values([&](ExecutionContext& ctx) {
          Tensor in = x(ctx), loss = ctx.empty({rows}, DType::f32),
                 lse = ctx.empty({rows}, DType::f32);
          std::vector<int32_t> targets;
          for (int64_t r = 0; r < rows; ++r)
            targets.push_back(static_cast<int32_t>(r % 3 == 2 ? -1 : r % (cols - 3)));
          Tensor t = contract::make_ids(ctx, targets);
          ctx.kernels().cross_entropy(ctx.stream(), {.logits = in.raw(),
                                                     .targets = t.data<int32_t>(),
                                                     .loss = loss.data<float>(),
                                                     .lse = lse.data<float>(),
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .valid_cols = cols - 3,
                                                     .dtype = dtype});
          return loss;
        }),
                   1e-5, cat("cross_entropy ", rows, "x", cols));
      }
}

TEST_CASE("gradients of norms take the paths of warps and blocks, staged or not, added or not") {
  Pair2 on;
  for (int64_t rows : kRows)
    for (int64_t cols : kCols)
      for (DType dtype : contract::kDTypes)
        for (bool accumulate : {false, true})
          for (bool layer : {false, true}) {
            auto gradients = [&](ExecutionContext& ctx, bool of_weight) {
              auto tensor = [&](const char* key, int64_t count, DType type) {
                return contract::make(ctx, random_values(count, key), {count}, type);
              };
              Tensor dy = tensor("dy", rows * cols, dtype), x = tensor("x", rows * cols, dtype),
                     w = tensor("w", cols, dtype), dx = tensor("dx", rows * cols, dtype),
                     dw = tensor("dw", cols, DType::f32), mean = tensor("mean", rows, DType::f32),
                     rstd = tensor("rstd", rows, DType::f32);
              if (layer)
                ctx.kernels().layer_norm_backward(ctx.stream(), {.dy = dy.raw(),
                                                                 .x = x.raw(),
                                                                 .w = w.raw(),
                                                                 .mean = mean.data<float>(),
                                                                 .rstd = rstd.data<float>(),
                                                                 .dx = dx.raw(),
                                                                 .dw = dw.data<float>(),
                                                                 .db = nullptr,
                                                                 .rows = rows,
                                                                 .cols = cols,
                                                                 .accumulate_dx = accumulate,
                                                                 .accumulate_dw = accumulate,
                                                                 .accumulate_db = false,
                                                                 .dtype = dtype});
              else
                ctx.kernels().rms_norm_backward(ctx.stream(), {.dy = dy.raw(),
                                                               .x = x.raw(),
                                                               .w = w.raw(),
                                                               .rstd = rstd.data<float>(),
                                                               .dx = dx.raw(),
                                                               .dw = dw.data<float>(),
                                                               .rows = rows,
                                                               .cols = cols,
                                                               .accumulate_dx = accumulate,
                                                               .accumulate_dw = accumulate,
                                                               .dtype = dtype});
              return of_weight ? dw : dx;
            };
            const std::string what = cat(layer ? "layer_norm " : "rms_norm ", rows, "x", cols, " ",
                                         name(dtype), accumulate ? ", added" : "");
            check_near(on.values([&](ExecutionContext& ctx) { return gradients(ctx, false); }),
                       roundings(dtype), what + ": dx");
            check_near(on.values([&](ExecutionContext& ctx) { return gradients(ctx, true); }), 2e-5,
                       what + ": dw");
          }
}

TEST_CASE("a bias is added wherever it starts, and with any number of columns") {
  Pair2 on;
  for (int64_t n : {int64_t{64}, int64_t{65}, int64_t{2}})
    for (int64_t offset : {0, 1})
      for (DType dtype : contract::kDTypes)
        for (bool addend : {false, true})
          check_near(on.values([&](ExecutionContext& ctx) {
            constexpr int64_t m = 48, k = 96;
            auto tensor = [&](const char* key, int64_t count) {
              return contract::make(ctx, random_values(count, key), {count}, dtype);
            };
            Tensor a = tensor("a", m * k), b = tensor("b", n * k), bias = tensor("bias", n + 1),
                   before = tensor("before", m * n), c = ctx.empty({m, n}, dtype);
            auto* first = static_cast<const std::byte*>(bias.raw());
            ctx.kernels().gemm(ctx.stream(),
                               {.a = a.raw(),
                                .b = b.raw(),
                                .c = c.raw(),
                                .bias = first + offset * static_cast<int64_t>(size_of(dtype)),
                                .addend = addend ? before.raw() : nullptr,
                                .transpose_b = true,
                                .m = m,
                                .n = n,
                                .k = k,
                                .lda = k,
                                .ldb = k,
                                .ldc = n,
                                .dtype = dtype,
                                .c_dtype = dtype,
                                .bias_dtype = dtype});
            return c;
          }),
                     roundings(dtype), cat(n, " columns, offset ", offset, " ", name(dtype)));
}

TEST_CASE(
    "products of every shape, with and without epilogues, on the library's path and on the plain "
    "one") {
  Pair2 on;
  struct Shape3 {
    int64_t m, n, k;
  };
  for (Shape3 s : {Shape3{1, 1, 1}, {17, 33, 65}, {128, 256, 64}, {300, 96, 1000}})
    for (DType dtype : contract::kDTypes)
      for (DType c_dtype : {dtype, DType::f32})
        for (int variant = 0; variant < 8; ++variant) {
          bool ta = variant & 1, tb = variant & 2, extra = variant & 4;
          auto product = [&](ExecutionContext& ctx) {
            Tensor a = contract::make(ctx, random_values(s.m * s.k, "a"), {s.m * s.k}, dtype);
            Tensor b = contract::make(ctx, random_values(s.n * s.k, "b"), {s.n * s.k}, dtype);
            Tensor c = contract::make(ctx, random_values(s.m * s.n, "c"), {s.m * s.n}, c_dtype);
            Tensor bias = contract::make(ctx, random_values(s.n, "bias"), {s.n}, c_dtype);
            ctx.kernels().gemm(ctx.stream(), {.a = a.raw(),
                                              .b = b.raw(),
                                              .c = c.raw(),
                                              .bias = extra ? bias.raw() : nullptr,
                                              .transpose_a = ta,
                                              .transpose_b = tb,
                                              .m = s.m,
                                              .n = s.n,
                                              .k = s.k,
                                              .lda = ta ? s.m : s.k,
                                              .ldb = tb ? s.k : s.n,
                                              .ldc = s.n,
                                              .beta = extra ? 0.0f : 1.0f,
                                              .dtype = dtype,
                                              .c_dtype = c_dtype,
                                              .bias_dtype = c_dtype});
            return c;
          };
          check_near(on.values(product), roundings(c_dtype),
                     cat("gemm ", s.m, "x", s.n, "x", s.k, " ", name(dtype), " variant ", variant));
        }
}

TEST_CASE("a profile does not measure what was submitted before it") {
  cuda::CudaBackend backend;
  ExecutionContext ctx(backend);
  constexpr int64_t kMany = 1 << 28;
  Tensor x = ctx.zeros({kMany}, DType::f32);
  auto add = [&](int64_t count) {
    ctx.kernels().add(
        ctx.stream(),
        {.a = x.raw(), .b = x.raw(), .y = x.raw(), .count = count, .dtype = DType::f32});
  };
  add(16);
  ctx.stream().synchronize();
  for (int i = 0; i < 40; ++i) add(kMany);  // at least 25 ms on any GPU of today
  Profile profile(ctx.backend().kernels());
  ctx.set_profile(&profile);
  add(16);
  ctx.set_profile(nullptr);
  REQUIRE(profile.events().size() == 1);
  CHECK(profile.events().front().seconds < 5e-3);
}

TEST_CASE("memory of a repeated step comes from the pool alone") {
  cuda::CudaBackend backend;
  ExecutionContext ctx(backend);
  auto step = [&] {
    Tensor a = ctx.zeros({1 << 20}, DType::f32), b = ctx.zeros({3 << 20}, DType::bf16);
    ctx.kernels().add(
        ctx.stream(),
        {.a = a.raw(), .b = a.raw(), .y = a.raw(), .count = 1 << 20, .dtype = DType::f32});
  };
  step();
  uint64_t calls = backend.figures().driver_calls;
  for (int i = 0; i < 100; ++i) step();
  CHECK(backend.figures().driver_calls == calls);
}

namespace {

/// The gradients of heads that have a key head each, stored as q, k, v of one head after the other.
Values attention_gradients(ExecutionContext& ctx, const Values& qkv, const Values& d_o,
                           const std::vector<int32_t>& bounds, int64_t heads, int64_t width) {
  int64_t tokens = bounds.back(), row = heads * 3 * width;
  Tensor x = contract::make(ctx, qkv, {tokens, row}, DType::bf16),
         dx = ctx.zeros({tokens, row}, DType::bf16),
         o = ctx.empty({tokens, heads * width}, DType::bf16),
         dy = contract::make(ctx, d_o, {tokens, heads * width}, DType::bf16),
         lse = ctx.empty({tokens * heads}, DType::f32);
  auto view = [&](const Tensor& t, int64_t part) {
    return HeadsView{t.data<bf16>() + part * width, row, 3 * width};
  };
  AttentionArgs a{};
  a.q = view(x, 0), a.k = view(x, 1), a.v = view(x, 2);
  a.o = o.raw(), a.lse = lse.data<float>(), a.cu_seqlens = bounds.data();
  a.sequences = static_cast<int64_t>(bounds.size()) - 1, a.tokens = tokens;
  a.heads = a.groups = heads, a.head_dim = width, a.scale = 0.25f, a.causal = true;
  a.dtype = DType::bf16;
  ctx.kernels().attention(ctx.stream(), a);
  AttentionBackwardArgs b{};
  b.forward = a, b.d_o = dy.raw();
  b.dq = view(dx, 0), b.dk = view(dx, 1), b.dv = view(dx, 2);
  ctx.kernels().attention_backward(ctx.stream(), b);
  return contract::values_of(dx);
}

/// Columns [begin, begin + count) of rows of `width`.
Values columns_of(const Values& x, int64_t width, int64_t begin, int64_t count) {
  Values out;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(width))
    out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(row) + begin,
               x.begin() + static_cast<std::ptrdiff_t>(row) + begin + count);
  return out;
}

}  // namespace

TEST_CASE(
    "attention's gradient of more heads than are computed at once has the bits of its parts") {
  Pair2 on;
  constexpr int64_t kTokens = 8192, kHeads = 48, kWidth = 16, kPart = 24;
  for (const std::vector<int32_t>& bounds :
       {std::vector<int32_t>{0, kTokens}, std::vector<int32_t>{0, 8000, kTokens}}) {
    CAPTURE(bounds.size());
    Values qkv = random_values(kTokens * kHeads * 3 * kWidth, "qkv"),
           d_o = random_values(kTokens * kHeads * kWidth, "d_o");
    Values all = attention_gradients(on.gpu, qkv, d_o, bounds, kHeads, kWidth);
    for (int64_t first = 0; first < kHeads; first += kPart) {
      auto part = [&](const Values& x, int64_t each) {
        return columns_of(x, kHeads * each, first * each, kPart * each);
      };
      CHECK(part(all, 3 * kWidth) == attention_gradients(on.gpu, part(qkv, 3 * kWidth),
                                                         part(d_o, kWidth), bounds, kPart, kWidth));
    }
  }
}
