// RMSNorm and LayerNorm. Rows are independent; the gradients of the parameters are summed over
// fixed blocks of rows, and the blocks in order.
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/row_blocks.h"
#include "mtrain/kernel/layer_norm.h"
#include "mtrain/kernel/norm_weight.h"
#include "mtrain/kernel/rms_norm.h"

namespace mtrain::cpu::MT_ISA {

void rms_norm(Stream& stream, const RmsNormArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x);
    auto y = static_cast<T*>(args.y);
    with_weight(static_cast<const T*>(args.w), args.offset, [&](auto w) {
      for_blocks(cpu_stream(stream), args.rows, rows_per_task(args.cols),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r)
                     rms_norm_row(SerialTeam{}, x + r * args.cols, w, y + r * args.cols,
                                  args.rstd + r, args.cols, args.eps);
                 });
    });
  });
}

void rms_norm_backward(Stream& stream, const RmsNormBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto dy = static_cast<const T*>(args.dy), x = static_cast<const T*>(args.x);
    auto dx = static_cast<T*>(args.dx);
    RowBlocks blocks(cpu_stream(stream), args.rows, args.cols, args.dw ? 1 : 0);
    with_weight(static_cast<const T*>(args.w), args.offset, [&](auto w) {
      blocks.run([&](int64_t r, float* dw) {
        int64_t at = r * args.cols;
        if (dw) rms_norm_row_dw(SerialTeam{}, dy + at, x + at, args.rstd[r], dw, args.cols);
        if (dx)
          rms_norm_row_backward(SerialTeam{}, dy + at, x + at, w, args.rstd[r], dx + at, args.cols,
                                args.accumulate_dx);
      });
    });
    if (args.dw) blocks.combine(0, args.dw, args.accumulate_dw);
  });
}

void layer_norm(Stream& stream, const LayerNormArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x), b = static_cast<const T*>(args.b);
    auto y = static_cast<T*>(args.y);
    with_weight(static_cast<const T*>(args.w), args.offset, [&](auto w) {
      for_blocks(cpu_stream(stream), args.rows, rows_per_task(args.cols),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r)
                     layer_norm_row(SerialTeam{}, x + r * args.cols, w, b, y + r * args.cols,
                                    args.mean + r, args.rstd + r, args.cols, args.eps);
                 });
    });
  });
}

void layer_norm_backward(Stream& stream, const LayerNormBackwardArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto dy = static_cast<const T*>(args.dy), x = static_cast<const T*>(args.x);
    auto dx = static_cast<T*>(args.dx);
    RowBlocks blocks(cpu_stream(stream), args.rows, args.cols, args.dw || args.db ? 2 : 0);
    with_weight(static_cast<const T*>(args.w), args.offset, [&](auto w) {
      blocks.run([&](int64_t r, float* dw) {
        int64_t at = r * args.cols;
        float mean = args.mean[r], rstd = args.rstd[r];
        if (dw && args.dw)
          layer_norm_row_dw(SerialTeam{}, dy + at, x + at, mean, rstd, dw, args.cols);
        if (dw && args.db)
          SerialTeam{}.each(args.cols,
                            [&](int64_t i) { dw[args.cols + i] += to_float(dy[at + i]); });
        if (dx)
          layer_norm_row_backward(SerialTeam{}, dy + at, x + at, w, mean, rstd, dx + at, args.cols,
                                  args.accumulate_dx);
      });
    });
    if (args.dw) blocks.combine(0, args.dw, args.accumulate_dw);
    if (args.db) blocks.combine(1, args.db, args.accumulate_db);
  });
}

}  // namespace mtrain::cpu::MT_ISA
