#include "mtrain/kernel/cross_entropy.h"

#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/logit_map.h"

namespace mtrain::cpu::MT_ISA {

void cross_entropy(Stream& stream, const CrossEntropyArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto logits = static_cast<const T*>(args.logits);
    with_logits(args.map, [&](auto map) {
      for_blocks(
          cpu_stream(stream), args.rows, rows_per_task(args.cols), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
              const T* row = logits + r * args.cols;
              if (args.part)
                cross_entropy_part_row(SerialTeam{}, row, map, args.targets[r], args.first_col,
                                       args.valid_cols, args.cols, args.loss + r, args.lse + r);
              else
                cross_entropy_row(SerialTeam{}, row, map, args.targets[r], args.valid_cols,
                                  args.loss + r, args.lse + r);
            }
          });
    });
  });
}

void cross_entropy_backward(Stream& stream, const CrossEntropyBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto logits = static_cast<const T*>(args.logits);
    auto d_logits = static_cast<T*>(args.d_logits);
    with_logits(args.map, [&](auto map) {
      for_blocks(
          cpu_stream(stream), args.rows, rows_per_task(args.cols), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r)
              cross_entropy_row_backward(SerialTeam{}, logits + r * args.cols, map, args.targets[r],
                                         args.first_col, args.valid_cols, args.cols, args.lse[r],
                                         args.d_loss[r], d_logits + r * args.cols);
          });
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
