// The CPU's kernels, for one instruction-set level. The order of sums is that of 16 lanes at every
// level.
#include <cmath>
#include <type_traits>

#include "cpu_levels.h"
#include "formulas.h"
#include "mtrain/cpu/kernels/launch.h"

namespace mtrain::optimizer_kernels::MT_ISA {
namespace {

using cpu::MT_ISA::kElementBlock;
using cpu::MT_ISA::SerialTeam;

const cpu::CpuStream& stream_of(void* queue) {
  return cpu::cpu_stream(*static_cast<Stream*>(queue));
}

/// Calls f with a pointer of the type of `dtype` to `to`, or a void* if that is null.
template <class F>
void with_target(void* to, DType dtype, F&& f) {
  if (!to) return f(static_cast<void*>(nullptr));
  if (dtype == DType::bf16) return f(static_cast<bf16*>(to));
  if (dtype == DType::f16) return f(static_cast<f16*>(to));
  f(static_cast<float*>(to));
}

template <class T>
void put(T* to, int64_t at, float value) {
  if constexpr (!std::is_void_v<T>) to[at] = T(value);
}

template <class Args>
const char* each(void* queue, const Args& args) {
  with_target(args.value, args.value_dtype, [&](auto* value) {
    cpu::MT_ISA::for_blocks(
        stream_of(queue), args.count, kElementBlock, [&](int64_t begin, int64_t end) {
          const Args own = args;  // its members need not be read again
          auto* const to = value;
          SerialTeam{}.each(end - begin,
                            [&](int64_t j) { put(to, begin + j, apply(own, begin + j)); });
        });
  });
  return nullptr;
}

/// Calls f(first, at, count) for ranges of the matrix: elements first, first + 1, … of the matrix
/// are at, at + 1, … of the parameter.
template <class F>
void for_pieces(const cpu::CpuStream& stream, const Pieces& p, F&& f) {
  const int64_t blocks = (p.piece + kElementBlock - 1) / kElementBlock;
  cpu::MT_ISA::for_tasks(stream, p.pieces * blocks, [&](int64_t task) {
    const int64_t piece = task / blocks, begin = task % blocks * kElementBlock,
                  end = begin + kElementBlock < p.piece ? begin + kElementBlock : p.piece;
    f(piece * p.piece + begin, piece * p.stride + begin, end - begin);
  });
}

const char* find_direction(void* queue, const DirectionArgs& args) {
  with_target(args.x, args.x_dtype, [&](auto* x) {
    for_pieces(stream_of(queue), args.pieces, [&](int64_t first, int64_t at, int64_t count) {
      const DirectionArgs own = args;
      auto* const to = x;
      SerialTeam{}.each(count, [&](int64_t j) { put(to, first + j, direction(own, at + j)); });
    });
  });
  return nullptr;
}

template <class T>
float squares(const T* x, int64_t count) {
  constexpr int64_t kLanes = 16;
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      const auto v = static_cast<float>(x[i + j]);
      lane[j] += v * v;
    }
  for (int64_t j = 0; i + j < count; ++j) {
    const auto v = static_cast<float>(x[i + j]);
    lane[j] += v * v;
  }
  float sum = 0;
  for (float part : lane) sum += part;
  return sum;
}

const char* normalize(void* queue, const NormalizeArgs& args) {
  const cpu::CpuStream& stream = stream_of(queue);
  with_target(args.x, args.x_dtype, [&](auto* x) {
    if constexpr (!std::is_void_v<std::remove_pointer_t<decltype(x)>>) {
      using T = std::remove_pointer_t<decltype(x)>;
      cpu::MT_ISA::for_tasks(stream, kPartials, [&](int64_t k) {
        const int64_t begin = args.count * k / kPartials, end = args.count * (k + 1) / kPartials;
        args.partials[k] = squares(x + begin, end - begin);
      });
      float sum = 0;
      for (int k = 0; k < kPartials; ++k) sum += args.partials[k];
      const float norm = std::sqrt(sum), factor = 1 / (norm > args.eps ? norm : args.eps);
      cpu::MT_ISA::for_blocks(stream, args.count, kElementBlock, [&](int64_t begin, int64_t end) {
        T* const part = x + begin;
        const float by = factor;
        SerialTeam{}.each(end - begin,
                          [&](int64_t j) { part[j] = T(by * static_cast<float>(part[j])); });
      });
    }
  });
  return nullptr;
}

template <class X, class V>
void take_step(const cpu::CpuStream& stream, const StepArgs& args, const X* x, V* value) {
  for_pieces(stream, args.pieces, [&](int64_t first, int64_t at, int64_t count) {
    const StepArgs own = args;
    const X* const from = x;
    V* const to = value;
    SerialTeam{}.each(count, [&](int64_t j) {
      put(to, at + j, stepped(own, at + j, static_cast<float>(from[first + j])));
    });
  });
}

const char* step(void* queue, const StepArgs& args) {
  const cpu::CpuStream& stream = stream_of(queue);
  with_target(args.value, args.value_dtype, [&](auto* value) {
    if (args.x_dtype == DType::bf16)
      take_step(stream, args, static_cast<const bf16*>(args.x), value);
    else
      take_step(stream, args, static_cast<const float*>(args.x), value);
  });
  return nullptr;
}

}  // namespace

const Kernels kTable = {each<SgdArgs>, each<LionArgs>, find_direction, normalize, step};

}  // namespace mtrain::optimizer_kernels::MT_ISA
