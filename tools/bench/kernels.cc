// bench_kernels [layers hidden heads groups head_dim ffn vocab seq micro_batch [threads]]: every CPU kernel
// at one Llama's shapes, with its share of a training step. The default is the quickstart's model.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench.h"
#include "mtrain/cpu/cpu_backend.h"

namespace mtrain::bench {
namespace {

struct Model {
  int64_t layers = 6, hidden = 256, heads = 8, groups = 4, head_dim = 32, ffn = 704, vocab = 320, seq = 256,
          batch = 16;
  int64_t threads = 0;
  int64_t tokens() const { return seq * batch; }
  int64_t qkv() const { return (heads + 2 * groups) * head_dim; }
  int64_t parameters() const {
    return layers * (hidden * (qkv() + 3 * ffn + 2) + heads * head_dim * hidden) + 2 * vocab * hidden +
           hidden;
  }
};

/// One kernel at one shape: how often a step calls it, and what a call costs in arithmetic and memory
/// traffic.
struct Row {
  std::string name;
  double calls, flop, bytes;
  std::function<void()> run;
};

class Suite {
 public:
  Suite(const Model& model, DType dtype)
      : m_(model),
        dtype_(dtype),
        size_(static_cast<double>(size_of(dtype))),
        backend_(make_cpu_backend(static_cast<int>(model.threads))),
        stream_(backend_->stream({})),
        k_(backend_->kernels()) {}

  void run() {
    gemms();
    attention();
    rows();
    elements();
    report();
  }

 private:
  /// Memory of random values (small, so that nothing overflows) in the suite's dtype.
  void* random(int64_t count) {
    auto* wide = static_cast<float*>(floats(count));
    uint32_t state = 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      wide[i] = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
    }
    if (dtype_ == DType::f32) return wide;
    void* narrow = backend_->allocate({}, static_cast<size_t>(count) * size_of(dtype_));
    k_.cast(*stream_, {wide, narrow, count, 1, false, DType::f32, dtype_});
    return narrow;
  }
  void* floats(int64_t count) {
    void* data = backend_->allocate({}, static_cast<size_t>(count) * sizeof(float));
    backend_->fill_zero(*stream_, data, static_cast<size_t>(count) * sizeof(float));
    return data;
  }

  void gemm(const std::string& name, double calls, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
            bool grad) {
    GemmArgs g;
    g.a = random(m * k), g.b = random(n * k), g.c = grad ? floats(m * n) : random(m * n);
    g.transpose_a = ta, g.transpose_b = tb, g.m = m, g.n = n, g.k = k;
    g.lda = ta ? m : k, g.ldb = tb ? k : n, g.ldc = n, g.beta = grad ? 1 : 0;
    g.dtype = dtype_, g.c_dtype = grad ? DType::f32 : dtype_;
    double mnk = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    rows_.push_back({name, calls, 2 * mnk, 0, [this, g] { k_.gemm(*stream_, g); }});
  }
  void linear(const std::string& name, double calls, int64_t out, int64_t in) {
    int64_t t = m_.tokens();
    gemm(name + " forward", calls, t, out, in, false, true, false);
    gemm(name + " dgrad", calls, t, in, out, false, false, false);
    gemm(name + " wgrad", calls, out, in, t, true, false, true);
  }
  void gemms() {
    auto layers = static_cast<double>(m_.layers);
    linear("qkv", layers, m_.qkv(), m_.hidden);
    linear("attention out", layers, m_.hidden, m_.heads * m_.head_dim);
    linear("gate, up", 2 * layers, m_.ffn, m_.hidden);
    linear("down", layers, m_.hidden, m_.ffn);
    linear("head", 1, m_.vocab, m_.hidden);
  }

  void attention() {
    int64_t t = m_.tokens(), e = m_.head_dim, q = m_.heads * e, kv = m_.groups * e, stride = q + 2 * kv;
    auto* seqlens = new int32_t[static_cast<size_t>(m_.batch) + 1];
    auto* positions = new int32_t[static_cast<size_t>(t)];
    for (int64_t b = 0; b <= m_.batch; ++b) seqlens[b] = static_cast<int32_t>(b * m_.seq);
    for (int64_t i = 0; i < t; ++i) positions[i] = static_cast<int32_t>(i % m_.seq);
    auto at = [&](void* base, int64_t i) {
      return static_cast<std::byte*>(base) + static_cast<size_t>(i) * size_of(dtype_);
    };
    void *qkv = random(t * stride), *d_qkv = random(t * stride);
    AttentionArgs a{};
    int64_t per_group = m_.heads / m_.groups;
    a.q = {qkv, stride, per_group * e}, a.k = {at(qkv, q), stride, e}, a.v = {at(qkv, q + kv), stride, e};
    a.o = random(t * q), a.lse = static_cast<float*>(floats(t * m_.heads)), a.cu_seqlens = seqlens;
    a.sequences = m_.batch, a.tokens = t, a.heads = m_.heads, a.groups = m_.groups, a.head_dim = e;
    a.scale = 1 / std::sqrt(static_cast<float>(e)), a.causal = true, a.dtype = dtype_;
    AttentionBackwardArgs b{};
    b.forward = a, b.d_o = random(t * q);
    b.dq = {d_qkv, stride, per_group * e}, b.dk = {at(d_qkv, q), stride, e},
    b.dv = {at(d_qkv, q + kv), stride, e};
    double pairs =
        static_cast<double>(m_.batch * m_.heads * e) * static_cast<double>(m_.seq * (m_.seq + 1) / 2);
    auto layers = static_cast<double>(m_.layers);
    rows_.push_back({"attention", layers, 4 * pairs, 0, [this, a] { k_.attention(*stream_, a); }});
    rows_.push_back(
        {"attention backward", layers, 10 * pairs, 0, [this, b] { k_.attention_backward(*stream_, b); }});
    RopeArgs r{qkv,
               positions,
               static_cast<float*>(floats(m_.seq * e / 2)),
               static_cast<float*>(floats(m_.seq * e / 2)),
               t,
               m_.groups,
               per_group,
               e,
               e,
               stride,
               per_group * e,
               false,
               dtype_};
    rows_.push_back({"rope of q", 2 * layers, 0, 2 * size_ * static_cast<double>(t * q),
                     [this, r] { k_.rope(*stream_, r); }});
  }

  void rows() {
    int64_t t = m_.tokens(), d = m_.hidden, v = m_.vocab;
    auto count = static_cast<double>(t * d), norms = static_cast<double>(2 * m_.layers + 1);
    void *x = random(t * d), *w = random(d), *y = random(t * d), *dy = random(t * d);
    auto *stat = static_cast<float*>(floats(t)), *mean = static_cast<float*>(floats(t)),
         *dw = static_cast<float*>(floats(d));
    RmsNormArgs f{x, w, y, stat, t, d, 1e-5f, dtype_};
    k_.rms_norm(*stream_, f);
    rows_.push_back({"rms_norm", norms, 0, 2 * size_ * count, [this, f] { k_.rms_norm(*stream_, f); }});
    RmsNormBackwardArgs b{dy, x, w, stat, y, dw, t, d, true, true, dtype_};
    rows_.push_back(
        {"rms_norm backward", norms, 0, 4 * size_ * count, [this, b] { k_.rms_norm_backward(*stream_, b); }});
    LayerNormArgs l{x, w, w, y, mean, stat, t, d, 1e-5f, dtype_};
    rows_.push_back({"layer_norm", 0, 0, 2 * size_ * count, [this, l] { k_.layer_norm(*stream_, l); }});
    auto* logits = random(t * v);
    auto *loss = static_cast<float*>(floats(t)), *lse = static_cast<float*>(floats(t));
    auto* ids = new int32_t[static_cast<size_t>(t)];
    for (int64_t i = 0; i < t; ++i) ids[i] = static_cast<int32_t>(i * 31 % (v - 3));
    CrossEntropyArgs c{logits, ids, loss, lse, t, v, v - 3, dtype_};
    k_.cross_entropy(*stream_, c);
    rows_.push_back({"cross_entropy", 1, 0, size_ * static_cast<double>(t * v),
                     [this, c] { k_.cross_entropy(*stream_, c); }});
    CrossEntropyBackwardArgs cb{loss, logits, ids, lse, random(t * v), t, v, v - 3, dtype_};
    rows_.push_back({"cross_entropy backward", 1, 0, 2 * size_ * static_cast<double>(t * v),
                     [this, cb] { k_.cross_entropy_backward(*stream_, cb); }});
    EmbeddingArgs e{random(v * d), ids, y, t, v, d, dtype_};
    rows_.push_back({"embedding", 1, 0, 2 * size_ * count, [this, e] { k_.embedding(*stream_, e); }});
    EmbeddingBackwardArgs eb{dy, ids, static_cast<float*>(floats(v * d)), t, v, d, dtype_};
    rows_.push_back({"embedding backward", 1, 0, (size_ + 8) * count,
                     [this, eb] { k_.embedding_backward(*stream_, eb); }});
    ColumnSumArgs s{x, dw, t, d, true, dtype_};
    rows_.push_back({"column_sum", 0, 0, size_ * count, [this, s] { k_.column_sum(*stream_, s); }});
  }

  void elements() {
    int64_t n = m_.tokens() * m_.ffn, d = m_.tokens() * m_.hidden, p = m_.parameters();
    auto layers = static_cast<double>(m_.layers), count = static_cast<double>(n);
    void *a = random(n), *b = random(n), *c = random(n), *y = random(n), *z = random(n);
    SiluMulArgs s{a, b, y, n, dtype_};
    rows_.push_back({"silu_mul", layers, 0, 3 * size_ * count, [this, s] { k_.silu_mul(*stream_, s); }});
    SiluMulBackwardArgs sb{c, a, b, y, z, n, dtype_};
    rows_.push_back({"silu_mul backward", layers, 0, 5 * size_ * count,
                     [this, sb] { k_.silu_mul_backward(*stream_, sb); }});
    for (GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
      std::string name = kind == GeluKind::erf ? "gelu erf" : "gelu tanh";
      GeluArgs g{a, y, n, kind, dtype_};
      rows_.push_back({name, 0, 0, 2 * size_ * count, [this, g] { k_.gelu(*stream_, g); }});
      GeluBackwardArgs gb{c, a, y, n, kind, false, dtype_};
      rows_.push_back(
          {name + " backward", 0, 0, 3 * size_ * count, [this, gb] { k_.gelu_backward(*stream_, gb); }});
    }
    AddArgs add{a, b, y, d, dtype_};
    rows_.push_back(
        {"add", 2 * layers, 0, 3 * size_ * static_cast<double>(d), [this, add] { k_.add(*stream_, add); }});
    DropoutArgs drop{a, y, d, 0, 1, 2, 3, 0.1f, dtype_};
    rows_.push_back(
        {"dropout", 0, 0, 2 * size_ * static_cast<double>(d), [this, drop] { k_.dropout(*stream_, drop); }});
    auto *grad = static_cast<float*>(floats(p)), *param = static_cast<float*>(floats(p)),
         *m = static_cast<float*>(floats(p)), *v = static_cast<float*>(floats(p));
    AdamWArgs o{param, grad,  m,     v,     dtype_ == DType::f32 ? nullptr : random(p),
                p,     1e-3f, 0.9f,  0.95f, 1e-8f,
                0.1f,  0.1f,  0.05f, 1,     dtype_};
    rows_.push_back({"adamw", 1, 0, 28 * static_cast<double>(p), [this, o] { k_.adamw(*stream_, o); }});
    auto* out = new double;
    SquaredNormArgs q{grad, p, out};
    rows_.push_back(
        {"squared_norm", 1, 0, 4 * static_cast<double>(p), [this, q] { k_.squared_norm(*stream_, q); }});
    CastArgs cast{grad, param, p, 1, true, DType::f32, DType::f32};
    rows_.push_back({"cast (accumulate fp32)", 0, 0, 12 * static_cast<double>(p),
                     [this, cast] { k_.cast(*stream_, cast); }});
    for (DType from : {DType::f32, dtype_}) {
      CastArgs narrow{from == DType::f32 ? static_cast<void*>(grad) : a,
                      from == DType::f32 ? y : static_cast<void*>(param),
                      d,
                      1,
                      false,
                      from,
                      from == DType::f32 ? dtype_ : DType::f32};
      rows_.push_back({from == DType::f32 ? "cast from fp32" : "cast to fp32", 0, 0,
                       (size_ + 4) * static_cast<double>(d), [this, narrow] { k_.cast(*stream_, narrow); }});
      if (dtype_ == DType::f32) break;
    }
  }

  void report() {
    double step = 0, flop = 0;
    std::vector<double> seconds;
    for (const Row& row : rows_) {
      seconds.push_back(median_seconds(row.run));
      step += row.calls * seconds.back();
      flop += row.calls * row.flop;
    }
    std::printf("%s, %lld tokens, %.2f M parameters\n%-24s %10s %9s %8s %8s %7s\n", name(dtype_),
                static_cast<long long>(m_.tokens()), static_cast<double>(m_.parameters()) * 1e-6, "kernel",
                "us", "GFLOP/s", "GB/s", "calls", "share");
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& r = rows_[i];
      std::printf("%-24s %10.1f %9.1f %8.1f %8.0f %6.1f%%\n", r.name.c_str(), seconds[i] * 1e6,
                  r.flop / seconds[i] * 1e-9, r.bytes / seconds[i] * 1e-9, r.calls,
                  100 * r.calls * seconds[i] / step);
    }
    std::printf("sum of one step %.2f ms, %.0f tokens/s, %.1f GFLOP/s\n\n", step * 1e3,
                static_cast<double>(m_.tokens()) / step, flop / step * 1e-9);
  }

  Model m_;
  DType dtype_;
  double size_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  const KernelTable& k_;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace mtrain::bench

int main(int argc, char** argv) {
  using namespace mtrain;
  bench::Model model;
  int64_t* settings[] = {&model.layers, &model.hidden, &model.heads, &model.groups, &model.head_dim,
                         &model.ffn,    &model.vocab,  &model.seq,   &model.batch,  &model.threads};
  for (int i = 1; i < argc && i <= 10; ++i) *settings[i - 1] = std::strtoll(argv[i], nullptr, 10);
  for (DType dtype : {DType::f32, DType::bf16}) bench::Suite(model, dtype).run();
  return 0;
}
