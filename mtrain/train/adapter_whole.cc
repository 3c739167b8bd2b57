#include "mtrain/train/adapter_whole.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "mtrain/recipe/hf_source.h"
#include "mtrain/recipe/hf_tensors.h"

namespace mtrain {
namespace {

/// "lm_head." of "lm_head.weight"
std::string module_prefix(const std::string& tensor) {
  return tensor.substr(0, tensor.rfind('.') + 1);
}

bool same_tensor(const std::string& a, const std::string& b) {
  return a == b || without_root(a) == b || a == without_root(b);
}

const PeftWhole* find_whole(const PeftAdapter& adapter, const std::string& tensor) {
  for (const PeftWhole& w : adapter.whole)
    if (same_tensor(w.tensor, tensor)) return &w;
  return nullptr;
}

/// Copies the rows of one parameter between a tensor and the parameter.
template <class Use>
void each_row(const HfPlacement& place, size_t index, const Use& use) {
  for (const HfRows& run : place.rows)
    for (int64_t i = 0; run.parameter == index && i < run.rows; ++i)
      use(run.tensor_row + i * run.tensor_step, run.parameter_row + i);
}

class BaseTensors {
 public:
  explicit BaseTensors(const Recipe& recipe)
      : folder_(hf_source_folder(recipe)), weights_(folder_) {}
  /// A new head of scores, whose every row is trained, is not in the folder of a language model.
  PeftWhole read(const std::string& name, const Shape& shape = {}) const {
    const TensorInfo* t = weights_.find(name);
    if (!t && hf_is_of_score_head(name))
      return {name, shape, std::vector<float>(static_cast<size_t>(shape.numel()))};
    if (!t) t = weights_.find(without_root(name));
    MT_USER_CHECK(t, ErrorClass::checkpoint, cat(folder_.path().string(), " has no tensor ", name),
                  "set model.init_from to the folder with which the adapters were trained");
    return {name, t->shape, weights_.floats(*t, 0, t->shape.numel())};
  }

 private:
  const HfDir folder_;
  const HfWeights weights_;
};

}  // namespace

std::vector<float> stored_values(CheckpointReader& reader, const std::string& name,
                                 const Shape& shape) {
  std::vector<float> out(static_cast<size_t>(shape.numel()));
  std::vector<Slice> slices = {
      whole_slice(name, DType::f32, shape, std::as_writable_bytes(std::span(out)))};
  reader.load(slices);
  return out;
}

void change_values(Parameter& p, const std::function<void(std::span<float>)>& change) {
  MT_USER_CHECK(!p.coded, ErrorClass::config,
                cat("adapters cannot be added to ", p.name, ", which is stored as codes"),
                "merge the run first (mtrain merge RUN --into DIR), and add them to the result");
  ExecutionContext& ctx = p.value.context();
  const Tensor wide = ctx.empty(p.local, DType::f32);
  ctx.copy(wide, p.master.defined() ? p.master : p.value);
  std::vector<float> values(static_cast<size_t>(p.numel()));
  ctx.download(wide, values.data());
  change(values);
  ctx.upload(wide, values.data());
  if (p.master.defined()) ctx.copy(p.master, wide);
  if (p.dtype != DType::f32) ctx.copy(p.value, wide);
}

void put_part(Parameter& p, const std::vector<float>& whole) {
  ExecutionContext& ctx = p.master.context();
  ctx.upload(p.master, p.own_part(whole).data());
  if (p.dtype != DType::f32) ctx.copy(p.value, p.master);
}

std::vector<PeftWhole> whole_of_run(const Recipe& recipe, const AdapterLayout& layout,
                                    CheckpointReader& reader) {
  std::vector<PeftWhole> out;
  // peft saves the head of scores with every adapter of a classifier, and expects it, too.
  std::vector<std::string> scores;
  for (const std::string& name : layout.names)
    if (hf_is_of_score_head(name) &&
        std::ranges::none_of(layout.trained, [&](const auto& t) { return t.name == name; }))
      scores.push_back(name);
  if (layout.trained.empty() && scores.empty()) return out;
  const BaseTensors base(recipe);
  for (const std::string& name : scores) out.push_back(base.read(name));
  for (const TrainedTensor& t : layout.trained) {
    PeftWhole whole = base.read(t.name, t.place.shape);
    MT_CHECK(whole.shape == t.place.shape, t.name, " ", whole.shape, " vs ", t.place.shape);
    whole.copies = t.copies;
    if (whole.copies.empty() && is_tied_table(recipe, t.parameters))
      whole.copies = {"lm_head.weight"};  // of a family whose files never have it
    for (size_t p = 0; p < t.parameters.size(); ++p) {
      if (!t.trained[p]) continue;
      const std::vector<float> values = stored_values(reader, t.parameters[p], t.shapes[p]);
      each_row(t.place, p, [&](int64_t row, int64_t parameter_row) {
        for (int64_t c = 0; c < t.place.width; ++c)
          whole.values[static_cast<size_t>(t.place.element(row, c))] =
              values[static_cast<size_t>(parameter_row * t.place.width + c)];
      });
    }
    out.push_back(std::move(whole));
  }
  // A module is saved with all of its tensors, unless it has an adapter.
  const size_t trained = out.size();
  for (const std::string& name : layout.names) {
    const bool adapted = std::ranges::any_of(layout.tensors, [&](const AdaptedTensor& t) {
      return module_prefix(t.name) == module_prefix(name);
    });
    if (adapted) continue;
    auto is_this = [&](const PeftWhole& w) { return w.tensor == name; };
    auto shares_module = [&](const PeftWhole& w) {
      return module_prefix(w.tensor) == module_prefix(name);
    };
    const auto end = out.begin() + static_cast<std::ptrdiff_t>(trained);
    if (std::any_of(out.begin(), end, shares_module) && std::none_of(out.begin(), end, is_this))
      out.push_back(base.read(name));
  }
  std::ranges::sort(out, {}, &PeftWhole::tensor);
  return out;
}

bool is_tied_table(const Recipe& recipe, const std::vector<std::string>& parameters) {
  const Node* tied = recipe.config.root().find("model.tie_embeddings");
  return tied && tied->as_text() == "true" &&
         std::ranges::find(parameters, "embed.weight") != parameters.end();
}

std::string untied_fault(const std::string& tensor) {
  const char* other = tensor.ends_with("lm_head.weight") ? "embedding" : "output head";
  return cat(tensor, " is tied to the ", other,
             " in this model, but the adapters were trained with ",
             "untied weights (adapter_config.json lacks ensure_weight_tying)");
}

std::vector<std::string> whole_faults(const PeftAdapter& adapter, const AdapterLayout& layout,
                                      const Recipe& recipe) {
  std::vector<std::string> out;
  for (const TrainedTensor& t : layout.trained) {
    const PeftWhole* whole = find_whole(adapter, t.name);
    if (!whole)
      out.push_back(cat(t.name, " is trained by peft.train, and the folder does not have it"));
    else if (!adapter.tied && is_tied_table(recipe, t.parameters))
      out.push_back(untied_fault(whole->tensor));
    else if (whole->shape != t.place.shape)
      out.push_back(
          cat(whole->tensor, " is ", whole->shape, ", and this model's is ", t.place.shape));
  }
  for (const PeftWhole& whole : adapter.whole) {
    const bool used = std::ranges::any_of(layout.trained, [&](const TrainedTensor& t) {
      return same_tensor(t.name, whole.tensor) ||
             module_prefix(t.name) == module_prefix(whole.tensor);  // a module is saved as a whole
    });
    // Every adapter of a classifier has its head, trained or not.
    const bool same =
        !used &&
        (hf_is_of_score_head(whole.tensor) || hf_is_of_score_head(without_root(whole.tensor))) &&
        BaseTensors(recipe).read(whole.tensor, whole.shape).values == whole.values;
    if (!used && !same)
      out.push_back(cat(whole.tensor, " is in modules_to_save, and not trained by peft.train"));
  }
  return out;
}

void put_rows(Parameter& p, size_t index, const HfPlacement& place,
              const std::vector<float>& values) {
  ExecutionContext& ctx = p.value.context();
  const Tensor wide = p.master.defined() ? p.master : ctx.empty(p.local, DType::f32);
  if (!p.master.defined()) ctx.copy(wide, p.value);
  std::vector<float> own(static_cast<size_t>(p.numel())),
      whole(static_cast<size_t>(p.global.numel()));
  std::vector<bool> covered(whole.size() / static_cast<size_t>(place.width), false);
  each_row(place, index, [&](int64_t row, int64_t parameter_row) {
    covered[static_cast<size_t>(parameter_row)] = true;
    for (int64_t c = 0; c < place.width; ++c)
      whole[static_cast<size_t>(parameter_row * place.width + c)] =
          values[static_cast<size_t>(place.element(row, c))];
  });
  ctx.download(wide, own.data());
  for (const ParamBox& box : p.boxes())
    for_each_run(box.global, p.global, box.local, p.local,
                 [&](int64_t global, int64_t local, int64_t run) {
                   for (int64_t i = 0; i < run; ++i)
                     if (covered[static_cast<size_t>((global + i) / place.width)])
                       own[static_cast<size_t>(local + i)] = whole[static_cast<size_t>(global + i)];
                 });
  ctx.upload(wide, own.data());
  if (p.dtype != DType::f32) ctx.copy(p.value, wide);
}

void import_whole(const PeftAdapter& adapter, const AdapterLayout& layout, ParamList& parameters) {
  for (const TrainedTensor& t : layout.trained)
    for (size_t i = 0; i < t.parameters.size(); ++i) {
      Parameter* p = parameters.find(t.parameters[i]);
      if (p && t.trained[i]) put_rows(*p, i, t.place, find_whole(adapter, t.name)->values);
    }
}

}  // namespace mtrain
