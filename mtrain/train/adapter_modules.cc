#include "mtrain/train/adapter_modules.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// The rank of an adapter whose a all blocks share, as peft has it for a fused weight; 0: they have
/// several ranks.
int64_t shared_rank(const AdaptedTensor& tensor) {
  const AdapterSize& first = tensor.blocks.front().size;
  const auto same = [&](const auto& block) { return block.size.rank == first.rank; };
  return std::ranges::all_of(tensor.blocks, same) ? first.rank : 0;
}

bool same_scale(const AdaptedTensor& tensor) {
  const AdapterSize& first = tensor.blocks.front().size;
  return std::ranges::all_of(tensor.blocks,
                             [&](const auto& block) { return block.size.scale == first.scale; });
}

/// alpha for the rank of all blocks, so that the factor is that of the first one.
double alpha_of(const AdaptedTensor& tensor, bool rslora) {
  const AdapterSize& first = tensor.blocks.front().size;
  const auto same = [&](const auto& block) { return block.size == first; };
  const auto count = static_cast<double>(tensor.blocks.size()),
             rank = static_cast<double>(rank_of(tensor));
  if (std::ranges::all_of(tensor.blocks, same))  // without the rounding of the factor
    return first.alpha * (rslora ? std::sqrt(count) : count);
  return first.scale * (rslora ? std::sqrt(rank) : rank);
}

/// What is different about the size of a module's adapter; empty: nothing.
std::string size_fault(const PeftModule& m, const AdaptedTensor& tensor, const PeftSection& peft) {
  const AdapterSize& size = tensor.blocks.front().size;
  const bool of_pattern = size.rank != peft.rank || size.alpha != peft.alpha;
  if (m.rank != rank_of(tensor) && m.rank != shared_rank(tensor))
    return cat(m.module(), " has rank ", m.rank, ", and ",
               of_pattern ? "peft.rank and peft.ranks give it " : "peft.rank is ", size.rank);
  if (std::abs(m.scale - size.scale) > 1e-6 * size.scale)
    return cat(m.module(), " is multiplied by ", m.scale, ", and ",
               of_pattern ? "peft.alphas and peft.ranks" : "peft.alpha and peft.rank", " say ",
               size.scale);
  return {};
}

}  // namespace

int64_t rank_of(const AdaptedTensor& tensor) {
  int64_t out = 0;
  for (const AdaptedTensor::Block& block : tensor.blocks) out += block.size.rank;
  return out;
}

PeftModule peft_module(const AdaptedTensor& tensor,
                       const std::map<std::string, LayerValues>& values, const PeftSection& peft,
                       std::vector<float> norms) {
  PeftModule out{.weight = tensor.name,
                 .out = tensor.out,
                 .in = tensor.in,
                 .rank = rank_of(tensor),
                 .scale = tensor.blocks.front().size.scale,
                 .transposed = tensor.transposed,
                 .stacks = tensor.stacks,
                 .experts = tensor.experts,
                 .a = {},
                 .b = {}};
  std::vector<int64_t> columns;  // of b: where those of each block begin
  for (const AdaptedTensor::Block& block : tensor.blocks) {
    columns.push_back(static_cast<int64_t>(out.a.size()) / tensor.in);
    const auto from = values.at(block.layer).a.begin() + block.matrix * block.width * tensor.in;
    out.a.insert(out.a.end(), from, from + block.size.rank * tensor.in);
  }
  out.b.assign(static_cast<size_t>(out.out * out.rank), 0);
  for (const AdaptedTensor::Row& row : tensor.rows) {
    const AdaptedTensor::Block& block = tensor.blocks[row.block];
    const auto from = values.at(block.layer).b.begin() + row.layer_row * block.width;
    const auto factor = static_cast<float>(block.size.scale / out.scale);
    std::transform(from, from + block.size.rank,
                   out.b.begin() + row.row * out.rank + columns[row.block],
                   [factor](float x) { return factor * x; });
  }
  if (!norms.empty())
    for (const AdaptedTensor::Row& row : tensor.rows)
      norms[static_cast<size_t>(row.row)] +=
          values.at(tensor.blocks[row.block].layer).magnitude[static_cast<size_t>(row.layer_row)];
  out.magnitude = std::move(norms);
  out.alpha = alpha_of(tensor, peft.rslora);
  return out;
}

std::string take_module(const PeftModule& m, const AdaptedTensor& tensor, const PeftSection& peft,
                        std::map<std::string, LayerValues>& values) {
  if (m.out != tensor.out || m.in != tensor.in)
    return cat(m.module(), " is for a weight [", m.out, ", ", m.in, "], and this model's is [",
               tensor.out, ", ", tensor.in, "]");
  if (tensor.experts && peft.share_expert_adapters)
    return cat(m.module(), " is of one expert, and peft.share_expert_adapters is true");
  if (std::string fault = size_fault(m, tensor, peft); !fault.empty()) return fault;
  const bool shared = m.rank != rank_of(tensor);  // one a for all blocks
  std::vector<int64_t> columns;                   // of m.b: where those of each block begin
  for (int64_t next = 0; const AdaptedTensor::Block& block : tensor.blocks) {
    columns.push_back(shared ? 0 : next);
    next += block.size.rank;
    std::copy_n(m.a.begin() + columns.back() * m.in, block.size.rank * m.in,
                values[block.layer].a.begin() + block.matrix * block.width * m.in);
  }
  std::vector<bool> covered(static_cast<size_t>(m.out), false);
  for (const AdaptedTensor::Row& row : tensor.rows) {
    covered[static_cast<size_t>(row.row)] = true;
    const AdaptedTensor::Block& block = tensor.blocks[row.block];
    const auto from = m.b.begin() + row.row * m.rank;
    const int64_t own = columns[row.block], r = block.size.rank;
    for (int64_t k = 0; k < m.rank; ++k)
      if ((k < own || k >= own + r) && from[k] != 0)
        return cat(m.module(), ": lora_B mixes the ranks of several matrices in row ", row.row);
    const auto factor = static_cast<float>(m.scale / block.size.scale);
    std::transform(from + own, from + own + r,
                   values[block.layer].b.begin() + row.layer_row * block.width,
                   [&](float x) { return same_scale(tensor) ? x : factor * x; });
  }
  for (int64_t row = 0; row < m.out; ++row)
    for (int64_t k = 0; !covered[static_cast<size_t>(row)] && k < m.rank; ++k)
      if (m.b[static_cast<size_t>(row * m.rank + k)] != 0)
        return cat(m.module(), ": lora_B has values in row ", row,
                   ", whose matrix is not in peft.targets");
  return {};
}

std::string take_magnitude(const PeftModule& m, const AdaptedTensor& tensor,
                           const std::vector<float>& norms,
                           std::map<std::string, LayerValues>& values) {
  constexpr float kClose = 1e-4f;
  std::vector<bool> covered(norms.size(), false);
  for (const AdaptedTensor::Row& row : tensor.rows) {
    const auto at = static_cast<size_t>(row.row);
    covered[at] = true;
    values[tensor.blocks[row.block].layer].magnitude[static_cast<size_t>(row.layer_row)] =
        m.magnitude[at] - norms[at];
  }
  for (size_t row = 0; row < norms.size(); ++row)
    if (!covered[row] && std::abs(m.magnitude[row] - norms[row]) > kClose * norms[row])
      return cat(m.module(), ": lora_magnitude_vector changes row ", row,
                 ", whose matrix is not in peft.targets");
  return {};
}

}  // namespace mtrain
