// Fine-tuning records against what TRL's SFTTrainer makes of them: ids, and which of them are
// trained on. The tokenizers lie below $MTRAIN_SHARED.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "built_plugins.h"
#include "mtrain/config/tree.h"
#include "mtrain/finetune/example_encoder.h"
#include "mtrain/finetune/record_format.h"
#include "mtrain/plugin/plugin_host.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::finetune;

namespace {

namespace fs = std::filesystem;

/// Which ids TRL learns. Where a template does not mark what is generated, TRL has one of its own
/// that does, and marks the line ends after "assistant" and "<|im_end|>", too; here the turn begins
/// after the generation prompt and ends with its last token.
std::vector<int> wanted_mask(const Json& row, bool marked) {
  std::vector<int> out;
  const auto& ids = row.at("input_ids");
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_trained = row.at("labels")[i] != -100,
               first = is_trained && (i == 0 || row.at("labels")[i - 1] == -100);
    const bool last = is_trained && (i + 1 == ids.size() || row.at("labels")[i + 1] == -100);
    if (is_trained) CHECK(row.at("labels")[i] == ids[i]);
    constexpr int kLineEnd = 198;
    const bool line_end = (first || last) && !marked;
    if (line_end) CHECK(ids[i] == kLineEnd);
    out.push_back(is_trained && !line_end ? 1 : 0);
  }
  return out;
}

}  // namespace

TEST_CASE("records become the tokens and labels that TRL makes of them") {
  const fs::path shared = testing::shared_root() / "data";
  if (!fs::exists(shared / "tokenizers/llama3")) {
    MESSAGE("not compared with TRL: " << shared.string() << " has no tokenizers");
    return;
  }
  const fs::path here = testing::source_root() / "tests/golden/finetune";
  const Json golden = Json::parse(std::ifstream(here / "golden.json"));
  PluginHost plugins = testing::built_plugins();
  int records = 0;
  for (const auto& set : golden.at("sets")) {
    CAPTURE(set.at("name").get<std::string>());
    Node settings = Node::map();
    settings.set(
        "path",
        Node::string((shared / "tokenizers" / set.at("tokenizer").get<std::string>()).string()));
    TokenizerContext context{fs::current_path()};
    auto tokenizer = plugins.make<Tokenizer>("hf", settings, context);
    EncoderOptions options;
    const bool chat = set.contains("template");
    const std::string file = chat ? set.at("template").get<std::string>() : "";
    const bool own = file == "marked.jinja";
    if (chat) options.template_path = (own ? here / file : shared / "templates" / file).string();
    const ExampleEncoder encoder(*tokenizer, options);
    for (const auto& row : set.at("records")) {
      const Json& record = row.at("record");
      const RecordReader reader(detect_format({&record, 1}, {}, "golden.json"), {});
      const TokenizedExample got = encoder.encode(reader.read(record, "golden.json"));
      CAPTURE(record.dump());
      CHECK(Json(got.ids) == row.at("input_ids"));
      CHECK(std::vector<int>(got.trained.begin(), got.trained.end()) ==
            wanted_mask(row, own || !chat));
      ++records;
    }
  }
  CHECK(records == 15);
}
