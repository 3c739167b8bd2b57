#include "mtrain/train/hf_import.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "mtrain/checkpoint/hf_dir.h"

namespace mtrain {
namespace {

constexpr size_t kMaxFaults = 12;

constexpr int64_t kPiece = 1 << 20;  // elements of two tensors that are compared at once

/// A tensor that some exports contain as a copy of another tensor.
struct Repeat {
  const char* tensor;
  const char* parameter;  // that the repeated tensor fills
};
constexpr Repeat kRepeats[] = {{"lm_head.weight", "embed.weight"},
                               {"cls.predictions.decoder.weight", "embed.weight"},
                               {"cls.predictions.decoder.bias", "head.bias"}};

std::vector<float> as_floats(const TensorInfo& t, int64_t begin, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  auto convert = [&](auto tag) {
    using T = decltype(tag);
    const std::byte* from = t.data.data() + static_cast<size_t>(begin) * sizeof(T);
    for (size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, double>)
        out[i] = static_cast<float>(value);
      else
        out[i] = to_float(value);
    }
  };
  switch (*t.dtype) {
    case DType::f32:
      convert(float{});
      break;
    case DType::bf16:
      convert(bf16{});
      break;
    case DType::f16:
      convert(f16{});
      break;
    case DType::f64:
      convert(double{});
      break;
    default:
      MT_CHECK(false, name(*t.dtype));
  }
  return out;
}

std::vector<float> as_floats(const TensorInfo& t) { return as_floats(t, 0, t.shape.numel()); }

class Importer {
 public:
  Importer(const HfDir& source, ParamList& parameters) : source_(source), parameters_(parameters) {}

  /// Reports everything in which the folder's tensors differ from the parameters. Reads no values.
  void match(const Model& model) {
    std::set<std::string> matched;
    for (const auto& name : model.hf_unused())
      if (const TensorInfo* t = find(name)) used_.insert(t->name);
    const std::vector<HfParameter> entries = model.hf_parameters();
    for (const auto& entry : entries) {
      untied_ |= entry.parameter == "head.weight";
      Parameter* p = parameters_.find(entry.parameter);
      if (!p) {  // belongs to another pipeline stage
        for (const auto& piece : entry.pieces)
          if (const TensorInfo* t = find(piece.tensor)) used_.insert(t->name);
        continue;
      }
      matched.insert(entry.parameter);
      match(*p, entry);
    }
    for (const Repeat& repeat : kRepeats) match(repeat, entries);
    for (const auto& p : parameters_.all())
      if (!matched.contains(p.name))
        fault(cat(p.name, " is not listed in the model's table of Hugging Face names"));
    for (const auto* t : source_.tensors())
      if (!used_.contains(t->name) && !ignorable(t->name))
        fault(cat("tensor ", t->name, " ", t->shape, " matches no parameter"));
    require_all_rows_read();
    if (faults_.empty()) return;
    size_t total = faults_.size();
    if (total > kMaxFaults) {
      faults_.resize(kMaxFaults);
      faults_.push_back(cat("and ", total - kMaxFaults, " more"));
    }
    throw Error(
        ErrorClass::checkpoint,
        cat(source_.path().string(), " does not fit this model:\n  ", join(faults_, "\n  ")),
        "leave out the settings of the model section that config.json determines; if the "
        "checkpoint has parts that this model type does not have, choose another model.type");
  }

  /// Fills the parameters. REQUIRES: match() reported nothing.
  void fill(const Model& model) const {
    for (const auto& entry : model.hf_parameters())
      if (Parameter* p = parameters_.find(entry.parameter)) fill(*p, entry);
    for (const Copy& copy : copies_) require_equal(copy);
  }

 private:
  void fault(std::string text) { faults_.push_back(std::move(text)); }
  // Buffers that some exports contain in addition to the weights, and the second copy of a tied
  // embedding that is stored for the head, where the model's table names no embedding to compare it
  // with.
  bool ignorable(std::string_view name) const {
    return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
           name.ends_with(".attn.masked_bias") || (name == "lm_head.weight" && !untied_);
  }
  // Exports differ in whether names have the family's prefix ("model.", "transformer.").
  const TensorInfo* find(const std::string& name) const {
    if (const auto* t = find_rootless(name)) return t;
    // Checkpoints converted from TensorFlow name a norm's tensors gamma and beta.
    for (auto [now, then] : {std::pair{".LayerNorm.weight", ".LayerNorm.gamma"},
                             {".LayerNorm.bias", ".LayerNorm.beta"}})
      if (name.ends_with(now))
        return find_rootless(name.substr(0, name.size() - std::string_view(now).size()) + then);
    return nullptr;
  }
  const TensorInfo* find_rootless(const std::string& name) const {
    if (const auto* t = source_.find(name)) return t;
    size_t dot = name.find('.');
    return dot == std::string::npos ? nullptr : source_.find(name.substr(dot + 1));
  }

  struct Copy {
    const TensorInfo *copy, *original;
  };

  /// Notes a tensor that repeats another one, if the folder has it and the model has no place of
  /// its own for it. Only the ranks that have the parameter compare the values.
  void match(const Repeat& repeat, const std::vector<HfParameter>& entries) {
    const TensorInfo* copy = find(repeat.tensor);
    const HfParameter* repeated = nullptr;
    for (const HfParameter& entry : entries) {
      for (const HfPiece& piece : entry.pieces)
        if (piece.tensor == repeat.tensor) return;
      if (entry.parameter == repeat.parameter && entry.pieces.size() == 1) repeated = &entry;
    }
    const TensorInfo* original = repeated ? find(repeated->pieces[0].tensor) : nullptr;
    if (!copy || !original) return;
    used_.insert(copy->name);
    if (copy->shape != original->shape)
      return fault(cat("tensor ", copy->name, " ", copy->shape, " is no copy of ", original->name,
                       " ", original->shape, ", and this model has one matrix for both"));
    if (!copy->dtype || !is_floating(*copy->dtype))
      return fault(cat(copy->name, ": type ", copy->file_dtype, " cannot be imported"));
    if (parameters_.find(repeat.parameter)) copies_.push_back({copy, original});
  }

  void require_equal(const Copy& pair) const {
    const int64_t count = pair.copy->shape.numel();
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t size = std::min(kPiece, count - begin);
      const std::vector<float> copy = as_floats(*pair.copy, begin, size),
                               original = as_floats(*pair.original, begin, size);
      const auto [at, other] = std::mismatch(copy.begin(), copy.end(), original.begin());
      if (at == copy.end()) continue;
      throw Error(
          ErrorClass::checkpoint,
          cat(source_.path().string(), ": tensor ", pair.copy->name, " differs from ",
              pair.original->name, " at element ", begin + (at - copy.begin()), " (", *at, " and ",
              *other, "), and this model has one parameter for both"),
          pair.copy->shape.rank() == 2
              ? "if the head has its own matrix, set tie_word_embeddings to false in config.json; "
                "if it was left over from another model, remove it from the file"
              : "export the folder again, without this tensor or with an equal one");
    }
  }

  void require_finite(const TensorInfo& t, const std::vector<float>& values) const {
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad == values.end()) return;
    throw Error(ErrorClass::checkpoint,
                cat(source_.path().string(), ": tensor ", t.name, ": element ",
                    bad - values.begin(), " is ", std::isnan(*bad) ? "nan" : "infinite"),
                "training from such weights cannot work: get the folder again, or export it from "
                "an earlier checkpoint");
  }

  void match(const Parameter& p, const HfParameter& entry) {
    Shape whole = as_rows(p.global);
    int64_t row_size = whole.numel() / whole[0], covered = 0;
    for (const auto& piece : entry.pieces) {
      const TensorInfo* t = find(piece.tensor);
      if (!t) return fault(cat(p.name, " ", p.global, ": tensor ", piece.tensor, " is missing"));
      used_.insert(t->name);
      if (!t->dtype || !is_floating(*t->dtype))
        return fault(cat(t->name, ": type ", t->file_dtype, " cannot be imported"));
      int64_t rows = piece.rows < 0 ? whole[0] : piece.rows;
      if (!piece_fits(p, piece, *t, rows, row_size)) return;
      read_[t->name].push_back({piece.source_row, rows, rows_of(*t, piece)});
      covered += rows;
    }
    MT_CHECK(covered == whole[0], p.name, ": ", covered, " rows of ", whole[0]);
  }

  void fill(Parameter& p, const HfParameter& entry) const {
    std::vector<float> values(static_cast<size_t>(
        p.global.numel()));  // of the whole parameter; this rank may hold only a shard of it
    Shape whole = as_rows(p.global);
    for (const auto& piece : entry.pieces) {
      const TensorInfo& t = *find(piece.tensor);
      const std::vector<float> floats = as_floats(t);
      require_finite(t, floats);
      copy(floats, t, piece, piece.rows < 0 ? whole[0] : piece.rows, whole.numel() / whole[0],
           values);
    }
    ExecutionContext& ctx = p.master.context();
    std::vector<float> own(static_cast<size_t>(p.numel()));
    for (const ParamBox& box : p.boxes())
      for_each_run(box.global, p.global, box.local, p.local,
                   [&](int64_t global, int64_t local, int64_t count) {
                     std::copy_n(values.data() + global, count, own.data() + local);
                   });
    ctx.upload(p.master, own.data());
    if (p.value.dtype() != DType::f32) ctx.copy(p.value, p.master);
  }

  static int64_t rows_of(const TensorInfo& t, const HfPiece& piece) {
    return t.shape[piece.transpose ? 1 : 0];
  }

  /// A tensor with more rows than the model reads belongs to another model: queries, keys or values
  /// of more heads.
  void require_all_rows_read() {
    for (auto& [name, parts] : read_) {
      std::sort(parts.begin(), parts.end(),
                [](const ReadRows& a, const ReadRows& b) { return a.begin < b.begin; });
      int64_t end = 0;
      for (const ReadRows& part : parts)
        if (part.begin <= end) end = std::max(end, part.begin + part.count);
      if (const int64_t all = parts.front().of_tensor; end < all)
        fault(cat("tensor ", name, " has ", all, " rows, and this model has a place for ", end));
    }
  }

  /// Stacked matrices, such as those of experts, are treated as one matrix with more rows.
  static Shape as_rows(const Shape& shape) {
    return shape.rank() == 3 ? Shape{shape[0] * shape[1], shape[2]} : shape;
  }

  bool piece_fits(const Parameter& p, const HfPiece& piece, const TensorInfo& t, int64_t rows,
                  int64_t row_size) {
    int rank = as_rows(p.global).rank();
    bool fits = t.shape.rank() == rank;
    if (fits) {
      int64_t have_rows = rows_of(t, piece),
              have_cols = rank == 2 ? t.shape[piece.transpose ? 0 : 1] : 1;
      bool whole = piece.rows < 0;
      fits = have_cols == row_size &&
             (whole ? have_rows == rows : piece.source_row + rows <= have_rows);
    }
    if (!fits) fault(cat(p.name, " ", p.global, " does not match tensor ", t.name, " ", t.shape));
    return fits;
  }

  static void copy(const std::vector<float>& from, const TensorInfo& t, const HfPiece& piece,
                   int64_t rows, int64_t row_size, std::vector<float>& to) {
    int64_t stored_rows = piece.transpose ? t.shape[1] : 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < row_size; ++c) {
        int64_t source = piece.source_row + r;
        int64_t at = piece.transpose ? c * stored_rows + source : source * row_size + c;
        to[static_cast<size_t>((piece.row + r) * row_size + c)] = from[static_cast<size_t>(at)];
      }
  }

  const HfDir& source_;
  ParamList& parameters_;
  std::set<std::string> used_;
  struct ReadRows {
    int64_t begin, count, of_tensor;
  };
  std::map<std::string, std::vector<ReadRows>> read_;  // by the name of a tensor
  std::vector<Copy> copies_;
  bool untied_ = false;  // the head has its own matrix
  std::vector<std::string> faults_;
};

}  // namespace

void require_hf_fit(const HfDir& source, const Model& model, ParamList& parameters) {
  Importer(source, parameters).match(model);
}

void import_hf_weights(const HfDir& source, const Model& model, ParamList& parameters) {
  Importer importer(source, parameters);
  importer.match(model);
  importer.fill(model);
}

}  // namespace mtrain
