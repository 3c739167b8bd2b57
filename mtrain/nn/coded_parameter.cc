#include "mtrain/nn/coded_parameter.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/base/parallel.h"
#include "mtrain/base/text.h"
#include "mtrain/nn/encode_weight.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {
namespace {

int64_t groups_of(int64_t scales) { return (scales + kScaleGroup - 1) / kScaleGroup; }

/// Groups of the scales of all matrices; each matrix begins with a group of its own.
int64_t groups_of(const Parameter& p) {
  int64_t groups = 0;
  for (const LogicalMatrix& m : p.matrices)
    groups += groups_of(m.num_rows() * (p.global[1] / kNf4Block));
  return groups;
}

void require_whole_blocks(const Parameter& p) {
  for (const ParamBox& box : p.boxes()) {
    const int64_t begin = box.global.offset[1], columns = box.global.extent[1];
    MT_USER_CHECK(
        begin % kNf4Block == 0 && columns % kNf4Block == 0, ErrorClass::config,
        cat("peft.base=nf4 stores blocks of ", kNf4Block, " elements of a row, and rows ", "of ",
            p.name, " have ", columns,
            columns == p.global[1] ? "" : cat(" of ", p.global[1], " elements on this rank")),
        "choose peft.base=int8, fp8 or same, or a dist.tp with which the width of each "
        "layer is a multiple of the block");
  }
}

/// Calls visit(row) for the rows [0, rows) of `cols` elements, on several threads if they are many.
template <class Visit>
void each_of(size_t rows, int64_t cols, Visit&& visit) {
  const auto least = static_cast<size_t>((1 << 16) / std::max<int64_t>(cols, 1) + 1);
  parallel_ranges(rows, least, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) visit(static_cast<int64_t>(r));
  });
}

/// Calls visit(global row, local row, first global column, first local column, columns) for each
/// row of each box, on several threads. Rows of different calls are different.
template <class Visit>
void each_row(const Parameter& p, Visit&& visit) {
  for (const ParamBox& box : p.boxes())
    each_of(static_cast<size_t>(box.global.extent[0]), box.global.extent[1], [&](int64_t r) {
      visit(box.global.offset[0] + r, box.local.offset[0] + r, box.global.offset[1],
            box.local.offset[1], box.global.extent[1]);
    });
}

void encode_rows(Parameter& p, std::span<const float> whole) {
  CodedWeight& w = *p.coded;
  const int64_t cols = p.global[1];
  std::vector<uint8_t> codes(static_cast<size_t>(w.codes.numel()));
  std::vector<float> scales(static_cast<size_t>(w.rows));
  each_row(p, [&](int64_t row, int64_t local, int64_t begin, int64_t at, int64_t columns) {
    const auto all = whole.subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
    const float largest = largest_of(all);
    scales[static_cast<size_t>(local)] = row_scale(w.format, largest);
    encode_row(w.format, all.subspan(static_cast<size_t>(begin), static_cast<size_t>(columns)),
               largest, codes.data() + local * w.cols + at);
  });
  ExecutionContext& ctx = w.codes.context();
  ctx.upload(w.codes, codes.data());
  ctx.upload(w.scales, scales.data());
}

/// The scales of all blocks of the parameter as codes; matrices one after the other.
struct AllScaleCodes {
  std::vector<uint8_t> codes;
  std::vector<float> groups;
  std::vector<int32_t> first;  // of each row of the parameter: its first block in the groups
  std::vector<int64_t> at;     // of each row: its first code
};

AllScaleCodes encode_all_scales(const Parameter& p, std::span<const float> whole) {
  const int64_t cols = p.global[1], blocks = cols / kNf4Block;
  AllScaleCodes out;
  out.first.assign(static_cast<size_t>(p.global[0]), -1), out.at.resize(out.first.size());
  for (const LogicalMatrix& m : p.matrices) {
    std::vector<float> scales(static_cast<size_t>(m.num_rows() * blocks));
    std::vector<int64_t> rows;
    const auto groups_before = static_cast<int64_t>(out.groups.size() / 2);
    for (const RowRange& range : m.rows)
      for (int64_t row = range.first; row < range.first + range.rows; ++row) {
        const auto r = static_cast<size_t>(row);
        const int64_t before = static_cast<int64_t>(rows.size()) * blocks;
        out.first[r] = static_cast<int32_t>(groups_before * kScaleGroup + before);
        out.at[r] = static_cast<int64_t>(out.codes.size()) + before;
        rows.push_back(row);
      }
    each_of(rows.size(), cols, [&](int64_t i) {
      const float* row = whole.data() + rows[static_cast<size_t>(i)] * cols;
      for (int64_t b = 0; b < blocks; ++b)
        scales[static_cast<size_t>(i * blocks + b)] = nf4_scale(row + b * kNf4Block);
    });
    const ScaleCodes coded = encode_scales(scales);
    out.codes.insert(out.codes.end(), coded.codes.begin(), coded.codes.end());
    for (float factor : coded.factors) out.groups.insert(out.groups.end(), {factor, coded.offset});
  }
  MT_CHECK(std::ranges::find(out.first, -1) == out.first.end(), p.name, " has rows of no matrix");
  return out;
}

void encode_blocks(Parameter& p, std::span<const float> whole) {
  CodedWeight& w = *p.coded;
  const int64_t cols = p.global[1], blocks = w.cols / kNf4Block;
  const bool nested = !w.scales.defined();
  std::vector<uint8_t> codes(static_cast<size_t>(w.codes.numel())), scale_codes;
  std::vector<float> scales(static_cast<size_t>(w.rows * blocks));
  std::vector<int32_t> first(static_cast<size_t>(w.rows));
  const AllScaleCodes all = nested ? encode_all_scales(p, whole) : AllScaleCodes();
  if (nested) {
    scale_codes.resize(scales.size());
    for (const ParamBox& box : p.boxes())
      MT_CHECK(box.global.offset[1] - box.local.offset[1] == p.boxes().front().global.offset[1],
               p.name, " has pieces of rows");
  }
  each_row(p, [&](int64_t row, int64_t local, int64_t begin, int64_t at, int64_t columns) {
    for (int64_t c = 0; c < columns; c += kNf4Block)
      scales[static_cast<size_t>(local * blocks + (at + c) / kNf4Block)] = encode_nf4_block(
          whole.data() + row * cols + begin + c, codes.data() + (local * w.cols + at + c) / 2);
    if (!nested) return;
    const int64_t block = begin / kNf4Block, to = at / kNf4Block;
    std::copy_n(all.codes.begin() + all.at[static_cast<size_t>(row)] + block, columns / kNf4Block,
                scale_codes.begin() + local * blocks + to);
    first[static_cast<size_t>(local)] =
        all.first[static_cast<size_t>(row)] + static_cast<int32_t>(block - to);
  });
  ExecutionContext& ctx = w.codes.context();
  ctx.upload(w.codes, codes.data());
  if (!nested) return ctx.upload(w.scales, scales.data());
  ctx.upload(w.scale_codes, scale_codes.data());
  ctx.upload(w.groups, all.groups.data());
  ctx.upload(w.first_block, first.data());
}

}  // namespace

void store_as_codes(Parameter& p, ExecutionContext& ctx, const CodedFormat& format) {
  MT_CHECK(!p.trained && p.global.rank() == 2, p.name);
  const bool blocks = format.format == WeightFormat::nf4;
  if (blocks) require_whole_blocks(p);
  MemoryScope use(ctx.memory(), MemoryUse::parameters);
  auto coded = std::make_shared<CodedWeight>();
  CodedWeight& w = *coded;
  w.format = format.format, w.rows = p.local[0], w.cols = p.local[1];
  w.codes = ctx.empty({w.rows, code_bytes(w.format, w.cols)}, DType::u8);
  if (!blocks) {
    w.scales = ctx.empty({w.rows}, DType::f32);
  } else if (!format.double_quant) {
    w.scales = ctx.empty({w.rows, w.cols / kNf4Block}, DType::f32);
  } else {
    w.scale_codes = ctx.empty({w.rows, w.cols / kNf4Block}, DType::u8);
    w.groups = ctx.empty({groups_of(p), 2}, DType::f32);
    w.first_block = ctx.empty({w.rows}, DType::i32);
  }
  p.value = w.codes, p.dtype = DType::u8;
  p.coded = std::move(coded);
}

void set_values(Parameter& p, std::span<const float> whole) {
  MT_CHECK(p.coded && static_cast<int64_t>(whole.size()) == p.global.numel(), p.name);
  std::atomic<bool> finite = true;
  each_of(static_cast<size_t>(p.global[0]), p.global[1], [&](int64_t row) {
    const auto values =
        whole.subspan(static_cast<size_t>(row * p.global[1]), static_cast<size_t>(p.global[1]));
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) finite = false;
  });
  MT_USER_CHECK(finite, ErrorClass::numeric,
                cat(p.name, " has NaN or infinity, which no code represents"),
                "start from weights that are finite");
  if (p.coded->format == WeightFormat::nf4)
    encode_blocks(p, whole);
  else
    encode_rows(p, whole);
}

std::vector<float> decoded_values(const Parameter& p) {
  ExecutionContext& ctx = p.value.context();
  std::vector<float> out(static_cast<size_t>(p.numel()));
  ctx.download(p.coded->decode(ctx, DType::f32), out.data());
  return out;
}

}  // namespace mtrain
