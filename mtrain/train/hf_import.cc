#include "mtrain/train/hf_import.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "mtrain/base/log.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/nn/coded_parameter.h"
#include "mtrain/nn/score_head.h"
#include "mtrain/train/principal_start.h"

namespace mtrain {
namespace {

constexpr size_t kMaxFaults = 12;

constexpr int64_t kPiece = 1 << 20;  // elements of two tensors that are compared at once

class Importer {
 public:
  Importer(const HfDir& source, const HfFamily& family, const HfModel& model, ParamList& parameters,
           const HfImportOptions& options)
      : source_(source),
        family_(family),
        model_(model),
        parameters_(parameters),
        options_(options),
        heads_(model.heads()),
        entries_(entries(family, model, options)),
        pairs_(hf_copies(family, model)) {}

  /// Reports everything in which the folder's tensors differ from the parameters. Reads no values.
  void match() {
    std::set<std::string> placed;
    for (const HfTensor& entry : entries_) {
      placed.insert(entry.parameters.begin(), entry.parameters.end());
      match(entry);
    }
    for (const auto& [copy, original] : pairs_) match_copy(copy, original);
    for (const auto& p : parameters_.all())
      if (!placed.contains(p.name) && !starts_random(p) && !p.adapter)
        fault(cat(p.name, " ", p.global, " is in no tensor of the family ", family_.model_type));
    size_t unbuilt = 0;
    for (const auto* t : source_.tensors()) {
      if (used_.contains(t->name) || hf_unused(family_, t->name)) continue;
      if (hf_is_other_head(family_, model_, t->name)) continue;
      if (hf_is_unbuilt_depth(family_, model_, t->name))
        ++unbuilt;
      else
        fault(cat("tensor ", t->name, " ", t->shape, " matches no parameter"));
    }
    if (unbuilt > 0)
      log_info(source_.path().string(), ": ", unbuilt,
               " tensors of multi-token prediction are not read; model.mtp.layers says how many of "
               "its blocks the model has");
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
  void fill() {
    for (auto& p : parameters_.all())
      if (auto sources = sources_.find(p.name); sources != sources_.end())
        fill(p, sources->second);
      else if (starts_random(p))
        fill_random(p);
    for (StateBuffer& buffer : parameters_.buffers())
      if (auto sources = sources_.find(buffer.name); sources != sources_.end())
        fill_values(buffer.values, sources->second);
    for (const Copy& copy : copies_) require_equal(copy);
  }

 private:
  /// A tensor that holds rows of a parameter.
  struct Source {
    const TensorInfo* tensor;
    HfPlacement placement;
    size_t index;     // of the parameter in the placement
    bool vocabulary;  // a row for each token
  };

  static std::vector<HfTensor> entries(const HfFamily& family, const HfModel& model,
                                       const HfImportOptions& options) {
    std::vector<HfTensor> out = hf_tensors(family, model);
    if (options.upcycling)
      for (HfTensor& tensor : out)
        for (std::string& name : tensor.parameters) name = upcycled_name(model, name);
    return out;
  }

  /// The router of experts that are made of a dense MLP, or a new head of scores.
  bool starts_random(const Parameter& p) const {
    return (options_.upcycling && p.name.find(".mlp.router.") != std::string::npos) ||
           is_new_score(p.name);
  }
  bool is_new_score(const std::string& parameter) const {
    return options_.new_score && is_of_score_head(parameter);
  }
  bool is_upcycled(const std::string& parameter) const {
    return options_.upcycling && mtrain::is_upcycled(parameter);
  }

  void fault(std::string text) { faults_.push_back(std::move(text)); }
  /// The tensor by its name, by its name without the family's prefix ("model.", "transformer."), or
  /// by a former name.
  const TensorInfo* find(const std::string& name) const {
    if (const auto* t = find_rootless(name)) return t;
    for (const auto& [now, then] : family_.former_endings)
      if (name.ends_with(now))
        return find_rootless(name.substr(0, name.size() - now.size()) + then);
    return nullptr;
  }
  const TensorInfo* find_rootless(const std::string& name) const {
    if (const auto* t = source_.find(name)) return t;
    const std::string_view rest = without_root(name);
    return rest.size() == name.size() ? nullptr : source_.find(rest);
  }

  struct Copy {
    const TensorInfo *copy, *original;
  };

  /// Notes a tensor that repeats another one, if the folder has it. Only the ranks that have the
  /// parameter compare the values.
  void match_copy(const std::string& copy_name, const std::string& original_name) {
    const TensorInfo *copy = find(copy_name), *original = find(original_name);
    if (!copy || !original || used_.contains(copy->name)) return;
    used_.insert(copy->name);
    if (copy->shape != original->shape)
      return fault(cat("tensor ", copy->name, " ", copy->shape, " must be a copy of ",
                       original->name, " ", original->shape,
                       ": this model has one matrix for both"));
    if (!copy->dtype || !is_floating(*copy->dtype))
      return fault(cat(copy->name, ": type ", copy->file_dtype, " cannot be imported"));
    const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const HfTensor& t) { return t.name == original_name; });
    if (entry != entries_.end() && parameters_.find(entry->parameters[0]))
      copies_.push_back({copy, original});
  }

  void require_equal(const Copy& pair) const {
    const int64_t count = pair.copy->shape.numel();
    for (int64_t begin = 0; begin < count; begin += kPiece) {
      const int64_t size = std::min(kPiece, count - begin);
      const std::vector<float> copy = source_.floats(*pair.copy, begin, size),
                               original = source_.floats(*pair.original, begin, size);
      const auto [at, other] = std::mismatch(copy.begin(), copy.end(), original.begin());
      if (at == copy.end()) continue;
      throw Error(
          ErrorClass::checkpoint,
          cat(source_.path().string(), ": tensor ", pair.copy->name, " differs from ",
              pair.original->name, " at element ", begin + (at - copy.begin()), " (", *at, " and ",
              *other, "), and this model has one parameter for both"),
          pair.copy->name.ends_with("lm_head.weight")
              ? "if the head has its own matrix, set tie_word_embeddings to false in config.json; "
                "if it was left over from another model, remove it from the file"
              : "export the folder again, without this tensor or with an equal one");
    }
  }

  /// `begin`: the element with which the values begin.
  void require_finite(const TensorInfo& t, int64_t begin, std::span<const float> values) const {
    const auto at = first_nonfinite(DType::f32, std::as_bytes(values));
    if (!at) return;
    const auto bad = values.begin() + static_cast<std::ptrdiff_t>(*at);
    throw Error(
        ErrorClass::checkpoint,
        cat(source_.path().string(), ": tensor ", t.name, ": element ",
            begin + static_cast<int64_t>(*at), " is ", std::isnan(*bad) ? "nan" : "infinite"),
        "training from such weights cannot work: get the folder again, or export it from "
        "an earlier checkpoint");
  }

  /// Of a parameter or a buffer of this rank, in the folder's model.
  std::optional<Shape> shape_of(const std::string& name) const {
    if (const Parameter* p = parameters_.find(name))
      return is_upcycled(name) ? dense_shape(*options_.upcycling, name, p->global) : p->global;
    for (const StateBuffer& buffer : parameters_.buffers())
      if (buffer.name == name) return Shape{static_cast<int64_t>(buffer.values.size())};
    return std::nullopt;
  }

  void match(const HfTensor& entry) {
    const TensorInfo* t = find(entry.name);
    std::vector<Shape> shapes;
    std::string ours;
    for (const std::string& name : entry.parameters)
      if (const auto shape = shape_of(name)) {
        shapes.push_back(*shape);
        ours += cat(ours.empty() ? "" : ", ", name, " ", *shape);
        if (entry.rule->vocabulary && options_.folder_vocab && shape->rank() > 0)
          shapes.back()[0] = *options_.folder_vocab;
      }
    if (t) used_.insert(t->name);
    if (shapes.size() < entry.parameters.size()) return;  // belongs to another pipeline stage
    if (is_new_score(entry.parameters[0])) return;
    if (!t) return fault(cat(ours, ": tensor ", entry.name, " is missing"));
    if (!t->dtype || !is_floating(*t->dtype))
      return fault(cat(t->name, ": type ", t->file_dtype, " cannot be imported"));
    HfPlacement placement = hf_placement(entry, heads_, shapes);
    const bool resized = entry.rule->vocabulary && options_.folder_vocab;
    if (t->shape != placement.shape && (resized || is_upcycled(entry.parameters[0])))
      return fault(cat("tensor ", t->name, " is ", t->shape, ", and config.json says ",
                       placement.shape, " (for ", ours, ")"));
    if (t->shape != placement.shape) return mismatch(*t, placement, ours);
    for (size_t i = 0; i < entry.parameters.size(); ++i)
      sources_[entry.parameters[i]].push_back({t, placement, i, entry.rule->vocabulary});
  }

  /// A tensor with more rows than the model reads belongs to another model: queries, keys or values
  /// of more heads.
  void mismatch(const TensorInfo& t, const HfPlacement& placement, const std::string& ours) {
    const int rank = placement.shape.rank(), rows = placement.transposed ? rank - 1 : 0;
    bool more = t.shape.rank() == rank && t.shape[rows] > placement.shape[rows];
    for (int d = 0; more && d < rank; ++d) more = d == rows || t.shape[d] == placement.shape[d];
    const bool part = placement.rows.size() > 1 || placement.stacks > 1;
    if (more && part)
      return fault(cat("tensor ", t.name, " has ", t.shape[rows],
                       " rows, but this model's parameter has ", placement.shape[rows]));
    fault(cat(ours, " does not match tensor ", t.name, " ", t.shape,
              part ? cat(", wanted ", placement.shape) : ""));
  }

  /// A tensor's values; of the last one that was asked for, they are kept, since a tensor may hold
  /// two parameters.
  const std::vector<float>& whole(const TensorInfo& t) {
    if (whole_of_ == &t) return whole_;
    whole_of_ = nullptr;
    whole_.resize(static_cast<size_t>(t.shape.numel()));
    source_.floats(t, 0, whole_);
    require_finite(t, 0, whole_);
    whole_of_ = &t;
    return whole_;
  }

  /// Whether each of the parameter's parts is a sequence of rows in the tensor, too. Experts in
  /// MXFP4 are stored column by column.
  bool is_in_rows(const Source& source) const {
    const bool columns = source_.quantization().method == HfQuantization::Method::mxfp4 &&
                         source_.is_quantized(*source.tensor);
    const std::vector<HfRows>& runs = source.placement.rows;
    return !columns && !source.placement.transposed &&
           std::all_of(runs.begin(), runs.end(),
                       [](const HfRows& r) { return r.tensor_step == 1; });
  }

  /// The whole parameter or buffer; this rank may hold only a shard of it.
  void fill_values(std::span<float> values, const std::vector<Source>& sources) {
    for (const Source& source : sources) {
      if (source.vocabulary && options_.folder_vocab) {
        std::vector<float> all(std::max(values.size(), whole(*source.tensor).size()));
        copy(whole(*source.tensor), source, all);
        std::copy_n(all.begin(), values.size(), values.begin());
        fill_added_rows(values, *options_.folder_vocab, source.placement.width);
      } else if (is_in_rows(source)) {
        read_rows(source, values);
      } else {
        copy(whole(*source.tensor), source, values);
      }
    }
  }

  /// Reads rows to their places.
  void read_rows(const Source& source, std::span<float> values) const {
    const int64_t width = source.placement.width;
    for (const HfRows& run : source.placement.rows) {
      if (run.parameter != source.index) continue;
      const auto rows = values.subspan(static_cast<size_t>(run.parameter_row * width),
                                       static_cast<size_t>(run.rows * width));
      source_.floats(*source.tensor, run.tensor_row * width, rows);
      require_finite(*source.tensor, run.tensor_row * width, rows);
    }
  }

  /// Rows from `known` on get the mean of those before them.
  static void fill_added_rows(std::span<float> values, int64_t known, int64_t width) {
    const auto begin = static_cast<size_t>(known * width), columns = static_cast<size_t>(width);
    if (begin >= values.size()) return;
    std::vector<double> sums(columns);
    for (size_t row = 0; row < begin; row += columns)
      for (size_t c = 0; c < columns; ++c) sums[c] += double{values[row + c]};
    for (size_t at = begin; at < values.size(); ++at)
      values[at] = static_cast<float>(sums[at % columns] / static_cast<double>(known));
  }

  void fill(Parameter& p, const std::vector<Source>& sources) {
    const auto count = static_cast<size_t>(shape_of(p.name)->numel());
    const bool here = p.shards.empty() && !is_upcycled(p.name);  // all of it, and nothing else
    if (here && p.master.defined() && p.master.context().backend().host_memory()) {
      const std::span<float> values(static_cast<float*>(p.master.raw()), count);
      fill_values(values, sources);
      if (options_.principal) options_.principal->split(p, values);
      return put_value(p);
    }
    values_.assign(count, 0);
    fill_values(values_, sources);
    if (options_.principal) options_.principal->split(p, values_);
    if (p.coded) return set_values(p, values_);
    if (here) return put(p, values_);
    const std::vector<float> made = is_upcycled(p.name)
                                        ? upcycled(*options_.upcycling, p.name, p.global, values_)
                                        : std::vector<float>();
    put(p, p.own_part(is_upcycled(p.name) ? made : values_));
  }

  void fill_random(Parameter& p) const {
    MT_CHECK(p.shards.empty(), p.name);
    MT_USER_CHECK(p.trained || !is_new_score(p.name), ErrorClass::config,
                  cat(p.name, " starts from random values, since ", source_.path().string(),
                      " has no head of scores, and peft does not train it"),
                  cat("add it to peft.train: peft.train=[", p.name, "]"));
    std::vector<float> values(static_cast<size_t>(p.numel()));
    p.init_values(p.value.context().seed(), 0, values);
    if (options_.upcycling && !is_new_score(p.name)) share_rows(*options_.upcycling, values);
    put(p, values);
  }

  static void put(Parameter& p, const std::vector<float>& own) {
    ExecutionContext& ctx = p.value.context();
    if (p.master.defined()) {
      ctx.upload(p.master, own.data());
      return put_value(p);
    }
    write_frozen(p, own);
  }
  static void put_value(Parameter& p) {
    if (p.value.dtype() != DType::f32) p.master.context().copy(p.value, p.master);
  }

  static void copy(const std::vector<float>& from, const Source& source, std::span<float> to) {
    const HfPlacement& place = source.placement;
    const int64_t width = place.width;
    for (const HfRows& run : place.rows) {
      if (run.parameter != source.index) continue;
      for (int64_t r = 0; r < run.rows; ++r) {
        const int64_t row = run.tensor_row + r * run.tensor_step;
        float* out = to.data() + (run.parameter_row + r) * width;
        if (!place.transposed)
          std::copy_n(from.data() + row * width, width, out);
        else
          for (int64_t c = 0; c < width; ++c)
            out[c] = from[static_cast<size_t>(place.element(row, c))];
      }
    }
  }

  const HfWeights source_;
  const HfFamily& family_;
  const HfModel& model_;
  ParamList& parameters_;
  const HfImportOptions& options_;
  const HeadLayout heads_;
  const std::vector<HfTensor> entries_;
  const std::vector<std::pair<std::string, std::string>> pairs_;  // copy and original
  std::set<std::string> used_;
  std::map<std::string, std::vector<Source>> sources_;  // by parameter
  std::vector<Copy> copies_;
  std::vector<std::string> faults_;
  std::vector<float> values_;  // the memory of a parameter, which is used again
  std::vector<float> whole_;   // of this tensor
  const TensorInfo* whole_of_ = nullptr;
};

}  // namespace

void require_hf_fit(const HfDir& source, const HfFamily& family, const HfModel& model,
                    ParamList& parameters, const HfImportOptions& options) {
  Importer(source, family, model, parameters, options).match();
}

void import_hf_weights(const HfDir& source, const HfFamily& family, const HfModel& model,
                       ParamList& parameters, const HfImportOptions& options) {
  Importer importer(source, family, model, parameters, options);
  importer.match();
  importer.fill();
}

}  // namespace mtrain
