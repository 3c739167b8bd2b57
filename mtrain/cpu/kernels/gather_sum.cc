#include "mtrain/kernel/gather_sum.h"

#include "mtrain/cpu/kernels/launch.h"

namespace mtrain::cpu::MT_ISA {

namespace {
/// Adds the terms of a row one after the other, in bands of columns whose sums stay in L1.
template <class T, class Weight>
void sum_row(const GatherSumArgs& a, int64_t row, Weight&& weight) {
  const int32_t* source = a.source + row * a.fan;
  auto x = static_cast<const T*>(a.x);
  auto y = static_cast<T*>(a.y) + row * a.cols;
  auto addend = a.addend ? static_cast<const T*>(a.addend) + row * a.cols : nullptr;
  constexpr int64_t kBand = 512;
  float sums[kBand];
  for (int64_t begin = 0; begin < a.cols; begin += kBand) {
    int64_t n = std::min(kBand, a.cols - begin);
    SerialTeam team;
    if (addend)
      team.each(n, [&](int64_t i) { sums[i] = to_float(addend[begin + i]); });
    else
      team.each(n, [&](int64_t i) { sums[i] = 0; });
    for (int64_t j = 0; j < a.fan; ++j) {
      if (source[j] < 0) continue;
      float w = weight(row * a.fan + j);
      add_scaled_row(team, x + source[j] * a.cols + begin, w, sums, n);
    }
    team.each(n, [&](int64_t i) { y[begin + i] = T(sums[i]); });
  }
}
}  // namespace

void gather_sum(Stream& stream, const GatherSumArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    for_blocks(cpu_stream(stream), args.rows, rows_per_task(args.cols * (args.fan + 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row)
                   sum_row<T>(args, row, [&](int64_t term) {
                     return args.weights
                                ? args.weights[args.weight_of ? args.weight_of[term] : term]
                                : 1.0f;
                   });
               });
  });
}

void row_dots(Stream& stream, const RowDotsArgs& args) {
  with_float_type(args.dtype, [&]<class T>(T) {
    auto a = static_cast<const T*>(args.a), b = static_cast<const T*>(args.b);
    for_blocks(cpu_stream(stream), args.rows, rows_per_task(args.cols * args.fan),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r)
                   args.out[r] = row_dots_row(SerialTeam{}, a + r / args.group * args.cols, b,
                                              args.source + r * args.fan, args.fan, args.cols);
               });
  });
}

}  // namespace mtrain::cpu::MT_ISA
