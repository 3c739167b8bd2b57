#include "mtrain/train/hf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/train/hf_import.h"

namespace mtrain {
namespace {

constexpr size_t kMostFaults = 12;

template <class T>
std::vector<std::byte> packed(const std::vector<float>& values, const std::string& tensor) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    if constexpr (!std::is_same_v<T, float>)
      MT_USER_CHECK(std::isfinite(to_float(value)) || !std::isfinite(values[i]),
                    ErrorClass::numeric,
                    cat("tensor ", tensor, ": element ", i, " is ", values[i],
                        ", which this type cannot represent"),
                    "write bf16 or fp32: --dtype bf16");
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  return out;
}

std::vector<std::byte> as_type(const std::vector<float>& values, DType dtype,
                               const std::string& tensor) {
  switch (dtype) {
    case DType::bf16:
      return packed<bf16>(values, tensor);
    case DType::f16:
      return packed<f16>(values, tensor);
    default:
      return packed<float>(values, tensor);
  }
}

/// Adds the boxes of rows [row, row + rows) of a parameter to `out`: as a matrix with the first two
/// of three dimensions as rows, or, with rows of width 1, of a table of vectors.
void add_boxes(const std::string& name, const Shape& shape, int64_t width, int64_t row,
               int64_t rows, float* to, std::vector<Slice>& out) {
  auto add = [&](Shape offset, Shape extent) {
    const auto bytes = static_cast<size_t>(extent.numel()) * sizeof(float);
    out.push_back({name, DType::f32, shape, offset, extent,
                   std::as_writable_bytes(std::span(to, bytes / sizeof(float)))});
    to += extent.numel();
  };
  if (shape.rank() == 0) return add(Shape{}, Shape{});
  if (shape.rank() == 1) return add(Shape{row}, Shape{rows});
  if (shape.rank() == 2 && width == shape[1]) return add(Shape{row, 0}, Shape{rows, shape[1]});
  const int64_t height = shape[1];
  const bool vectors = shape.rank() == 2;
  while (rows > 0) {
    const int64_t from = row % height;
    const int64_t whole = from == 0 ? rows / height : 0;
    const int64_t count = whole > 0 ? whole * height : std::min(rows, height - from);
    if (vectors)
      add(Shape{row / height, from}, whole > 0 ? Shape{whole, height} : Shape{1, count});
    else if (whole > 0)
      add(Shape{row / height, 0, 0}, Shape{whole, height, shape[2]});
    else
      add(Shape{row / height, from, 0}, Shape{1, count, shape[2]});
    row += count;
    rows -= count;
  }
}

/// The tensors of a family, read from a checkpoint.
class CheckpointTensors final : public HfTensorReader {
 public:
  CheckpointTensors(const CheckpointStore& store, int64_t step, const HfExport& options)
      : store_(store), step_(step), options_(options), heads_(options.model.heads()) {
    for (const StoredTensorInfo& t : store.tensors(step)) stored_[t.name] = t.shape;
    plan();
  }

  const std::vector<TensorSpec>& specs() const { return specs_; }

  void load(const std::vector<size_t>& shard) override {
    std::vector<Slice> slices;
    std::map<size_t, std::vector<std::vector<float>>> spread;  // rows to be spread over a tensor
    values_.clear();
    for (size_t i : shard) {
      const HfPlacement& place = placements_[i];
      std::vector<float>& values = values_[i];
      values.resize(static_cast<size_t>(place.shape.numel()));
      for (const HfRows& run : place.rows) {
        float* to = values.data() + run.tensor_row * place.width;
        if (run.tensor_step > 1)
          to = spread[i].emplace_back(static_cast<size_t>(run.rows * place.width)).data();
        const std::string& name = tensors_[i].parameters[run.parameter];
        add_boxes(name, stored_.at(name), place.width, run.parameter_row, run.rows, to, slices);
      }
    }
    store_.load(step_, slices);
    for (auto& [i, pieces] : spread) spread_rows(i, pieces);
  }

  std::vector<std::byte> take(size_t i) override {
    const HfPlacement& place = placements_[i];
    std::vector<float> values = std::move(values_.at(i));
    values_.erase(i);
    if (place.transposed) {
      std::vector<float> turned(values.size());
      for (int64_t row = 0; row < place.stacks * place.height; ++row)
        for (int64_t c = 0; c < place.width; ++c)
          turned[static_cast<size_t>(place.element(row, c))] =
              values[static_cast<size_t>(row * place.width + c)];
      values = std::move(turned);
    }
    return as_type(values, specs_[i].dtype, specs_[i].name);
  }

 private:
  /// The shape of a parameter of which the padding of the table of tokens is left out.
  Shape shape_of(const HfTensor& tensor, const std::string& parameter) const {
    Shape shape = stored_.at(parameter);
    if (tensor.rule->vocabulary && options_.vocab_size < shape[0]) shape[0] = options_.vocab_size;
    return shape;
  }

  void plan() {
    std::vector<std::string> faults;
    std::set<std::string> placed;
    for (HfTensor& tensor : hf_tensors(options_.family, options_.model)) {
      std::vector<Shape> shapes;
      for (const std::string& name : tensor.parameters) {
        placed.insert(name);
        if (stored_.contains(name))
          shapes.push_back(shape_of(tensor, name));
        else
          faults.push_back(cat("tensor ", tensor.name, ": the checkpoint has no ", name));
      }
      if (shapes.size() < tensor.parameters.size()) continue;
      placements_.push_back(hf_placement(tensor, heads_, shapes));
      specs_.push_back({tensor.name, tensor.rule->buffer ? DType::f32 : options_.dtype,
                        placements_.back().shape});
      tensors_.push_back(std::move(tensor));
    }
    for (const auto& [name, shape] : stored_)
      if (!placed.contains(name) && is_parameter(name, shape))
        faults.push_back(
            cat(name, " ", shape, ": ", options_.family.model_type, " has no tensor for it"));
    if (faults.empty()) return;
    if (faults.size() > kMostFaults) {
      const size_t more = faults.size() - kMostFaults;
      faults.resize(kMostFaults);
      faults.push_back(cat("and ", more, " more"));
    }
    throw Error(ErrorClass::checkpoint,
                cat(store_.step_folder(step_).string(), " does not fit the family ",
                    options_.family.model_type, ":\n  ", join(faults, "\n  ")),
                "choose another family with --family; `mtrain families` lists them");
  }

  /// A stored tensor that is neither optimizer state nor a model's buffer. The step does not say
  /// which are, so a vector counts as a parameter only if the optimizer has state for it.
  bool is_parameter(const std::string& name, const Shape& shape) const {
    for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = name.rfind('.', dot - 1))
      if (stored_.contains(name.substr(0, dot))) return false;
    const auto state = stored_.upper_bound(name + ".");
    return shape.rank() > 1 || (state != stored_.end() && state->first.starts_with(name + "."));
  }

  void spread_rows(size_t i, const std::vector<std::vector<float>>& pieces) {
    const HfPlacement& place = placements_[i];
    size_t next = 0;
    for (const HfRows& run : place.rows) {
      if (run.tensor_step == 1) continue;
      const std::vector<float>& from = pieces[next++];
      for (int64_t r = 0; r < run.rows; ++r)
        std::copy_n(from.data() + r * place.width, place.width,
                    values_.at(i).data() + (run.tensor_row + r * run.tensor_step) * place.width);
    }
  }

  const CheckpointStore& store_;
  const int64_t step_;
  const HfExport& options_;
  const HeadLayout heads_;
  std::map<std::string, Shape> stored_;
  std::vector<HfTensor> tensors_;
  std::vector<HfPlacement> placements_;
  std::vector<TensorSpec> specs_;
  std::map<size_t, std::vector<float>> values_;  // of the shard, as rows
};

/// The tensors of a folder, in another type.
class FolderTensors final : public HfTensorReader {
 public:
  FolderTensors(const HfDir& source, std::optional<DType> dtype) : source_(source) {
    for (const TensorInfo* t : source.tensors()) {
      MT_USER_CHECK(t->dtype, ErrorClass::checkpoint,
                    cat(source.path().string(), ": tensor ", t->name, " has the type ",
                        t->file_dtype, ", which cannot be converted"),
                    "use a folder whose tensors are fp32, bf16, fp16 or whole numbers");
      const DType own = *t->dtype;
      specs_.push_back({t->name, is_floating(own) ? dtype.value_or(own) : own, t->shape});
    }
  }
  const std::vector<TensorSpec>& specs() const { return specs_; }
  void load(const std::vector<size_t>&) override {}
  std::vector<std::byte> take(size_t i) override {
    const TensorInfo& t = *source_.tensors()[i];
    if (*t.dtype == specs_[i].dtype) return {t.data.begin(), t.data.end()};
    return as_type(hf_floats(t, 0, t.shape.numel()), specs_[i].dtype, t.name);
  }

 private:
  const HfDir& source_;
  std::vector<TensorSpec> specs_;
};

HfExported write(const std::vector<TensorSpec>& specs, uint64_t shard_bytes, HfTensorReader& reader,
                 HfFolderWriter& out) {
  HfExported done{.tensors = specs.size()};
  for (const TensorSpec& spec : specs)
    done.bytes += static_cast<uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
  done.files = out.weights(specs, shard_bytes, reader);
  return done;
}

}  // namespace

HfExported export_hf_weights(const CheckpointStore& store, int64_t step, const HfExport& options,
                             HfFolderWriter& out) {
  CheckpointTensors tensors(store, step, options);
  return write(tensors.specs(), options.shard_bytes, tensors, out);
}

HfExported convert_hf_weights(const HfDir& source, std::optional<DType> dtype, uint64_t shard_bytes,
                              HfFolderWriter& out) {
  FolderTensors tensors(source, dtype);
  return write(tensors.specs(), shard_bytes, tensors, out);
}

}  // namespace mtrain
