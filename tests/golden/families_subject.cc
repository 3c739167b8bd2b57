// families_subject FOLDER BATCH.json OUT: what a build computes with the model of a Hugging Face
// folder, in fp32 under Hugging Face's names, for families_compare.py. BATCH.json has `rows`, ids
// of equal length, which is the model's seq_length; optionally `targets` of the rows (-1: none;
// otherwise each id predicts the next one) and, with the same rules, `documents` of any lengths and
// `document_targets`. With `decoder`, so many last ids of a row are the decoder's. OUT gets
//   logits.safetensors      rows; documents, which are packed into one sequence; short_rows: by
//                           config.short.json, if the folder has it
//   gradients.safetensors   of the first step, before clipping; packed_gradients: of the documents
//   parameters.safetensors  after `steps` steps of AdamW (5 unless BATCH.json says otherwise)
//   result.json             loss and gradient norm of each step, and of the documents
// Tensors are flat. Exit status: 0, or 1 with the reason on standard error.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "hf_subject.h"
#include "mtrain/base/error.h"

namespace mtrain::golden {
namespace {

using Json = nlohmann::json;

void write_tensors(const fs::path& file, const Tensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, values] : tensors)
    specs.push_back({name, DType::f32, Shape{static_cast<int64_t>(values.size())}});
  SafetensorsWriter writer(file, "families_subject", std::move(specs));
  for (const TensorSpec& spec : writer.order())
    writer.write(std::as_bytes(std::span(tensors.at(spec.name))));
  writer.finish();
}

Batch batch_of(const Json& json, const char* rows, const char* targets) {
  Rows ids = json.at(rows).get<Rows>();
  return json.contains(targets) ? Batch{ids, json.at(targets).get<Rows>()} : next_tokens(ids);
}

/// Forward and backward of the whole batch at once.
Json step(Subject& subject, const Batch& batch) {
  const double loss = subject.forward_backward(batch, static_cast<int64_t>(batch.ids.size()));
  return {{"loss", loss}, {"grad_norm", subject.grad_norm()}};
}

int64_t longest(const Batch& batch) {
  size_t most = 0;
  for (const auto& row : batch.ids) most = std::max(most, row.size());
  return static_cast<int64_t>(most);
}

void run(const fs::path& folder, const Json& json, const fs::path& out) {
  const Batch batch = batch_of(json, "rows", "targets");
  const int64_t length = longest(batch);
  SubjectOptions options{.seq_length = length, .decoder = json.value("decoder", int64_t{0})};
  Subject subject(folder, options);
  Tensors logits = {{"rows", subject.logits(batch.ids)}};
  Json result = {{"steps", Json::array()}};
  const int steps = json.value("steps", 5);
  for (int i = 0; i < steps; ++i) {
    result["steps"].push_back(step(subject, batch));
    if (i == 0) write_tensors(out / "gradients.safetensors", subject.gradients());
    subject.update({});
  }
  write_tensors(out / "parameters.safetensors", subject.parameters());
  if (fs::exists(folder / "config.short.json")) {
    options.config = "config.short.json";
    logits["short_rows"] = Subject(folder, options).logits(batch.ids);
  }
  if (json.contains("documents")) {
    const Batch packed = batch_of(json, "documents", "document_targets");
    MT_CHECK(longest(packed) <= length, "a document is longer than the rows");
    Subject other(folder, {.seq_length = length});
    logits["documents"] = other.logits(packed.ids);
    result["documents"] = step(other, packed);
    write_tensors(out / "packed_gradients.safetensors", other.gradients());
  }
  write_tensors(out / "logits.safetensors", logits);
  std::ofstream(out / "result.json") << result.dump(1) << '\n';
}

}  // namespace
}  // namespace mtrain::golden

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: families_subject FOLDER BATCH.json OUT\n";
    return 2;
  }
  try {
    const mtrain::fs::path out = argv[3];
    mtrain::fs::create_directories(out);
    mtrain::golden::run(argv[1], nlohmann::json::parse(std::ifstream(argv[2])), out);
  } catch (const mtrain::Error& e) {
    std::cerr << e.message() << (e.hint().empty() ? "" : "\n  ") << e.hint() << '\n';
    return 1;
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
  return 0;
}
