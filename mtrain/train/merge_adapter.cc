// Adds adapters to the weights of a Hugging Face folder.
#include <algorithm>
#include <map>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/train/coded_values.h"
#include "mtrain/train/file_values.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {
namespace {

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
      const Shape wanted = m.transposed ? Shape{m.in, m.out} : Shape{m.out, m.in};
      if (!is_floating(specs()[i].dtype) || shape != wanted)
        faults.push_back(cat("tensor ", m.weight, " ", shape, " does not fit an adapter of [",
                             m.out, ", ", m.in, "]"));
      adapted_[i] = &m;
    }
    const auto has_codes = [&](const TensorInfo* t) { return coded && coded->has(t->name); };
    const auto tensors = source_.tensors();
    if (coded && static_cast<size_t>(std::ranges::count_if(tensors, has_codes)) != coded->size())
      faults.push_back("the names of its tensors are not those of the family");
    MT_USER_CHECK(
        faults.empty(), ErrorClass::checkpoint,
        cat(base.path().string(), " does not fit the adapters:\n  ", join(faults, "\n  ")),
        "give the folder of the model for which the adapters were trained");
  }
  const std::vector<TensorSpec>& specs() const override { return plain_->specs(); }

  void read(size_t i, const HfSink& out) override {
    const auto found = adapted_.find(i);
    const PeftModule* module = found == adapted_.end() ? nullptr : found->second;
    const TensorInfo& t = *source_.tensors()[i];
    const bool coded = coded_ && coded_->has(t.name);
    if (!module && !coded) return plain_->read(i, out);
    std::vector<float> values = source_.floats(t, 0, t.shape.numel());
    if (coded) coded_->replace(t.name, values);
    if (!module) return out(as_file_type(values, 0, specs()[i], bytes_));
    if (module->transposed) {
      std::vector<float> delta(values.size(), 0);
      add_product(*module, delta);
      const auto rows = static_cast<size_t>(module->out), columns = static_cast<size_t>(module->in);
      for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c) values[c * rows + r] += delta[r * columns + c];
    } else {
      add_product(*module, values);
    }
    out(as_file_type(values, 0, specs()[i], bytes_));
  }

 private:
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
  const CodedValues* coded_;  // null: the folder's values
  std::map<size_t, const PeftModule*> adapted_;
  std::vector<std::byte> bytes_;
};

}  // namespace

void add_product(const PeftModule& m, std::span<float> values) {
  MT_CHECK_EQ(static_cast<int64_t>(values.size()), m.out * m.in);
  std::vector<float> sum(static_cast<size_t>(m.in));
  for (int64_t row = 0; row < m.out; ++row) {
    std::ranges::fill(sum, 0.0f);
    for (int64_t k = 0; k < m.rank; ++k) {
      const float factor = m.b[static_cast<size_t>(row * m.rank + k)];
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
