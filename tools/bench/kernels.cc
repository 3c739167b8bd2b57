// bench_kernels [options]: times the kernels of a backend at the shapes of one Llama, and their
// share of a training step, relative to the speed of a large product and of adding large arrays,
// which are measured first.
//   --backend cpu|cuda|…   cpu; others are loaded from the plugins next to this program
//   --model NAME           quickstart (the default), llama8b; or the sizes:
//   layers,hidden,heads,groups,head_dim,ffn,vocab,seq,batch
//   --dtype NAME           fp32, bf16, fp16; more than once for several
//   --window N             attention to the last N tokens; 0 (the default): to all earlier ones
//   --threads N            of the CPU
//   --json FILE            the same as JSON, for torch_kernels.py, which adds PyTorch
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/tensor/device_backend.h"
#include "mtrain/train/profiling.h"

namespace mtrain::bench {
namespace {

struct Model {
  int64_t layers = 6, hidden = 256, heads = 8, groups = 4, head_dim = 32, ffn = 704, vocab = 320,
          seq = 256, batch = 16, window = 0;
  int64_t tokens() const { return seq * batch; }
  int64_t qkv() const { return (heads + 2 * groups) * head_dim; }
  /// Queries and keys of a sequence that attention multiplies.
  int64_t pairs() const {
    int64_t reach = window > 0 ? std::min(window, seq) : seq;  // of a late token
    return reach * (reach + 1) / 2 + (seq - reach) * reach;
  }
  int64_t parameters() const {
    return layers * (hidden * (qkv() + 3 * ffn + 2) + heads * head_dim * hidden) +
           2 * vocab * hidden + hidden;
  }
};
constexpr Model kLlama8b{32, 4096, 32, 8, 128, 14336, 128256, 8192, 1, 0};

struct Options {
  std::string backend = "cpu", json;
  Model model;
  std::vector<DType> dtypes;
  int64_t window = 0;
  int threads = 0;
};

/// One kernel at one shape: how often a step calls it, and what a call costs in arithmetic and
/// memory traffic.
struct Row {
  std::string name;
  double calls, flop, bytes;
  std::function<void()> run;
  Node torch;  // the corresponding PyTorch operation; undefined: none
  double seconds = 0;
};

Node shape(const char* op, std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  Node out = make_map({{"op", Node::string(op)}});
  for (auto [key, size] : sizes) out.set(key, Node::integer(size));
  return out;
}

class Suite {
 public:
  Suite(const Options& options, Backend& backend, DType dtype)
      : m_(options.model),
        dtype_(dtype),
        size_(static_cast<double>(size_of(dtype))),
        asynchronous_(options.backend != "cpu"),
        ctx_(backend) {
    roofline_ = measure_roofline(ctx_, dtype);
    gemms();
    attention();
    rows();
    elements();
    for (Row& row : rows_)
      row.seconds = median_seconds(
          row.run, [&] { ctx_.stream().synchronize(); }, asynchronous_ ? 2e-3 : 0,
          asynchronous_ ? 0.05 : 0.3);
  }
  void print() const;
  Node to_node() const;

 private:
  const KernelTable& k() const { return ctx_.kernels(); }
  Stream& stream() { return ctx_.stream(); }
  Tensor kept(Tensor t) {
    tensors_.push_back(t);
    return t;
  }
  /// Small random values, so that nothing overflows: one block of them, repeated.
  Tensor random(int64_t count, DType dtype) {
    constexpr int64_t kPiece = 1 << 20;
    if (!piece_.defined()) {
      std::vector<float> values(kPiece);
      RngStream rng(1, "bench");
      for (size_t i = 0; i < values.size(); ++i) values[i] = rng.uniform(i) - 0.5f;
      piece_ = ctx_.from_host<float>(values, {kPiece});
    }
    Tensor out = kept(ctx_.empty({count}, dtype));
    for (int64_t i = 0; i < count; i += kPiece) {
      int64_t n = std::min(kPiece, count - i);
      ctx_.copy(out.slice(0, i, i + n), piece_.slice(0, 0, n));
    }
    return out;
  }
  Tensor random(int64_t count) { return random(count, dtype_); }
  float* floats(int64_t count) { return random(count, DType::f32).data<float>(); }
  void add(std::string name, double calls, double flop, double bytes, std::function<void()> run,
           Node torch = {}) {
    rows_.push_back({std::move(name), calls, flop, bytes, std::move(run), std::move(torch)});
  }

  void gemm(const std::string& name, double calls, int64_t m, int64_t n, int64_t k, bool ta,
            bool tb, bool grad);
  void linear(const std::string& name, double calls, int64_t out, int64_t in);
  void gemms();
  void attention();
  void rows();
  void losses();
  void elements();
  void optimizer();
  double least(const Row& r) const {
    return std::max(roofline_.flops > 0 ? r.flop / roofline_.flops : 0,
                    roofline_.bandwidth > 0 ? r.bytes / roofline_.bandwidth : 0);
  }

  Model m_;
  DType dtype_;
  double size_;
  bool asynchronous_;
  ExecutionContext ctx_;
  Roofline roofline_;
  Tensor piece_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<int32_t>> bounds_;
  std::vector<double> norms_ = std::vector<double>(1);
  std::vector<Row> rows_;
};

void Suite::gemm(const std::string& name, double calls, int64_t m, int64_t n, int64_t k, bool ta,
                 bool tb, bool grad) {
  GemmArgs g;
  g.a = random(m * k).raw(), g.b = random(n * k).raw(),
  g.c = grad ? floats(m * n) : random(m * n).raw();
  g.transpose_a = ta, g.transpose_b = tb, g.m = m, g.n = n, g.k = k;
  g.lda = ta ? m : k, g.ldb = tb ? k : n, g.ldc = n, g.beta = grad ? 1 : 0;
  g.dtype = dtype_, g.c_dtype = grad ? DType::f32 : dtype_;
  double mnk = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  double moved =
      size_ * static_cast<double>(m * k + n * k) + static_cast<double>(m * n) * (grad ? 8 : size_);
  add(
      name, calls, 2 * mnk, moved, [this, g] { this->k().gemm(stream(), g); },
      shape(ta   ? "tn"
            : tb ? "nt"
                 : "nn",
            {{"m", m}, {"n", n}, {"k", k}}));
}
void Suite::linear(const std::string& name, double calls, int64_t out, int64_t in) {
  int64_t t = m_.tokens();
  gemm(name + " forward", calls, t, out, in, false, true, false);
  gemm(name + " dgrad", calls, t, in, out, false, false, false);
  gemm(name + " wgrad", calls, out, in, t, true, false, true);
}
void Suite::gemms() {
  auto layers = static_cast<double>(m_.layers);
  linear("qkv", layers, m_.qkv(), m_.hidden);
  linear("attention out", layers, m_.hidden, m_.heads * m_.head_dim);
  linear("gate, up", 2 * layers, m_.ffn, m_.hidden);
  linear("down", layers, m_.hidden, m_.ffn);
  linear("head", 1, m_.vocab, m_.hidden);
}

void Suite::attention() {
  int64_t t = m_.tokens(), e = m_.head_dim, q = m_.heads * e, kv = m_.groups * e,
          stride = q + 2 * kv;
  std::vector<int32_t>& seqlens = bounds_.emplace_back();
  std::vector<int32_t> places;
  for (int64_t b = 0; b <= m_.batch; ++b) seqlens.push_back(static_cast<int32_t>(b * m_.seq));
  for (int64_t i = 0; i < t; ++i) places.push_back(static_cast<int32_t>(i % m_.seq));
  Tensor positions = kept(ctx_.from_host<int32_t>(places, {t}));
  auto at = [&](const Tensor& base, int64_t i) {
    return static_cast<void*>(static_cast<std::byte*>(base.raw()) +
                              static_cast<size_t>(i) * size_of(dtype_));
  };
  Tensor qkv = random(t * stride), d_qkv = random(t * stride);
  AttentionArgs a{};
  int64_t per_group = m_.heads / m_.groups;
  a.q = {qkv.raw(), stride, per_group * e}, a.k = {at(qkv, q), stride, e},
  a.v = {at(qkv, q + kv), stride, e};
  a.o = random(t * q).raw(), a.lse = floats(t * m_.heads), a.cu_seqlens = seqlens.data();
  a.sequences = m_.batch, a.tokens = t, a.heads = m_.heads, a.groups = m_.groups, a.head_dim = e;
  a.scale = 1 / std::sqrt(static_cast<float>(e)), a.causal = true, a.dtype = dtype_;
  a.window = m_.window;
  AttentionBackwardArgs b{};
  b.forward = a, b.d_o = random(t * q).raw();
  b.dq = {d_qkv.raw(), stride, per_group * e}, b.dk = {at(d_qkv, q), stride, e},
  b.dv = {at(d_qkv, q + kv), stride, e};
  double pairs = static_cast<double>(m_.batch * m_.heads * e) * static_cast<double>(m_.pairs());
  auto layers = static_cast<double>(m_.layers),
       moved = size_ * static_cast<double>(t * (stride + q));
  auto sizes = [&](const char* op) {
    if (m_.window > 0) return Node();
    return shape(op, {{"batch", m_.batch},
                      {"heads", m_.heads},
                      {"groups", m_.groups},
                      {"seq", m_.seq},
                      {"head_dim", e}});
  };
  k().attention(stream(), a);
  add(
      "attention", layers, 4 * pairs, moved, [this, a] { k().attention(stream(), a); },
      sizes("attention"));
  add(
      "attention backward", layers, 10 * pairs, 2.5 * moved,
      [this, b] { k().attention_backward(stream(), b); }, sizes("attention_backward"));
  RopeArgs r{qkv.raw(),
             positions.data<int32_t>(),
             floats(m_.seq * e / 2),
             floats(m_.seq * e / 2),
             t,
             m_.groups,
             per_group,
             e,
             e,
             stride,
             per_group * e,
             false,
             dtype_};
  add("rope of q", 2 * layers, 0, 2 * size_ * static_cast<double>(t * q),
      [this, r] { k().rope(stream(), r); });
}

void Suite::rows() {
  int64_t t = m_.tokens(), d = m_.hidden;
  auto count = static_cast<double>(t * d), norms = static_cast<double>(2 * m_.layers + 1);
  void *x = random(t * d).raw(), *w = random(d).raw(), *y = random(t * d).raw(),
       *dy = random(t * d).raw();
  float *stat = floats(t), *mean = floats(t), *dw = floats(d);
  RmsNormArgs f{x, w, y, stat, t, d, 1e-5f, dtype_};
  k().rms_norm(stream(), f);
  add(
      "rms_norm", norms, 0, 2 * size_ * count, [this, f] { k().rms_norm(stream(), f); },
      shape("rms_norm", {{"rows", t}, {"cols", d}}));
  RmsNormBackwardArgs b{dy, x, w, stat, y, dw, t, d, true, true, dtype_};
  add(
      "rms_norm backward", norms, 0, 4 * size_ * count,
      [this, b] { k().rms_norm_backward(stream(), b); },
      shape("rms_norm_backward", {{"rows", t}, {"cols", d}}));
  LayerNormArgs l{x, w, w, y, mean, stat, t, d, 1e-5f, dtype_};
  add(
      "layer_norm", 0, 0, 2 * size_ * count, [this, l] { k().layer_norm(stream(), l); },
      shape("layer_norm", {{"rows", t}, {"cols", d}}));
  ColumnSumArgs s{x, dw, t, d, true, dtype_};
  add("column_sum", 0, 0, size_ * count, [this, s] { k().column_sum(stream(), s); });
  losses();
}

void Suite::losses() {
  int64_t t = m_.tokens(), d = m_.hidden, v = m_.vocab;
  auto count = static_cast<double>(t * d);
  void *logits = random(t * v).raw(), *dy = random(t * d).raw(), *y = random(t * d).raw();
  float *loss = floats(t), *lse = floats(t);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < t; ++i) chosen.push_back(static_cast<int32_t>(i * 31 % (v - 3)));
  const int32_t* ids = kept(ctx_.from_host<int32_t>(chosen, {t})).data<int32_t>();
  CrossEntropyArgs c{logits, ids, loss, lse, t, v, v - 3, dtype_};
  k().cross_entropy(stream(), c);
  add(
      "cross_entropy", 1, 0, size_ * static_cast<double>(t * v),
      [this, c] { k().cross_entropy(stream(), c); },
      shape("cross_entropy", {{"rows", t}, {"cols", v}}));
  CrossEntropyBackwardArgs cb{loss, logits, ids, lse, random(t * v).raw(), t, v, v - 3, dtype_};
  add("cross_entropy backward", 1, 0, 2 * size_ * static_cast<double>(t * v),
      [this, cb] { k().cross_entropy_backward(stream(), cb); });
  EmbeddingArgs e{random(v * d).raw(), ids, y, t, v, d, dtype_};
  add("embedding", 1, 0, 2 * size_ * count, [this, e] { k().embedding(stream(), e); });
  EmbeddingBackwardArgs eb{dy, ids, floats(v * d), t, v, d, dtype_};
  add("embedding backward", 1, 0, (size_ + 8) * count,
      [this, eb] { k().embedding_backward(stream(), eb); });
}

void Suite::elements() {
  int64_t n = m_.tokens() * m_.ffn, d = m_.tokens() * m_.hidden;
  auto layers = static_cast<double>(m_.layers), count = static_cast<double>(n),
       wide = static_cast<double>(d);
  void *a = random(n).raw(), *b = random(n).raw(), *c = random(n).raw(), *y = random(n).raw(),
       *z = random(n).raw();
  SiluMulArgs s{a, b, y, n, dtype_};
  add(
      "silu_mul", layers, 0, 3 * size_ * count, [this, s] { k().silu_mul(stream(), s); },
      shape("silu_mul", {{"count", n}}));
  SiluMulBackwardArgs sb{c, a, b, y, z, n, dtype_};
  add("silu_mul backward", layers, 0, 5 * size_ * count,
      [this, sb] { k().silu_mul_backward(stream(), sb); });
  for (GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    std::string name = kind == GeluKind::erf ? "gelu erf" : "gelu tanh";
    GeluArgs g{a, y, n, kind, dtype_};
    add(name, 0, 0, 2 * size_ * count, [this, g] { k().gelu(stream(), g); });
    GeluBackwardArgs gb{c, a, y, n, kind, false, dtype_};
    add(name + " backward", 0, 0, 3 * size_ * count,
        [this, gb] { k().gelu_backward(stream(), gb); });
    GeluMulArgs gate{a, b, y, n, kind, dtype_};
    add(name + " gate", 0, 0, 3 * size_ * count, [this, gate] { k().gelu_mul(stream(), gate); });
    GeluMulBackwardArgs gate_back{c, a, b, y, z, n, kind, dtype_};
    add(name + " gate backward", 0, 0, 5 * size_ * count,
        [this, gate_back] { k().gelu_mul_backward(stream(), gate_back); });
  }
  ReluArgs relu{a, y, n, ReluKind::squared, dtype_};
  add("relu squared", 0, 0, 2 * size_ * count, [this, relu] { k().relu(stream(), relu); });
  AddArgs sum{a, b, y, d, dtype_};
  add(
      "add", 2 * layers, 0, 3 * size_ * wide, [this, sum] { k().add(stream(), sum); },
      shape("add", {{"count", d}}));
  DropoutArgs drop{a, y, d, 0, 1, 2, 3, 0.1f, dtype_};
  add("dropout", 0, 0, 2 * size_ * wide, [this, drop] { k().dropout(stream(), drop); });
  if (dtype_ != DType::f32) {
    CastArgs narrow{floats(d), y, d, 1, false, DType::f32, dtype_},
        widen{a, floats(d), d, 1, false, dtype_, DType::f32};
    add("cast from fp32", 0, 0, (size_ + 4) * wide, [this, narrow] { k().cast(stream(), narrow); });
    add("cast to fp32", 0, 0, (size_ + 4) * wide, [this, widen] { k().cast(stream(), widen); });
  }
  optimizer();
}

void Suite::optimizer() {
  constexpr int64_t kMost = int64_t{1} << 28;  // a part represents a model that would not fit
  int64_t p = std::min(m_.parameters(), kMost);
  double calls = static_cast<double>(m_.parameters()) / static_cast<double>(p),
         count = static_cast<double>(p);
  float *grad = floats(p), *param = floats(p), *m = floats(p), *v = floats(p);
  ctx_.fill_zero(tensors_.back());
  AdamWArgs o{param, grad,  m,     v,     dtype_ == DType::f32 ? nullptr : random(p).raw(),
              p,     1e-3f, 0.9f,  0.95f, 1e-8f,
              0.1f,  0.1f,  0.05f, 1,     dtype_};
  add(
      "adamw", calls, 0, (28 + (dtype_ == DType::f32 ? 0 : size_)) * count,
      [this, o] { k().adamw(stream(), o); }, shape("adamw", {{"count", p}}));
  SquaredNormArgs q{grad, p, norms_.data()};
  add("squared_norm", calls, 0, 4 * count, [this, q] { k().squared_norm(stream(), q); });
  CastArgs cast{grad, param, p, 1, true, DType::f32, DType::f32};
  add("cast (accumulate fp32)", 0, 0, 12 * count, [this, cast] { k().cast(stream(), cast); });
}

void Suite::print() const {
  double step = 0, flop = 0;
  for (const Row& row : rows_) step += row.calls * row.seconds, flop += row.calls * row.flop;
  std::printf(
      "%s, %lld tokens, %.2f M parameters; peak rates measured: %.0f GFLOP/s, %.0f GB/s\n"
      "%-24s %10s %10s %8s %11s %8s %7s\n",
      name(dtype_), static_cast<long long>(m_.tokens()),
      static_cast<double>(m_.parameters()) * 1e-6, roofline_.flops * 1e-9,
      roofline_.bandwidth * 1e-9, "kernel", "us", "GFLOP/s", "GB/s", "of roofline", "calls",
      "share");
  for (const Row& r : rows_)
    std::printf("%-24s %10.1f %10.1f %8.1f %10.1f%% %8.0f %6.1f%%\n", r.name.c_str(),
                r.seconds * 1e6, r.flop / r.seconds * 1e-9, r.bytes / r.seconds * 1e-9,
                100 * least(r) / r.seconds, r.calls, 100 * r.calls * r.seconds / step);
  std::printf("sum of one step %.2f ms, %.0f tokens/s, %.1f GFLOP/s\n\n", step * 1e3,
              static_cast<double>(m_.tokens()) / step, flop / step * 1e-9);
}

Node Suite::to_node() const {
  Node kernels = Node::list();
  for (const Row& r : rows_)
    kernels.push(make_map({{"kernel", Node::string(r.name)},
                           {"us", Node::number(1e6 * r.seconds)},
                           {"tflops", Node::number(1e-12 * r.flop / r.seconds)},
                           {"gb_per_second", Node::number(1e-9 * r.bytes / r.seconds)},
                           {"share_of_roofline", Node::number(least(r) / r.seconds)},
                           {"calls", Node::number(r.calls)},
                           {"torch", r.torch}}));
  return make_map({{"dtype", Node::string(name(dtype_))},
                   {"backend", Node::string(std::string(ctx_.backend().name()))},
                   {"tokens", Node::integer(m_.tokens())},
                   {"peak_tflops", Node::number(1e-12 * roofline_.flops)},
                   {"peak_gb_per_second", Node::number(1e-9 * roofline_.bandwidth)},
                   {"kernels", std::move(kernels)}});
}

Model model_of(const std::string& text) {
  if (text == "quickstart") return {};
  if (text == "llama8b") return kLlama8b;
  Model m;
  int64_t* sizes[] = {&m.layers, &m.hidden, &m.heads, &m.groups, &m.head_dim,
                      &m.ffn,    &m.vocab,  &m.seq,   &m.batch};
  const char* at = text.c_str();
  for (int64_t* size : sizes) {
    char* end = nullptr;
    *size = std::strtoll(at, &end, 10);
    MT_USER_CHECK(end != at && *size > 0, ErrorClass::usage,
                  cat("--model: '", text, "' is not a model"),
                  "quickstart, llama8b, or nine sizes: "
                  "layers,hidden,heads,groups,head_dim,ffn,vocab,seq,batch");
    at = *end == ',' ? end + 1 : end;
  }
  return m;
}

Options parse(int argc, char** argv) {
  Options out;
  for (int i = 1; i < argc; ++i) {
    std::string key = argv[i];
    MT_USER_CHECK(i + 1 < argc, ErrorClass::usage, cat(key, " needs a value"),
                  "see the top of tools/bench/kernels.cc");
    std::string value = argv[++i];
    if (key == "--backend")
      out.backend = value;
    else if (key == "--model")
      out.model = model_of(value);
    else if (key == "--json")
      out.json = value;
    else if (key == "--window")
      out.window = std::atoll(value.c_str());
    else if (key == "--threads")
      out.threads = std::atoi(value.c_str());
    else if (key == "--dtype") {
      auto dtype = dtype_from_name(value);
      MT_USER_CHECK(dtype && is_floating(*dtype), ErrorClass::usage, cat("--dtype: '", value, "'"),
                    "fp32, bf16 or fp16");
      out.dtypes.push_back(*dtype);
    } else {
      throw Error(ErrorClass::usage, cat("unknown option '", key, "'"),
                  "--backend, --model, --dtype, --window, --threads, --json");
    }
  }
  out.model.window = out.window;
  if (out.dtypes.empty()) out.dtypes = {DType::f32, DType::bf16};
  return out;
}

void bench(const Options& options) {
  // In a build tree and in a bundle the plugins are next to bin/ or two folders up.
  fs::path here = program_directory();
  std::vector<fs::path> folders;
  for (const char* place : {"../lib/mtrain/plugins", "../../lib/mtrain/plugins"})
    if (fs::exists(here / place)) folders.push_back(here / place);
  PluginHost plugins(folders);
  std::unique_ptr<Backend> backend;
  if (options.backend == "cpu") {
    backend = make_cpu_backend(options.threads);
  } else {
    BackendContext context;
    auto made = plugins.make<DeviceBackend>(options.backend, Node::map(), context);
    Probe probe = made->probe();
    MT_USER_CHECK(probe.devices > 0, ErrorClass::config,
                  cat("--backend ", options.backend, ": ", probe.reason), made->remedy());
    std::printf("%s\n", made->describe().front().c_str());
    backend = std::move(made);
  }
  Node all = Node::list();
  for (DType dtype : options.dtypes) {
    Suite suite(options, *backend, dtype);
    suite.print();
    all.push(suite.to_node());
  }
  if (!options.json.empty()) write_file_atomic(options.json, write_json(all) + "\n");
}

}  // namespace
}  // namespace mtrain::bench

int main(int argc, char** argv) {
  try {
    mtrain::bench::bench(mtrain::bench::parse(argc, argv));
  } catch (const mtrain::Error& error) {
    std::fprintf(stderr, "bench_kernels: %s\n  %s\n", error.message().c_str(),
                 error.hint().c_str());
    return static_cast<int>(error.error_class());
  }
  return 0;
}
