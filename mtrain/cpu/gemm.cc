#include "mtrain/cpu/gemm.h"

#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/cpu/cpu_stream.h"

namespace mtrain::cpu {

namespace {

void* offset(void* base, int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * static_cast<int64_t>(size_of(dtype));
}
const void* offset(const void* base, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + elements * static_cast<int64_t>(size_of(dtype));
}

void cast(Stream& stream, const void* src, DType src_dtype, void* dst, DType dst_dtype,
          int64_t count, float scale = 1, bool accumulate = false) {
  cpu_stream(stream).kernels().cast(stream,
                                    {src, dst, count, scale, accumulate, src_dtype, dst_dtype});
}

/// C = beta * C + bias + addend: the result if k or alpha is 0.
void without_product(Stream& stream, const GemmArgs& g) {
  auto row = reinterpret_cast<float*>(
      cpu_stream(stream).scratch(sizeof(float) * 2 * static_cast<size_t>(g.n)));
  float* bias = row + g.n;
  if (g.bias)
    cast(stream, g.bias, g.bias_dtype, bias, DType::f32, g.n);
  else
    std::memset(bias, 0, sizeof(float) * static_cast<size_t>(g.n));
  for (int64_t r = 0; r < g.m; ++r) {
    void* c = offset(g.c, r * g.ldc, g.c_dtype);
    std::memcpy(row, bias, sizeof(float) * static_cast<size_t>(g.n));
    if (g.addend)
      cast(stream, offset(g.addend, r * g.ldc, g.c_dtype), g.c_dtype, row, DType::f32, g.n, 1,
           true);
    if (g.beta != 0) cast(stream, c, g.c_dtype, row, DType::f32, g.n, g.beta, true);
    cast(stream, row, DType::f32, c, g.c_dtype, g.n);
  }
}

void gemm_of_one(Stream& stream, const GemmArgs& g) {
  if (g.k == 0 || g.alpha == 0) return without_product(stream, g);
  cpu_stream(stream).isa().packed_gemm(stream, g);
}

}  // namespace

void gemm(Stream& stream, const GemmArgs& args) {
  GemmArgs g = args;
  g.alpha *= (g.scale_a ? *g.scale_a : 1.0f) * (g.scale_b ? *g.scale_b : 1.0f);
  g.scale_a = g.scale_b = nullptr;
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  for (DType type : {g.dtype, g.c_dtype, g.bias_dtype})
    MT_CHECK(type == DType::f32 || type == DType::bf16 || type == DType::f16, "gemm of ",
             name(type));
  MT_CHECK(!g.addend || (g.beta == 0 && g.batch == 1), "an addend with beta ", g.beta,
           " and batch ", g.batch);
  MT_CHECK(g.batch == 1 || g.stride_c != 0, "batched gemm into one matrix");
  int64_t batch = g.batch;
  g.batch = 1;
  for (int64_t i = 0; i < batch; ++i) {
    GemmArgs one = g;
    one.a = offset(g.a, i * g.stride_a, g.dtype);
    one.b = offset(g.b, i * g.stride_b, g.dtype);
    one.c = offset(g.c, i * g.stride_c, g.c_dtype);
    gemm_of_one(stream, one);
  }
}

}  // namespace mtrain::cpu
