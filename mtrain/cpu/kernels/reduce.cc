// Sums over rows and over whole buffers, in a fixed order.
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/cpu/kernels/row_blocks.h"

namespace mtrain::cpu::MT_ISA {

void column_sum(Stream& stream, const ColumnSumArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto x = static_cast<const T*>(args.x);
    RowBlocks blocks(cpu_stream(stream), args.rows, args.cols, 1);
    blocks.run([&](int64_t r, float* sums) {
      const T* row = x + r * args.cols;
      SerialTeam{}.each(args.cols, [&](int64_t c) { sums[c] += to_float(row[c]); });
    });
    blocks.combine(0, args.out, args.accumulate);
  });
}

void squared_norm(Stream& stream, const SquaredNormArgs& args) {
  auto& cpu = cpu_stream(stream);
  int64_t blocks = (args.count + kElementBlock - 1) / kElementBlock;
  auto partial =
      reinterpret_cast<double*>(cpu.scratch(sizeof(double) * static_cast<size_t>(blocks)));
  for_blocks(cpu, args.count, kElementBlock, [partial, x = args.x](int64_t begin, int64_t end) {
    // Independent partial sums: in a single chain each addition would wait for the previous one.
    constexpr int64_t kChains = 64;
    double chain[kChains] = {};
    int64_t i = begin;
    for (; i + kChains <= end; i += kChains)
      for (int64_t j = 0; j < kChains; ++j) {
        double v = x[i + j];
        chain[j] += v * v;
      }
    for (; i < end; ++i) chain[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    double total = 0;
    for (double sum : chain) total += sum;
    partial[begin / kElementBlock] = total;
  });
  double total = 0;
  for (int64_t b = 0; b < blocks; ++b) total += partial[b];
  *args.out = total;
}

}  // namespace mtrain::cpu::MT_ISA
