// Adds adapters to the weights of a Hugging Face folder.
#include <algorithm>
#include <cmath>
#include <map>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/train/adapter_vectors.h"
#include "mtrain/train/adapter_whole.h"
#include "mtrain/train/coded_values.h"
#include "mtrain/train/file_values.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {
namespace {

/// Gives the rows of a matrix, stored as the module says, the norms of its magnitude.
void set_norms(const PeftModule& m, std::span<float> values) {
  const std::vector<float> norms = row_norms(values, m.out, m.in, m.transposed);
  for (int64_t row = 0; row < m.out; ++row) {
    const auto at = static_cast<size_t>(row);
    const float gain = norms[at] > 0 ? m.magnitude[at] / norms[at] : 1;
    for (int64_t c = 0; c < m.in; ++c)
      values[static_cast<size_t>(m.transposed ? c * m.out + row : row * m.in + c)] *= gain;
  }
}

/// The adapter for what was left of the weight when its principal part was split off.
PeftModule without_start(const PeftModule& m) {
  PeftModule out = m;
  out.rank = m.rank - m.start_rank, out.start_rank = 0;
  out.a.resize(static_cast<size_t>(out.rank * m.in));
  out.b.clear();
  for (int64_t row = 0; row < m.out; ++row)
    out.b.insert(out.b.end(), m.b.begin() + row * m.rank, m.b.begin() + row * m.rank + out.rank);
  return out;
}

/// Whether a tensor has the name of an embedding of token ids, in a folder without a head.
bool is_embedding(const std::string& tensor) {
  for (const char* name : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight",
                           "embed_in.weight", "tok_embeddings.weight", "shared.weight"})
    if (tensor.ends_with(name)) return true;
  return false;
}

/// What does not fit between a module with gains and its weight; empty: all does.
std::string gains_fault(const PeftModule& m, const Shape& shape) {
  if (shape.rank() != 2) return cat("tensor ", m.weight, " ", shape, " is no matrix");
  const int64_t wanted = shape[m.of_input == m.transposed ? 0 : 1];
  if (std::ssize(m.gains) == wanted) return {};
  return cat("tensor ", m.weight, " ", shape, " does not fit ia3_l of ", m.gains.size(),
             " elements");
}

/// The tensors of the folder, with adapters added to some.
class MergedTensors final : public HfTensorSource {
 public:
  MergedTensors(const HfDir& base, const PeftAdapter& adapter, std::optional<DType> dtype,
                uint64_t shard_bytes, const HfFamily* family, const CodedValues* coded)
      : source_(base), plain_(hf_folder_tensors(base, dtype, shard_bytes, family)), coded_(coded) {
    std::vector<std::string> faults;
    for (const PeftModule& m : adapter.modules) {
      const size_t i = place_of(m.weight);
      if (i == specs().size()) {
        faults.push_back(cat("there is no tensor ", m.weight));
        continue;
      }
      const Shape& shape = specs()[i].shape;
      if (!m.gains.empty()) {
        if (std::string fault = gains_fault(m, shape); !fault.empty())
          faults.push_back(std::move(fault));
        adapted_[i] = &m;
        if (const size_t bias = place_of(bias_of(m)); !m.of_input && bias < specs().size())
          biased_[bias] = &m;
        continue;
      }
      const Shape wanted = m.transposed ? Shape{m.in, m.out} : Shape{m.out, m.in};
      const bool fits = m.stacks > 1 ? shape.numel() == wanted.numel() : shape == wanted;
      if (!is_floating(specs()[i].dtype) || !fits)
        faults.push_back(cat("tensor ", m.weight, " ", shape, " does not fit an adapter of [",
                             m.out, ", ", m.in, "]"));
      adapted_[i] = &m;
    }
    const bool untied = take_whole(adapter, faults);
    const auto has_codes = [&](const TensorInfo* t) { return coded && coded->has(t->name); };
    const auto tensors = source_.tensors();
    if (coded && static_cast<size_t>(std::ranges::count_if(tensors, has_codes)) != coded->size())
      faults.push_back("its tensor names do not match the family");
    MT_USER_CHECK(
        faults.empty(), ErrorClass::checkpoint,
        cat(base.path().string(), " does not fit the adapters:\n  ", join(faults, "\n  ")),
        untied ? "merge them with peft, and set tie_word_embeddings to false in the config of the "
                 "model before it is saved"
               : "give the folder of the model for which the adapters were trained");
  }
  const std::vector<TensorSpec>& specs() const override { return plain_->specs(); }

  void read(size_t i, const HfSink& out) override {
    const auto found = adapted_.find(i);
    const auto replaced = whole_.find(i);
    const PeftModule* module = found == adapted_.end() ? nullptr : found->second;
    const TensorInfo& t = *source_.tensors()[i];
    const bool coded = coded_ && coded_->has(t.name);
    const auto biased = biased_.find(i);
    if (!module && !coded && replaced == whole_.end() && biased == biased_.end())
      return plain_->read(i, out);
    std::vector<float> values =
        replaced == whole_.end() ? source_.floats(t, 0, t.shape.numel()) : replaced->second->values;
    if (coded) coded_->replace(t.name, values);
    if (biased != biased_.end()) scale_values(*biased->second, true, values);
    if (!module) return out(as_file_type(values, 0, specs()[i], bytes_));
    if (!module->gains.empty()) {
      PeftModule sized = *module;  // a folder of peft does not say both sizes
      const Shape& shape = specs()[i].shape;
      sized.out = shape[module->transposed ? 1 : 0], sized.in = shape[module->transposed ? 0 : 1];
      scale_values(sized, false, values);
      return out(as_file_type(values, 0, specs()[i], bytes_));
    }
    std::optional<PeftModule> rest;  // codes are those of what was left of the weight
    if (coded && module->start_rank > 0) module = &rest.emplace(without_start(*module));
    if (module->transposed) {
      std::vector<float> delta(values.size(), 0);
      add_product(*module, delta);
      for (int64_t r = 0; r < module->out; ++r)
        for (int64_t c = 0; c < module->in; ++c)
          values[static_cast<size_t>(module->element(r, c))] +=
              delta[static_cast<size_t>(r * module->in + c)];
    } else {
      add_product(*module, values);
    }
    if (!module->magnitude.empty()) set_norms(*module, values);
    out(as_file_type(values, 0, specs()[i], bytes_));
  }

 private:
  /// Takes the tensors that replace those of the folder. True if peft untied one from the tensor
  /// with which the folder's model shares it.
  bool take_whole(const PeftAdapter& adapter, std::vector<std::string>& faults) {
    bool untied = false;
    for (const PeftWhole& whole : adapter.whole) {
      const size_t i = place_of(whole.tensor);
      if (!adapter.tied && is_shared(whole.tensor)) {
        untied = true;
        faults.push_back(untied_fault(whole.tensor));
      } else if (i == specs().size()) {
        faults.push_back(
            cat("there is no tensor ", whole.tensor,
                hf_is_of_score_head(whole.tensor)
                    ? ": to merge, train the adapters from a folder with a head of "
                      "scores, which `mtrain import FOLDER RUN model.labels=N" +
                          std::string(adapter.task == "TOKEN_CLS" ? " model.labels_of=token" : "") +
                          "` and `mtrain export RUN` make"
                    : ""));
      } else if (specs()[i].shape != whole.shape) {
        faults.push_back(cat("tensor ", whole.tensor, " ", specs()[i].shape, " is ", whole.shape,
                             " with the adapters"));
      }
      whole_[i] = &whole;
      for (const std::string& copy : whole.copies)
        if (const size_t other = place_of(copy); other < specs().size()) whole_[other] = &whole;
    }
    return untied;
  }
  /// Whether the folder's model has one tensor for its embedding and its output head, and this is
  /// the name of either.
  bool is_shared(const std::string& tensor) const {
    if (place_of("lm_head.weight") < specs().size()) return false;
    if (tensor.ends_with("lm_head.weight"))
      return std::ranges::any_of(specs(), is_embedding, &TensorSpec::name);
    return is_embedding(tensor);
  }
  /// Of the tensor, whose name may lack the first part; specs().size() if there is none.
  size_t place_of(const std::string& weight) const {
    auto of = [&](std::string_view name) {
      return static_cast<size_t>(std::ranges::find(specs(), name, &TensorSpec::name) -
                                 specs().begin());
    };
    const size_t i = of(weight);
    return i < specs().size() ? i : of(without_root(weight));
  }

  const HfWeights source_;
  const std::unique_ptr<HfTensorSource> plain_;
  const CodedValues* coded_;                              // null: the folder's values
  std::map<size_t, const PeftModule*> adapted_, biased_;  // biased: of biases with gains
  std::map<size_t, const PeftWhole*> whole_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<float> row_norms(std::span<const float> values, int64_t out, int64_t in,
                             bool transposed) {
  MT_CHECK_EQ(static_cast<int64_t>(values.size()), out * in);
  std::vector<double> squares(static_cast<size_t>(out), 0);
  const float* next = values.data();
  const int64_t lines = transposed ? in : out, length = transposed ? out : in;
  for (int64_t line = 0; line < lines; ++line)
    for (int64_t i = 0; i < length; ++i, ++next)
      squares[static_cast<size_t>(transposed ? i : line)] +=
          static_cast<double>(*next) * static_cast<double>(*next);
  std::vector<float> norms(squares.size());
  std::ranges::transform(squares, norms.begin(),
                         [](double x) { return static_cast<float>(std::sqrt(x)); });
  return norms;
}

void add_product(const PeftModule& m, std::span<float> values) {
  MT_CHECK_EQ(static_cast<int64_t>(values.size()), m.out * m.in);
  std::vector<float> sum(static_cast<size_t>(m.in));
  for (int64_t row = 0; row < m.out; ++row) {
    std::ranges::fill(sum, 0.0f);
    for (int64_t k = 0; k < m.rank; ++k) {
      const float factor = m.b[static_cast<size_t>(row * m.rank + k)];
      if (factor == 0) continue;  // ranks of other matrices of the weight
      const float* a = m.a.data() + k * m.in;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * a[i];
    }
    float* to = values.data() + row * m.in;
    for (size_t i = 0; i < sum.size(); ++i) to[i] += static_cast<float>(m.scale) * sum[i];
  }
}

HfExported write_merged(const HfDir& base, const PeftAdapter& adapter, std::optional<DType> dtype,
                        uint64_t shard_bytes, const HfFamily* family, HfFolderWriter& out,
                        const CodedValues* coded) {
  MergedTensors tensors(base, adapter, dtype, shard_bytes, family, coded);
  return write_hf_weights(tensors, shard_bytes, out);
}

}  // namespace mtrain
