#include "mtrain/kernel/embedding.h"

#include <algorithm>

#include "mtrain/cpu/kernels/launch.h"

namespace mtrain::cpu::MT_ISA {

void embedding(Stream& stream, const EmbeddingArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto table = static_cast<const T*>(args.table);
    auto y = static_cast<T*>(args.y);
    for_blocks(
        cpu_stream(stream), args.tokens, rows_per_task(args.cols), [&](int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            int64_t row = args.ids[t] - args.first_row;
            if (row >= 0 && row < args.rows)
              embedding_row(SerialTeam{}, table + row * args.cols, y + t * args.cols, args.cols);
            else
              std::fill_n(y + t * args.cols, args.cols, T(0.0f));
          }
        });
  });
}

/// Each task is a band of columns and processes the tokens in order, so equal ids are always added
/// in the same order.
void embedding_backward(Stream& stream, const EmbeddingBackwardArgs& args) {
  constexpr int64_t kBand = 64;
  with_float_type(args.dtype, [&]<class T>(T) {
    auto dy = static_cast<const T*>(args.dy);
    for_blocks(cpu_stream(stream), args.cols, kBand, [&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < args.tokens; ++t) {
        int64_t row = args.ids[t] - args.first_row;
        if (row < 0 || row >= args.rows) continue;
        embedding_row_backward(SerialTeam{}, dy + t * args.cols + begin,
                               args.d_table + row * args.cols + begin, end - begin);
      }
    });
  });
}

}  // namespace mtrain::cpu::MT_ISA
