#include "mtrain/kernel/distillation.h"

#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/logit_map.h"

namespace mtrain::cpu::MT_ISA {
namespace {

/// Calls f(row, logarithms, divergence) for every row.
template <class Args, class F>
void each_distilled_row(Stream& stream, const Args& args, F&& f) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto student = static_cast<const T*>(args.logits);
    auto teacher = static_cast<const T*>(args.teacher);
    with_logits(args.map, [&]<class Map>(Map map) {
      with_divergence(args.beta, [&](auto divergence) {
        for_blocks(cpu_stream(stream), args.rows, rows_per_task(args.cols),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = begin; r < end; ++r)
                       f(r,
                         LogProbabilities<T, Map>{
                             student + r * args.cols, teacher + r * args.teacher_cols, map,
                             1 / args.temperature, args.lse[r], args.teacher_lse[r]},
                         divergence);
                   });
      });
    });
  });
}

}  // namespace

void distillation(Stream& stream, const DistillationArgs& args) {
  each_distilled_row(stream, args, [&](int64_t r, const auto& logs, auto divergence) {
    distillation_row(SerialTeam{}, logs, divergence, args.targets[r], args.shared_cols,
                     args.divergence + r, args.mean + r);
  });
}

void distillation_backward(Stream& stream, const DistillationBackwardArgs& args) {
  each_distilled_row(
      stream, args,
      [&]<class T, class Map>(int64_t r, const LogProbabilities<T, Map>& logs, auto divergence) {
        distillation_row_backward(SerialTeam{}, logs, divergence, args.targets[r], args.first_col,
                                  args.shared_cols, args.valid_cols, args.cols, args.token_lse[r],
                                  args.mean[r], args.alpha, args.d_loss[r],
                                  static_cast<T*>(args.d_logits) + r * args.cols);
      });
}

}  // namespace mtrain::cpu::MT_ISA
