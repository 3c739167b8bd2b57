// BERT files of other ages and purposes: the norms' former names, and tensors that only other tasks
// need.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "hf_subject.h"
#include "mtrain/base/error.h"
#include "roots.h"

namespace mtrain::golden {
namespace {

struct Copy {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

/// bert_tiny with other tensors, in a folder of its own.
class BertFolder {
 public:
  explicit BertFolder(std::vector<Copy> tensors)
      : path_(fs::temp_directory_path() / cat("mtrain-bert-files-", getpid())) {
    fs::create_directories(path_);
    fs::copy_file(source() / "config.json", path_ / "config.json",
                  fs::copy_options::overwrite_existing);
    std::vector<TensorSpec> specs;
    for (const Copy& tensor : tensors) specs.push_back({tensor.name, DType::f32, tensor.shape});
    SafetensorsWriter writer(path_ / "model.safetensors", "test", specs);
    for (const TensorSpec& spec : writer.order())
      for (const Copy& tensor : tensors)
        if (tensor.name == spec.name) writer.write(std::as_bytes(std::span(tensor.values)));
    writer.finish();
  }
  ~BertFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  static fs::path source() { return testing::source_root() / "tests/golden/bert_tiny"; }
  static std::vector<Copy> tensors() {
    SafetensorsFile file(source() / "model.safetensors");
    std::vector<Copy> out;
    for (const TensorInfo& tensor : file.tensors())
      out.push_back({tensor.name, tensor.shape, floats(tensor)});
    return out;
  }

 private:
  fs::path path_;
};

void expect_refused(const std::vector<Copy>& tensors, const std::vector<std::string>& parts) {
  try {
    BertFolder folder(tensors);
    Subject subject(folder.path());
    FAIL_CHECK("it was read");
  } catch (const Error& error) {
    for (const std::string& part : parts)
      CHECK_MESSAGE(error.message().find(part) != std::string::npos, error.message());
  }
}

Copy made_up(const std::string& name, const Shape& shape) {
  return {name, shape, std::vector<float>(static_cast<size_t>(shape.numel()), 0.5f)};
}

TEST_CASE(
    "transformers: a BERT is read with the heads of other tasks next to it, and by the former "
    "names "
    "of its norms") {
  const Tensors want = Subject(BertFolder::source()).parameters();
  std::vector<Copy> tensors = BertFolder::tensors();
  for (Copy& tensor : tensors)
    for (auto [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (size_t at = tensor.name.find(now); at != std::string::npos)
        tensor.name.replace(at, std::string::npos, then);
  const auto named = [&](const char* name) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const Copy& t) { return t.name == name; });
  };
  Copy weight = named("bert.embeddings.word_embeddings.weight"),
       bias = named("cls.predictions.bias");
  weight.name = "cls.predictions.decoder.weight";
  bias.name = "cls.predictions.decoder.bias";
  for (const Copy& extra :
       {made_up("bert.pooler.dense.weight", {32, 32}), made_up("bert.pooler.dense.bias", {32}),
        made_up("cls.seq_relationship.weight", {2, 32}), made_up("cls.seq_relationship.bias", {2}),
        weight, bias, made_up("bert.embeddings.position_ids", {1, 64})})
    if (std::none_of(tensors.begin(), tensors.end(),
                     [&](const Copy& t) { return t.name == extra.name; }))
      tensors.push_back(extra);
  CHECK(Subject(BertFolder(tensors).path()).parameters() == want);
}

TEST_CASE("transformers: the second copy of a tied matrix or bias is refused where it differs") {
  for (const auto& [original, copy] :
       {std::pair{"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"},
        {"cls.predictions.bias", "cls.predictions.decoder.bias"}}) {
    std::vector<Copy> tensors = BertFolder::tensors();
    std::erase_if(tensors, [&](const Copy& t) { return t.name == copy; });
    Copy other = *std::find_if(tensors.begin(), tensors.end(),
                               [&](const Copy& t) { return t.name == original; });
    other.name = copy;
    other.values.at(7) += 1;
    tensors.push_back(other);
    expect_refused(tensors, {cat("tensor ", copy, " differs from ", original, " at element 7 (")});
    tensors.back() = made_up(copy, Shape{3});
    expect_refused(tensors, {cat("tensor ", copy, " [3] must be a copy of ", original)});
  }
}

TEST_CASE("transformers: tensors that a BERT has no place for are named, and those it lacks") {
  std::vector<Copy> tensors = BertFolder::tensors();
  tensors.push_back(
      made_up("bert.encoder.layer.0.attention.self.distance_embedding.weight", {127, 8}));
  std::erase_if(tensors, [](const Copy& t) { return t.name == "cls.predictions.bias"; });
  expect_refused(tensors, {"distance_embedding.weight [127, 8] matches no parameter",
                           "tensor cls.predictions.bias is missing"});
}

TEST_CASE("transformers: a tensor with more rows than the model reads is refused") {
  std::vector<Copy> tensors = BertFolder::tensors();
  auto query = std::find_if(tensors.begin(), tensors.end(), [](const Copy& t) {
    return t.name == "bert.encoder.layer.0.attention.self.query.weight";
  });
  REQUIRE(query != tensors.end());
  const int64_t rows = query->shape[0], cols = query->shape[1];
  query->shape = {2 * rows, cols};
  query->values.resize(static_cast<size_t>(2 * rows * cols), 0.25f);
  expect_refused(tensors, {cat("self.query.weight has ", 2 * rows,
                               " rows, but this model's parameter has ", rows)});
}

TEST_CASE("transformers: weights that are not finite are refused, and the tensor is named") {
  for (float bad : {std::nanf(""), -INFINITY}) {
    std::vector<Copy> tensors = BertFolder::tensors();
    auto bias = std::find_if(tensors.begin(), tensors.end(),
                             [](const Copy& t) { return t.name == "cls.predictions.bias"; });
    REQUIRE(bias != tensors.end());
    bias->values.at(3) = bad;
    expect_refused(tensors, {cat("tensor cls.predictions.bias: element 3 is ",
                                 std::isnan(bad) ? "nan" : "infinite")});
  }
}

}  // namespace
}  // namespace mtrain::golden
