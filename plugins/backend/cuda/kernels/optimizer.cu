// AdamW over many tensors in one launch: the launch passes a table of the tensors, and each block
// finds the tensor to which its number belongs.
#include <algorithm>

#include "mtrain/kernel/adamw.h"
#include "pack.cuh"

namespace mtrain::cuda {

namespace {

constexpr int64_t kBlockElements = 16384;

struct Item {
  AdamWStep step;
  float* param;
  const float* grad;
  float *exp_avg, *exp_avg_sq;
  void* value;
  int64_t count;
  int first_block;
  bool vector;
};
struct Table {
  Item item[kAdamWBatch];
  int items;
};
static_assert(sizeof(Table) <= 4000, "kernels take 4096 bytes of arguments");

template <class V, int N>
__device__ void update(const Item& t, int64_t i) {
  auto p = load<N>(t.param + i), m = load<N>(t.exp_avg + i), v = load<N>(t.exp_avg_sq + i);
  auto g = load<N>(t.grad + i);
  Pack<V, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    adamw_update(t.step, g.item[j], p.item[j], m.item[j], v.item[j]);
    out.item[j] = V(p.item[j]);
  }
  store(t.param + i, p);
  store(t.exp_avg + i, m);
  store(t.exp_avg_sq + i, v);
  if (t.value) store(static_cast<V*>(t.value) + i, out);
}

template <class V>
__global__ void __launch_bounds__(kElementThreads) update_all(const __grid_constant__ Table table) {
  int which = 0;
  while (which + 1 < table.items &&
         static_cast<int>(blockIdx.x) >= table.item[which + 1].first_block)
    ++which;
  const Item& t = table.item[which];
  int64_t begin = (static_cast<int64_t>(blockIdx.x) - t.first_block) * kBlockElements,
          end = min(t.count, begin + kBlockElements);
  int64_t whole = t.vector ? begin + (end - begin) / 4 * 4 : begin;
  for (int64_t i = begin + threadIdx.x * 4; i < whole; i += kElementThreads * 4) update<V, 4>(t, i);
  for (int64_t i = whole + threadIdx.x; i < end; i += kElementThreads) update<V, 1>(t, i);
}

}  // namespace

cudaError_t adamw(const Launch& launch, const AdamWArgs* list, int count) {
  if (count > kAdamWBatch) return cudaErrorInvalidValue;
  Table table{};
  int64_t blocks = 0;
  for (const AdamWArgs* a = list; a != list + count; ++a) {
    if (a->count <= 0) continue;
    table.item[table.items++] = {
        {a->lr, a->beta1, a->beta2, a->eps, a->weight_decay, a->correction1, a->correction2,
         a->grad_scale},
        a->param,
        a->grad,
        a->exp_avg,
        a->exp_avg_sq,
        a->value,
        a->count,
        static_cast<int>(blocks),
        aligned(16, a->param, a->grad, a->exp_avg, a->exp_avg_sq, a->value)};
    blocks += ceil_div(a->count, kBlockElements);
  }
  if (table.items == 0) return cudaSuccess;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  return with_float_type(list->value ? list->value_dtype : DType::f32, [&]<class V>(V) {
    update_all<V><<<static_cast<unsigned>(blocks), kElementThreads, 0, launch.stream>>>(table);
    return cudaGetLastError();
  });
}

}  // namespace mtrain::cuda
