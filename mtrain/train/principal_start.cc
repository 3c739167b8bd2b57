#include "mtrain/train/principal_start.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/train/adapter_whole.h"
#include "mtrain/train/singular_vectors.h"

namespace mtrain {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string layer_of(const std::string& weight) {
  return weight.substr(0, weight.size() - kWeight.size());
}

/// The values that a tensor of this type has for them.
void round_to(DType dtype, std::vector<float>& values, ExecutionContext& ctx) {
  if (dtype == DType::f32) return;
  const auto count = static_cast<int64_t>(values.size());
  const Tensor wide = ctx.from_host<float>(values, {count}), narrow = ctx.empty({count}, dtype);
  ctx.copy(narrow, wide);
  ctx.copy(wide, narrow);
  ctx.download(wide, values.data());
}

/// As layers compute with it.
double factor_of(const AdapterSize& size) {
  return static_cast<double>(static_cast<float>(size.scale));
}

struct ProductSizes {
  int64_t in, rank;
  double scale;
};

/// Rows of one matrix [out,in] -= scale · b · a, in double. `a`: the matrix's own [rank,in]; b: of
/// all rows.
void take_product(const LogicalMatrix& matrix, std::span<const float> a, std::span<const float> b,
                  const ProductSizes& sizes, std::span<float> whole) {
  std::vector<double> sum(static_cast<size_t>(sizes.in));
  for (const RowRange& range : matrix.rows)
    for (int64_t row = range.first; row < range.first + range.rows; ++row) {
      std::ranges::fill(sum, 0.0);
      for (int64_t k = 0; k < sizes.rank; ++k) {
        const auto factor = static_cast<double>(b[static_cast<size_t>(row * sizes.rank + k)]);
        const float* of_a = a.data() + k * sizes.in;
        for (size_t c = 0; c < sum.size(); ++c) sum[c] += factor * static_cast<double>(of_a[c]);
      }
      float* to = whole.data() + row * sizes.in;
      for (size_t c = 0; c < sum.size(); ++c)
        to[c] = static_cast<float>(static_cast<double>(to[c]) - sizes.scale * sum[c]);
    }
}

}  // namespace

PrincipalStart::PrincipalStart(AdapterOptions options, ParamList& parameters, int threads)
    : options_(std::move(options)), parameters_(parameters), threads_(threads) {
  AdapterPlan plan(options_);
  for (const Parameter& p : parameters.all()) {
    if (p.global.rank() != 2 || !p.name.ends_with(kWeight)) continue;
    if (!parameters.find(cat(layer_of(p.name), ".lora_a"))) continue;
    const std::vector<size_t> matrices = plan.matrices_of(layer_of(p.name), p.matrices);
    MT_USER_CHECK(!p.trained, ErrorClass::config,
                  cat("peft.init=pissa: ", p.name, " has an adapter, and peft.train trains it"),
                  "leave it out of peft.train or of peft.targets");
    plans_[p.name] = matrices;
  }
}

std::vector<std::string> PrincipalStart::weights() const {
  std::vector<std::string> out;
  for (const auto& [name, matrices] : plans_) out.push_back(name);
  return out;
}

void PrincipalStart::split(const Parameter& weight, std::span<float> whole) {
  const auto plan = plans_.find(weight.name);
  if (plan == plans_.end()) return;
  Parameter &a = *parameters_.find(cat(layer_of(weight.name), ".lora_a")),
            &b = *parameters_.find(cat(layer_of(weight.name), ".lora_b"));
  AdapterPlan sizes(options_);
  const int64_t in = weight.global[1], width = b.global[1];
  std::vector<float> all_a(static_cast<size_t>(a.global.numel())),
      all_b(static_cast<size_t>(b.global.numel()), 0);
  for (size_t at = 0; at < plan->second.size(); ++at) {
    const LogicalMatrix& matrix = weight.matrices[plan->second[at]];
    const AdapterSize size = sizes.size_of(layer_of(weight.name), matrix.name);
    const int64_t r = size.rank;
    std::vector<float> values;
    std::vector<int64_t> rows;
    for (const RowRange& range : matrix.rows)
      for (int64_t row = range.first; row < range.first + range.rows; ++row) {
        const auto from = whole.begin() + row * in;
        values.insert(values.end(), from, from + in);
        rows.push_back(row);
      }
    const auto out = static_cast<int64_t>(rows.size());
    const SingularVectors found = largest_singular_vectors(values, out, in, r, threads_);
    for (int64_t k = 0; k < r; ++k) {
      const double root = std::sqrt(found.values[static_cast<size_t>(k)] / factor_of(size));
      for (int64_t c = 0; c < in; ++c)
        all_a[static_cast<size_t>((static_cast<int64_t>(at) * width + k) * in + c)] =
            static_cast<float>(root * found.right[static_cast<size_t>(k * in + c)]);
      for (int64_t i = 0; i < out; ++i)
        all_b[static_cast<size_t>(rows[static_cast<size_t>(i)] * width + k)] =
            static_cast<float>(root * found.left[static_cast<size_t>(k * out + i)]);
    }
  }
  ExecutionContext& ctx = a.master.context();
  round_to(a.dtype, all_a, ctx);
  round_to(b.dtype, all_b, ctx);
  for (size_t at = 0; at < plan->second.size(); ++at) {
    const LogicalMatrix& matrix = weight.matrices[plan->second[at]];
    take_product(matrix,
                 std::span<const float>(all_a).subspan(at * static_cast<size_t>(width * in)), all_b,
                 {.in = in,
                  .rank = width,
                  .scale = factor_of(sizes.size_of(layer_of(weight.name), matrix.name))},
                 whole);
  }
  put_part(a, all_a);
  put_part(b, all_b);
}

}  // namespace mtrain
