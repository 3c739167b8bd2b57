#include "mtrain/train/hf_export.h"

#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/checkpoint_reader.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/train/file_values.h"

namespace mtrain {
namespace {

constexpr size_t kMostFaults = 12;

/// Some rows and columns of a tensor or of a parameter, as [out, in].
struct Block {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};

/// Adds the boxes of a block of a parameter to `out`: as a matrix with the first two of three
/// dimensions as rows, or, with rows of width 1, of a table of vectors. They fill `to` row by row.
void add_boxes(const std::string& name, const Shape& shape, int64_t width, const Block& block,
               float* to, std::vector<Slice>& out) {
  auto add = [&](Shape offset, Shape extent) {
    const auto bytes = static_cast<size_t>(extent.numel()) * sizeof(float);
    out.push_back({name, DType::f32, shape, offset, extent,
                   std::as_writable_bytes(std::span(to, bytes / sizeof(float)))});
    to += extent.numel();
  };
  const int64_t column = block.column, columns = block.columns;
  int64_t row = block.row, rows = block.rows;
  if (shape.rank() == 0) return add(Shape{}, Shape{});
  if (shape.rank() == 1) return add(Shape{row}, Shape{rows});
  if (shape.rank() == 2 && width == shape[1]) return add(Shape{row, column}, Shape{rows, columns});
  const int64_t height = shape[1];
  const bool vectors = shape.rank() == 2;
  while (rows > 0) {
    const int64_t from = row % height;
    const int64_t whole = from == 0 ? rows / height : 0;
    const int64_t count = whole > 0 ? whole * height : std::min(rows, height - from);
    if (vectors)
      add(Shape{row / height, from}, whole > 0 ? Shape{whole, height} : Shape{1, count});
    else if (whole > 0)
      add(Shape{row / height, 0, column}, Shape{whole, height, columns});
    else
      add(Shape{row / height, from, column}, Shape{1, count, columns});
    row += count;
    rows -= count;
  }
}

/// The elements that are held at once: a small part of a shard, so that what is in memory (floats,
/// their transposition and the bytes of the file) is less than one. Rows are read in pieces that
/// fit the cache, columns in larger ones, since each has a part of many rows.
constexpr uint64_t kMostOfRows = 1 << 18, kMostOfColumns = 1 << 22;
int64_t piece_elements(uint64_t shard_bytes, uint64_t most) {
  constexpr uint64_t kLeast = 1 << 16, kBytesOfElement = 16;
  return static_cast<int64_t>(std::clamp(shard_bytes / kBytesOfElement, kLeast, most));
}

/// The tensors of a family, read from a checkpoint.
class CheckpointTensors final : public HfTensorSource {
 public:
  CheckpointTensors(const CheckpointStore& store, int64_t step, const HfExport& options)
      : source_(store, step),
        options_(options),
        heads_(options.model.heads()),
        most_of_rows_(piece_elements(options.shard_bytes, kMostOfRows)),
        most_of_columns_(piece_elements(options.shard_bytes, kMostOfColumns)) {
    for (const StoredTensorInfo& t : source_.tensors()) stored_[t.name] = t.shape;
    plan();
  }

  const std::vector<TensorSpec>& specs() const override { return specs_; }

  void read(size_t i, const HfSink& out) override {
    const HfPlacement& place = placements_[i];
    int64_t done = 0;
    auto pass = [&](const std::vector<float>& values) {
      out(as_file_type(values, done, specs_[i], bytes_));
      done += static_cast<int64_t>(values.size());
    };
    if (!place.transposed) {
      const int64_t all = place.stacks * place.height;
      const int64_t rows = std::max<int64_t>(1, most_of_rows_ / std::max<int64_t>(1, place.width));
      for (int64_t row = 0; row < all; row += rows)
        pass(values_of(i, {row, std::min(rows, all - row), 0, place.width}));
      return;
    }
    // The file has the columns of each matrix one after the other.
    const int64_t columns =
        std::max<int64_t>(1, most_of_columns_ / std::max<int64_t>(1, place.height));
    for (int64_t stack = 0; stack < place.stacks; ++stack)
      for (int64_t column = 0; column < place.width; column += columns) {
        const Block block{stack * place.height, place.height, column,
                          std::min(columns, place.width - column)};
        pass(turned(values_of(i, block), block));
      }
  }

 private:
  /// The shape of a parameter of which the padding of the embedding matrix is left out.
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
                cat(source_.folder().string(), " does not fit the family ",
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

  static std::vector<float> turned(const std::vector<float>& values, const Block& block) {
    constexpr int64_t kTile = 32;  // rows and columns that fit the cache together
    std::vector<float> out(values.size());
    for (int64_t row = 0; row < block.rows; row += kTile)
      for (int64_t column = 0; column < block.columns; column += kTile)
        for (int64_t r = row; r < std::min(row + kTile, block.rows); ++r)
          for (int64_t c = column; c < std::min(column + kTile, block.columns); ++c)
            out[static_cast<size_t>(c * block.rows + r)] =
                values[static_cast<size_t>(r * block.columns + c)];
    return out;
  }

  /// A block of a tensor, row by row; valid until the next call.
  const std::vector<float>& values_of(size_t i, const Block& block) {
    const HfPlacement& place = placements_[i];
    std::vector<float>& values = values_;
    values.resize(static_cast<size_t>(block.rows * block.columns));
    std::vector<Slice> slices;
    struct Spread {
      int64_t first, step;  // rows of `values`
      std::vector<float> rows;
    };
    std::list<Spread> spread;  // rows between which those of other parameters lie
    for (const HfRows& run : place.rows) {
      const int64_t step = run.tensor_step, end = block.row + block.rows;
      auto before = [&](int64_t row) {  // rows of the run that lie before this one
        return std::clamp<int64_t>((row - run.tensor_row + step - 1) / step, 0, run.rows);
      };
      const int64_t from = block.row > run.tensor_row ? before(block.row) : 0;
      const int64_t count = (end > run.tensor_row ? before(end) : 0) - from;
      if (count <= 0) continue;
      const int64_t first = run.tensor_row + from * step - block.row;
      float* to = values.data() + first * block.columns;
      if (step > 1)
        to = spread
                 .emplace_back(Spread{
                     first, step, std::vector<float>(static_cast<size_t>(count * block.columns))})
                 .rows.data();
      const std::string& name = tensors_[i].parameters[run.parameter];
      add_boxes(name, stored_.at(name), place.width,
                {run.parameter_row + from, count, block.column, block.columns}, to, slices);
    }
    source_.load(slices);
    for (const Spread& piece : spread)
      for (size_t at = 0, row = static_cast<size_t>(piece.first); at < piece.rows.size();
           at += static_cast<size_t>(block.columns), row += static_cast<size_t>(piece.step))
        std::copy_n(piece.rows.data() + at, block.columns,
                    values.data() + row * static_cast<size_t>(block.columns));
    return values;
  }

  CheckpointReader source_;
  const HfExport& options_;
  const HeadLayout heads_;
  const int64_t most_of_rows_, most_of_columns_;  // elements at once
  std::vector<float> values_;                     // the memory of a piece, which is used again
  std::vector<std::byte> bytes_;
  std::map<std::string, Shape> stored_;
  std::vector<HfTensor> tensors_;
  std::vector<HfPlacement> placements_;
  std::vector<TensorSpec> specs_;
};

/// The tensors of a folder, in another type.
class FolderTensors final : public HfTensorSource {
 public:
  FolderTensors(const HfDir& source, std::optional<DType> dtype, uint64_t shard_bytes,
                const HfFamily* family = nullptr)
      : source_(source),
        most_(piece_elements(shard_bytes, kMostOfRows)),
        most_if_quantized_(piece_elements(shard_bytes, kMostOfColumns)) {
    for (const TensorInfo* t : source_.tensors()) {
      MT_USER_CHECK(t->dtype, ErrorClass::checkpoint,
                    cat(source.path().string(), ": tensor ", t->name, " has the type ",
                        t->file_dtype, ", which cannot be converted"),
                    "use a folder whose tensors are fp32, bf16, fp16 or whole numbers");
      const DType own = *t->dtype;
      const bool buffer = family && hf_is_buffer(*family, t->name);
      const DType wanted = buffer && dtype ? DType::f32 : dtype.value_or(own);
      specs_.push_back({t->name, is_floating(own) ? wanted : own, t->shape});
    }
  }
  const std::vector<TensorSpec>& specs() const override { return specs_; }
  void read(size_t i, const HfSink& out) override {
    const TensorInfo& t = *source_.tensors()[i];
    const int64_t all = t.shape.numel();
    const auto width = static_cast<int64_t>(size_of(*t.dtype));
    // Of MXFP4, the codes of an expert are read as a whole, and its columns are rows of the tensor.
    const int64_t most = source_.is_quantized(t) ? most_if_quantized_ : most_;
    for (int64_t begin = 0; begin < all; begin += most) {
      const int64_t count = std::min(most, all - begin);
      if (*t.dtype == specs_[i].dtype && !source_.is_quantized(t)) {
        bytes_.resize(static_cast<size_t>(count * width));
        source_.read(t, static_cast<uint64_t>(begin * width), bytes_);
        out(bytes_);
      } else {
        values_.resize(static_cast<size_t>(count));
        source_.floats(t, begin, values_);
        out(as_file_type(values_, begin, specs_[i], bytes_));
      }
    }
  }

 private:
  const HfWeights source_;
  const int64_t most_, most_if_quantized_;  // elements at once
  std::vector<float> values_;               // the memory of a piece, which is used again
  std::vector<std::byte> bytes_;
  std::vector<TensorSpec> specs_;
};

}  // namespace

HfExported write_hf_weights(HfTensorSource& reader, uint64_t shard_bytes, HfFolderWriter& out) {
  const std::vector<TensorSpec>& specs = reader.specs();
  HfExported done{.tensors = specs.size()};
  for (const TensorSpec& spec : specs)
    done.bytes += static_cast<uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
  const HfWritten written = out.weights(specs, shard_bytes, reader);
  done.files = written.files, done.ranks = written.ranks;
  return done;
}

std::unique_ptr<HfTensorSource> hf_checkpoint_tensors(const CheckpointStore& store, int64_t step,
                                                      const HfExport& options) {
  return std::make_unique<CheckpointTensors>(store, step, options);
}

HfExported export_hf_weights(const CheckpointStore& store, int64_t step, const HfExport& options,
                             HfFolderWriter& out) {
  std::optional<CheckpointTensors> tensors;
  out.team().together([&] { tensors.emplace(store, step, options); });
  return write_hf_weights(*tensors, options.shard_bytes, out);
}

std::unique_ptr<HfTensorSource> hf_folder_tensors(const HfDir& source, std::optional<DType> dtype,
                                                  uint64_t shard_bytes, const HfFamily* family) {
  return std::make_unique<FolderTensors>(source, dtype, shard_bytes, family);
}

HfExported convert_hf_weights(const HfDir& source, std::optional<DType> dtype, uint64_t shard_bytes,
                              HfFolderWriter& out, const HfFamily* family) {
  FolderTensors tensors(source, dtype, shard_bytes, family);
  return write_hf_weights(tensors, shard_bytes, out);
}

}  // namespace mtrain
