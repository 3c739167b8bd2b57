#include "mtrain/kernel/rope.h"

#include "mtrain/cpu/kernels/launch.h"

namespace mtrain::cpu::MT_ISA {

void rope(Stream& stream, const RopeArgs& args) {
  int64_t half = args.rotary_dim / 2;
  float direction = args.inverse ? -1.0f : 1.0f;
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<T*>(args.x);
    int64_t block = rows_per_task(args.groups * args.heads_per_group * args.rotary_dim);
    for_blocks(cpu_stream(stream), args.tokens, block, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float* cos = args.cos + args.positions[t] * half;
        const float* sin = args.sin + args.positions[t] * half;
        for (int64_t g = 0; g < args.groups; ++g)
          for (int64_t j = 0; j < args.heads_per_group; ++j) {
            T* head = x + t * args.row_stride + g * args.group_stride + j * args.head_dim;
            if (args.interleaved)
              rope_head_interleaved(SerialTeam{}, head, cos, sin, half, direction);
            else
              rope_head(SerialTeam{}, head, cos, sin, half, direction);
          }
      }
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
