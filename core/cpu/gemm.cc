#include "mtrain/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/cpu/cpu_stream.h"

namespace mtrain::cpu {

namespace {

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    default:
      return dnnl::memory::data_type::f16;
  }
}

/// A [rows, cols] matrix (or a batch) whose rows are `ld` apart, or whose columns are when it is stored
/// transposed.
dnnl::memory::desc matrix(DType dtype, int64_t rows, int64_t cols, int64_t ld, bool transposed, int64_t batch,
                          int64_t batch_stride) {
  dnnl::memory::dims dims = {rows, cols},
                     strides = transposed ? dnnl::memory::dims{1, ld} : dnnl::memory::dims{ld, 1};
  if (batch > 1) {
    dims.insert(dims.begin(), batch_stride == 0 ? 1 : batch);
    strides.insert(strides.begin(), std::max<int64_t>(batch_stride, 1));
  }
  return {dims, data_type(dtype), strides};
}

}  // namespace

struct GemmPrimitive {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratchpad, alpha;
  dnnl::stream queue;
  size_t scratch_bytes = 0;
  uint64_t used = 0;
  bool usable() const { return static_cast<bool>(primitive); }
};

namespace {

void compile(GemmPrimitive& out, const GemmCache::Key& k) {
  auto a = matrix(k.dtype, k.m, k.k, k.lda, k.transpose_a, k.batch, k.stride_a);
  auto b = matrix(k.dtype, k.k, k.n, k.ldb, k.transpose_b, k.batch, k.stride_b);
  auto c = matrix(k.c_dtype, k.m, k.n, k.ldc, false, k.batch, k.stride_c);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (k.scaled) attributes.set_output_scales(0, {DNNL_RUNTIME_F32_VAL});
  if (k.beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(k.beta);
    attributes.set_post_ops(sum);
  }
  dnnl::memory::dims one_row = {1, k.n}, row_strides = {k.n, 1};
  if (k.batch > 1) one_row.insert(one_row.begin(), 1), row_strides.insert(row_strides.begin(), k.n);
  dnnl::memory::desc bias(one_row, data_type(k.bias_dtype), row_strides);
  auto desc = k.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  dnnl::matmul::primitive_desc chosen(desc, attributes, cpu_engine(), true);
  if (!chosen) return;
  out.primitive = dnnl::matmul(chosen);
  out.scratch_bytes = chosen.scratchpad_desc().get_size();
  out.queue = dnnl::stream(cpu_engine());
  out.a = dnnl::memory(a, cpu_engine(), DNNL_MEMORY_NONE);
  out.b = dnnl::memory(b, cpu_engine(), DNNL_MEMORY_NONE);
  out.c = dnnl::memory(c, cpu_engine(), DNNL_MEMORY_NONE);
  if (k.bias) out.bias = dnnl::memory(bias, cpu_engine(), DNNL_MEMORY_NONE);
  if (k.scaled)
    out.alpha = dnnl::memory({{1}, dnnl::memory::data_type::f32, dnnl::memory::dims{1}}, cpu_engine(), DNNL_MEMORY_NONE);
  out.scratchpad = dnnl::memory(chosen.scratchpad_desc(), cpu_engine(), DNNL_MEMORY_NONE);
}

/// oneDNN splits work by the calling thread's OpenMP setting, both when it compiles and when it runs a
/// primitive.
class ThreadSetting {
 public:
  explicit ThreadSetting(int threads) : before_(omp_get_max_threads()) {
    if (before_ != threads) omp_set_num_threads(threads);
  }
  ~ThreadSetting() { omp_set_num_threads(before_); }
  ThreadSetting(const ThreadSetting&) = delete;
  ThreadSetting& operator=(const ThreadSetting&) = delete;

 private:
  int before_;
};

void* offset(void* base, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * static_cast<int64_t>(size_of(dtype));
}
const void* offset(const void* base, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + elements * static_cast<int64_t>(size_of(dtype));
}

size_t round_up(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void cast(Stream& stream, const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count,
          float scale = 1, bool accumulate = false) {
  cpu_stream(stream).kernels().cast(stream, {src, dst, count, scale, accumulate, src_dtype, dst_dtype});
}

/// Copies rows between layouts, converting.
void cast_rows(Stream& stream, const void* src, DType src_dtype, int64_t src_ld, void* dst, DType dst_dtype,
               int64_t dst_ld, int64_t rows, int64_t cols) {
  if (src_ld == cols && dst_ld == cols) return cast(stream, src, src_dtype, dst, dst_dtype, rows * cols);
  for (int64_t r = 0; r < rows; ++r)
    cast(stream, offset(src, r * src_ld, src_dtype), src_dtype, offset(dst, r * dst_ld, dst_dtype), dst_dtype,
         cols);
}

GemmCache::Key key_of(const GemmArgs& g) {
  bool batched = g.batch > 1;
  return {g.m,
          g.n,
          g.k,
          g.lda,
          g.ldb,
          g.ldc,
          g.batch,
          batched ? g.stride_a : 0,
          batched ? g.stride_b : 0,
          batched ? g.stride_c : 0,
          g.beta,
          g.alpha != 1,
          g.transpose_a,
          g.transpose_b,
          g.dtype,
          g.c_dtype,
          g.bias ? g.bias_dtype : DType::f32,
          g.bias != nullptr};
}

/// C = beta*C + bias: what is left without a product.
void without_product(Stream& stream, const GemmArgs& g) {
  auto& cpu = cpu_stream(stream);
  auto row = reinterpret_cast<float*>(cpu.scratch(sizeof(float) * 2 * static_cast<size_t>(g.n)));
  float* bias = row + g.n;
  if (g.bias)
    cast(stream, g.bias, g.bias_dtype, bias, DType::f32, g.n);
  else
    std::memset(bias, 0, sizeof(float) * static_cast<size_t>(g.n));
  for (int64_t b = 0; b < g.batch; ++b)
    for (int64_t r = 0; r < g.m; ++r) {
      void* c = offset(g.c, b * g.stride_c + r * g.ldc, g.c_dtype);
      std::memcpy(row, bias, sizeof(float) * static_cast<size_t>(g.n));
      if (g.beta != 0) cast(stream, c, g.c_dtype, row, DType::f32, g.n, g.beta, true);
      cast(stream, row, DType::f32, c, g.c_dtype, g.n);
    }
}

/// Runs a usable primitive.
void run_primitive(const GemmArgs& g, GemmPrimitive& p, std::byte* scratch) {
  auto set = [](dnnl::memory& memory, const void* data) { memory.set_data_handle(const_cast<void*>(data)); };
  set(p.a, g.a);
  set(p.b, g.b);
  set(p.c, g.c);
  set(p.scratchpad, scratch);
  dnnl_exec_arg_t args[6] = {{DNNL_ARG_SRC, p.a.get()},
                             {DNNL_ARG_WEIGHTS, p.b.get()},
                             {DNNL_ARG_DST, p.c.get()},
                             {DNNL_ARG_SCRATCHPAD, p.scratchpad.get()},
                             {},
                             {}};
  int count = 4;
  if (g.bias) {
    set(p.bias, g.bias);
    args[count++] = {DNNL_ARG_BIAS, p.bias.get()};
  }
  if (g.alpha != 1) {
    set(p.alpha, &g.alpha);
    args[count++] = {DNNL_ARG_ATTR_OUTPUT_SCALES, p.alpha.get()};
  }
  dnnl_status_t status = dnnl_primitive_execute(p.primitive.get(), p.queue.get(), count, args);
  MT_CHECK(status == dnnl_success, "oneDNN matmul failed with status ", static_cast<int>(status));
}

/// With a transposed A and many terms, oneDNN on more threads adds them up in another order. So such products
/// are cut into consecutive calls of this many terms, in which it does not (seen for up to 32 threads).
constexpr int64_t kMaxTerms = 1024;
int64_t terms_per_call(const GemmArgs& g) {
  return g.transpose_a ? std::min(g.k, kMaxTerms) : g.k;
}

/// Calls f with each of the calls that make one product.
template <class F>
void each_call(const GemmArgs& g, F&& f) {
  int64_t step = terms_per_call(g);
  for (int64_t p = 0; p < g.k; p += step) {
    GemmArgs part = g;
    part.k = std::min(step, g.k - p);
    part.a = offset(g.a, p * g.lda, g.dtype);
    part.b = offset(g.b, p * (g.transpose_b ? 1 : g.ldb), g.dtype);
    if (p > 0) {
      part.beta = 1;
      part.bias = nullptr;
    }
    f(part);
  }
}

/// Scratch memory that a product's calls need, absent when oneDNN has no implementation on this CPU.
std::optional<size_t> scratch_for(GemmCache& cache, const GemmArgs& g) {
  size_t bytes = 0;
  bool usable = true;
  each_call(g, [&](const GemmArgs& part) {
    const GemmPrimitive& primitive = cache.find(key_of(part));
    usable = usable && primitive.usable();
    bytes = std::max(bytes, primitive.scratch_bytes);
  });
  return usable ? std::optional(bytes) : std::nullopt;
}

void run(GemmCache& cache, const GemmArgs& g, std::byte* scratch) {
  each_call(g, [&](const GemmArgs& part) { run_primitive(part, cache.find(key_of(part)), scratch); });
}

constexpr int64_t kPanelRows = 1024;

/// Converts to float panels, multiplies, converts back: for types without an implementation of their own. A
/// and C go through in panels of rows, B whole.
void through_float(Stream& stream, const GemmArgs& g) {
  auto& cpu = cpu_stream(stream);
  int64_t panel = std::min(g.m, kPanelRows);
  bool convert_c = g.c_dtype != DType::f32;
  size_t a_bytes = round_up(sizeof(float) * static_cast<size_t>(panel * g.k)),
         b_bytes = round_up(sizeof(float) * static_cast<size_t>(g.n * g.k)),
         c_bytes = convert_c ? round_up(sizeof(float) * static_cast<size_t>(panel * g.n)) : 0,
         bias_bytes = g.bias ? round_up(sizeof(float) * static_cast<size_t>(g.n)) : 0;
  GemmArgs f = g;
  f.dtype = f.c_dtype = f.bias_dtype = DType::f32;
  f.batch = 1;
  f.ldb = g.transpose_b ? g.k : g.n;
  if (convert_c) f.ldc = g.n;
  auto with_rows = [&](int64_t rows) {
    f.m = rows;
    f.lda = g.transpose_a ? rows : g.k;
    auto bytes = scratch_for(cpu.gemm(), f);
    MT_CHECK(bytes.has_value(), "oneDNN has no float matmul of ", rows, "x", f.n, "x", f.k);
    return *bytes;
  };
  size_t scratch_bytes = with_rows(panel);
  if (g.m % panel != 0) scratch_bytes = std::max(scratch_bytes, with_rows(g.m % panel));
  std::byte* base = cpu.scratch(a_bytes + b_bytes + c_bytes + bias_bytes + scratch_bytes);
  std::byte *b = base + a_bytes, *c = b + b_bytes, *bias = c + c_bytes, *rest = bias + bias_bytes;
  if (g.bias)
    cast(stream, g.bias, g.bias_dtype, bias, DType::f32, g.n, 1.0f / g.alpha);  // alpha scales the bias too
  f.a = base;
  f.b = b;
  if (g.bias) f.bias = bias;
  for (int64_t i = 0; i < g.batch; ++i) {
    cast_rows(stream, offset(g.b, i * g.stride_b, g.dtype), g.dtype, g.ldb, b, DType::f32, f.ldb,
              g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n);
    for (int64_t row = 0; row < g.m; row += panel) {
      int64_t rows = std::min(panel, g.m - row);
      with_rows(rows);
      const void* a = offset(g.a, i * g.stride_a + (g.transpose_a ? row : row * g.lda), g.dtype);
      cast_rows(stream, a, g.dtype, g.lda, base, DType::f32, f.lda, g.transpose_a ? g.k : rows,
                g.transpose_a ? rows : g.k);
      void* to = offset(g.c, i * g.stride_c + row * g.ldc, g.c_dtype);
      f.c = convert_c ? c : to;
      if (convert_c && g.beta != 0) cast_rows(stream, to, g.c_dtype, g.ldc, c, DType::f32, g.n, rows, g.n);
      run(cpu.gemm(), f, rest);
      if (convert_c) cast_rows(stream, c, DType::f32, g.n, to, g.c_dtype, g.ldc, rows, g.n);
    }
  }
}

/// Where the own kernel was measured to be the faster one (docs/benchmarks/cpu.md): for pairs of bf16, and for floats
/// when the terms are many. Packing does not pay for small products, nor for few rows.
bool packed_is_faster(const GemmArgs& g) {
  constexpr int64_t kSmallest = 1 << 16, kFewRows = 32, kManyTerms = 8192;
  if (g.m < kFewRows || g.m * g.n * g.k < kSmallest) return false;
  return g.dtype == DType::bf16 || (g.dtype == DType::f32 && !g.transpose_a && g.k > kManyTerms);
}

/// The same product added to what C then holds: a copy of the addend.
GemmArgs onto_addend(Stream& stream, GemmArgs g) {
  cast_rows(stream, g.addend, g.c_dtype, g.ldc, g.c, g.c_dtype, g.ldc, g.m, g.n);
  g.addend = nullptr;
  g.beta = 1;
  return g;
}

}  // namespace

GemmCache::GemmCache() = default;
GemmCache::~GemmCache() = default;

GemmPrimitive& GemmCache::find(const Key& key) {
  auto at = entries_.find(key);
  if (at == entries_.end()) {
    if (entries_.size() >= kMaxEntries)
      entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                      [](auto& a, auto& b) { return a.second->used < b.second->used; }));
    auto made = std::make_unique<GemmPrimitive>();
    compile(*made, key);
    at = entries_.emplace(key, std::move(made)).first;
  }
  at->second->used = ++clock_;
  return *at->second;
}

void gemm(Stream& stream, const GemmArgs& args) {
  if (args.scale_a || args.scale_b) {
    GemmArgs scaled = args;
    scaled.scale_a = scaled.scale_b = nullptr;
    scaled.alpha *= (args.scale_a ? *args.scale_a : 1.0f) * (args.scale_b ? *args.scale_b : 1.0f);
    return gemm(stream, scaled);
  }
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  auto& cpu = cpu_stream(stream);
  if (args.addend) {
    MT_CHECK(args.beta == 0 && args.batch == 1, "an addend with beta ", args.beta, " and batch ", args.batch);
    if (args.k > 0 && packed_is_faster(args) && cpu.isa().packed_gemm(stream, args)) return;
    return gemm(stream, onto_addend(stream, args));
  }
  if (args.k == 0 || args.alpha == 0) return without_product(stream, args);
  MT_CHECK(args.batch == 1 || args.stride_c != 0, "batched gemm into one matrix");
  if (packed_is_faster(args) && cpu.isa().packed_gemm(stream, args)) return;
  ThreadSetting threads(cpu.threads());
  auto supported = [](DType d) { return d == DType::f32 || d == DType::bf16; };
  bool direct = supported(args.dtype) && supported(args.c_dtype) &&
                (args.dtype == DType::bf16 || args.c_dtype == DType::f32) &&
                (args.bias == nullptr || (supported(args.bias_dtype) && args.alpha == 1)) &&
                (args.c_dtype == DType::f32 || terms_per_call(args) == args.k);
  std::optional<size_t> scratch_bytes;
  if (direct) scratch_bytes = scratch_for(cpu.gemm(), args);
  if (!scratch_bytes) return through_float(stream, args);
  run(cpu.gemm(), args, cpu.scratch(*scratch_bytes));
}

}  // namespace mtrain::cpu
