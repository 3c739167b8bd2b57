#include "mtrain/train/adapter_blend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// The adapters of one weight, with the numbers of the adapters that they are of.
struct SameWeight {
  std::vector<const PeftModule*> modules;
  std::vector<size_t> of;
};

std::map<std::string, SameWeight> by_weight(std::span<const PeftAdapter> adapters) {
  std::map<std::string, SameWeight> out;
  for (size_t i = 0; i < adapters.size(); ++i)
    for (const PeftModule& m : adapters[i].modules) {
      SameWeight& all = out[m.weight];
      all.modules.push_back(&m);
      all.of.push_back(i);
    }
  return out;
}

/// Neither sums nor norms are defined for more than s · b · a of single matrices.
void require_plain(std::span<const PeftAdapter> adapters) {
  for (size_t i = 0; i < adapters.size(); ++i) {
    const bool experts = std::ranges::any_of(adapters[i].modules, &PeftModule::experts);
    const char* more = adapters[i].ia3              ? "vectors that multiply results (IA3)"
                       : adapters[i].dora           ? "trained norms of rows (DoRA)"
                       : !adapters[i].whole.empty() ? "weights that were trained themselves"
                       : experts                    ? "adapters of experts"
                                                    : nullptr;
    MT_USER_CHECK(!more, ErrorClass::config, cat("adapter ", i + 1, " has ", more),
                  "only low-rank adapters of single matrices can be compared and combined; merge "
                  "others into the weights of their model: mtrain merge");
  }
}

void require_same_shapes(const std::map<std::string, SameWeight>& weights, bool ranks) {
  std::vector<std::string> faults;
  for (const auto& [weight, all] : weights) {
    const PeftModule& first = *all.modules.front();
    for (size_t i = 1; i < all.modules.size(); ++i) {
      const PeftModule& other = *all.modules[i];
      const auto text = [&](const PeftModule& m) {
        return cat("[", m.out, ",", m.in, "] with rank ", m.rank);
      };
      if (other.out != first.out || other.in != first.in || (ranks && other.rank != first.rank))
        faults.push_back(cat(first.module(), ": adapter ", all.of.front() + 1, " is of ",
                             text(first), ", adapter ", all.of[i] + 1, " of ", text(other)));
    }
  }
  MT_USER_CHECK(faults.empty(), ErrorClass::config,
                cat("the adapters do not fit together:\n  ", join(faults, "\n  ")),
                ranks ? "adapters with different ranks can only be combined by --method cat"
                      : "only adapters of the same model can be combined");
}

/// Keeps the `count` elements of largest magnitude, of equal ones the first.
void keep_largest(std::vector<float>& values, size_t count) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  for (size_t i = count; i < order.size(); ++i) values[order[i]] = 0;
}

/// Keeps each element with the probability `density`, divided by it.
void keep_random(std::vector<float>& values, double density, const RngStream& rng) {
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(rng.uniform(i)) < density
                    ? static_cast<float>(static_cast<double>(values[i]) / density)
                    : 0;
}

bool elects_sign(AdapterBlend method) {
  return method == AdapterBlend::ties || method == AdapterBlend::dare_ties;
}

/// Σ factor · tensor, element by element; with elected signs only of the elements whose sign is
/// that of the sum of the tensors, divided by their number.
std::vector<float> weighted_sum(const std::vector<std::vector<float>>& tensors,
                                const std::vector<double>& factors, bool elected) {
  std::vector<float> out(tensors.front().size());
  for (size_t i = 0; i < out.size(); ++i) {
    double all = 0, sum = 0;
    for (const auto& tensor : tensors) all += static_cast<double>(tensor[i]);
    int64_t count = 0;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const auto value = static_cast<double>(tensors[t][i]);
      const bool same = all >= 0 ? value > 0 : value < 0;
      if (elected && !same) continue;
      sum += factors[t] * value;
      ++count;
    }
    out[i] =
        static_cast<float>(elected ? sum / static_cast<double>(std::max<int64_t>(1, count)) : sum);
  }
  return out;
}

/// One of the two tensors of a weight's adapters: their sum by the method. `positive`: the factors
/// have no sign.
std::vector<float> blend_tensors(const SameWeight& all, const BlendOptions& options,
                                 const std::vector<float> PeftModule::*tensor, bool positive) {
  std::vector<std::vector<float>> tensors;
  std::vector<double> factors;
  for (size_t i = 0; i < all.modules.size(); ++i) {
    const PeftModule& m = *all.modules[i];
    const double factor = options.weights[all.of[i]] * m.scale, root = std::sqrt(std::fabs(factor));
    factors.push_back(positive || factor >= 0 ? root : -root);
    std::vector<float>& values = tensors.emplace_back(m.*tensor);
    if (options.method == AdapterBlend::ties && options.density < 1)
      keep_largest(values,
                   static_cast<size_t>(options.density * static_cast<double>(values.size())));
    else if (options.method == AdapterBlend::dare_linear ||
             options.method == AdapterBlend::dare_ties)
      keep_random(values, options.density,
                  RngStream(options.seed, cat(m.weight, positive ? ".b" : ".a"), all.of[i]));
  }
  return weighted_sum(tensors, factors, elects_sign(options.method));
}

/// a one below the other, times weight · scale, and b next to each other.
PeftModule concatenated(const SameWeight& all, const BlendOptions& options) {
  PeftModule out = *all.modules.front();
  out.rank = 0, out.a.clear();
  for (const PeftModule* m : all.modules) out.rank += m->rank;
  out.b.assign(static_cast<size_t>(out.out * out.rank), 0);
  int64_t column = 0;
  for (size_t i = 0; i < all.modules.size(); ++i) {
    const PeftModule& m = *all.modules[i];
    const double factor = options.weights[all.of[i]] * m.scale;
    for (const float value : m.a)
      out.a.push_back(static_cast<float>(factor * static_cast<double>(value)));
    for (int64_t row = 0; row < out.out; ++row)
      std::copy_n(m.b.begin() + row * m.rank, m.rank, out.b.begin() + row * out.rank + column);
    column += m.rank;
  }
  return out;
}

/// Σ_ij x[i,j] y[i,j] over rows of [n,k] and [n,l]: xᵀ y, [k,l].
std::vector<double> gram(const std::vector<float>& x, const std::vector<float>& y, int64_t n,
                         int64_t k, int64_t l, bool rows) {
  std::vector<double> out(static_cast<size_t>(k * l));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t q = 0; q < l; ++q)
        out[static_cast<size_t>(p * l + q)] +=
            static_cast<double>(x[static_cast<size_t>(rows ? p * n + i : i * k + p)]) *
            static_cast<double>(y[static_cast<size_t>(rows ? q * n + i : i * l + q)]);
  return out;
}

/// ⟨s b a, s' b' a'⟩ = s s' Σ (bᵀ b') ∘ (a a'ᵀ).
double inner_product(const PeftModule& x, const PeftModule& y) {
  const std::vector<double> of_b = gram(x.b, y.b, x.out, x.rank, y.rank, false),
                            of_a = gram(x.a, y.a, x.in, x.rank, y.rank, true);
  return x.scale * y.scale * std::inner_product(of_a.begin(), of_a.end(), of_b.begin(), 0.0);
}

}  // namespace

PeftAdapter blend_adapters(std::span<const PeftAdapter> adapters, const BlendOptions& options) {
  MT_CHECK(!adapters.empty() && adapters.size() == options.weights.size() && options.density > 0 &&
               options.density <= 1,
           adapters.size(), " adapters, ", options.weights.size(), " weights, density ",
           options.density);
  require_plain(adapters);
  const std::map<std::string, SameWeight> weights = by_weight(adapters);
  const bool joins = options.method == AdapterBlend::cat;
  require_same_shapes(weights, !joins);
  PeftAdapter out = adapters.front();
  out.modules.clear();
  out.rslora = false, out.rank = 0, out.dropout = 0;
  for (const auto& [weight, all] : weights) {
    PeftModule m = joins ? concatenated(all, options) : *all.modules.front();
    if (!joins) {
      m.a = blend_tensors(all, options, &PeftModule::a, false);
      m.b = blend_tensors(all, options, &PeftModule::b, true);
    }
    m.scale = 1;
    m.alpha = static_cast<double>(m.rank);
    out.rank = std::max(out.rank, m.rank);
    out.modules.push_back(std::move(m));
  }
  out.alpha = static_cast<double>(out.rank);
  return out;
}

double AdapterDifference::relative() const {
  const double most = std::max(norm_a.value_or(0), norm_b.value_or(0));
  return most > 0 ? distance / most : 0;
}

std::vector<AdapterDifference> adapter_differences(const PeftAdapter& a, const PeftAdapter& b) {
  const std::vector<PeftAdapter> both = {a, b};
  require_plain(both);
  const std::map<std::string, SameWeight> weights = by_weight(both);
  require_same_shapes(weights, false);
  std::vector<AdapterDifference> out;
  for (const auto& [weight, all] : weights) {
    AdapterDifference& d = out.emplace_back();
    d.module = all.modules.front()->module();
    double square = 0;
    for (size_t i = 0; i < all.modules.size(); ++i) {
      const double own = inner_product(*all.modules[i], *all.modules[i]);
      (all.of[i] == 0 ? d.norm_a : d.norm_b) = std::sqrt(std::max(0.0, own));
      square += own;
    }
    if (all.modules.size() == 2) {
      const PeftModule &x = *all.modules[0], &y = *all.modules[1];
      const bool same = x.a == y.a && x.b == y.b && x.scale == y.scale;
      square = same ? 0 : square - 2 * inner_product(x, y);
    }
    d.distance = std::sqrt(std::max(0.0, square));
  }
  return out;
}

}  // namespace mtrain
