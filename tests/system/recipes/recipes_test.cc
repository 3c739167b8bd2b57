// Every recipe that comes with the program: it composes, the only faults are of parts that are not
// built, and its figures give the parameter count that its authors published.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "built_model.h"
#include "built_plugins.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "roots.h"

using namespace mtrain;

namespace {

using Names = std::set<std::string>;

/// The parts that a report says are missing; any other fault but `expected` fails the test.
Names missing_parts(const Report& report, const Names& expected = {}) {
  Names out;
  for (const auto& fault : report.diagnostics()) {
    CHECK_MESSAGE((fault.code == "not-built" || expected.contains(fault.code)), render(fault));
    size_t end = fault.message.rfind(", which ");
    if (fault.code == "not-built" && end != std::string::npos)
      out.insert(fault.message.substr(6, end - 6));
  }
  return out;
}

Recipe shipped_recipe(const std::string& name, const std::vector<std::string>& overrides = {}) {
  RecipeRequest request{.recipe = (testing::kRecipes / (name + ".yaml")).string(),
                        .text = {},
                        .directory = {},
                        .overrides = {},
                        .cluster = {}};
  bool own_data = name == "quickstart" || name.starts_with("bench_") ||
                  std::any_of(overrides.begin(), overrides.end(),
                              [](const auto& text) { return text.starts_with("dataset="); });
  if (!own_data) request.overrides.push_back({"dataset.path=data/corpus", 2});  // the user's to say
  for (const auto& text : overrides)
    request.overrides.push_back({text, static_cast<int>(request.overrides.size()) + 2});
  return read_recipe(request, testing::shared_plugins());
}

/// The resolved figures of a model, and what they amount to.
class Figures {
 public:
  explicit Figures(const Recipe& recipe) : model_(recipe.config.root().at("model")) {}

  int64_t parameters() const {
    std::string type = model_.at("type").as_text();
    if (type == "gpt2") return gpt2();
    if (type == "bert") return bert();
    if (type == "t5") return t5();
    return decoder();
  }

 private:
  int64_t get(const char* path) const { return model_.at(path).as_int(); }
  bool is(const char* path) const {
    const Node* node = model_.find(path);
    return node && node->as_bool();
  }
  int64_t find(const char* path) const {
    const Node* node = model_.find(path);
    return node ? node->as_int() : 0;
  }
  /// Without a size of its own: the byte tokenizer's 257 tokens in a multiple of 64.
  int64_t vocab() const { return get("vocab_size") > 0 ? get("vocab_size") : 320; }
  /// The parameters of a score: of tokens, it has a bias.
  int64_t each_score() const {
    const Node* of = model_.find("labels_of");
    return get("hidden_size") + (of && of->as_text() == "token" ? 1 : 0);
  }
  int64_t embeddings() const {
    if (const Node* labels = model_.find("labels"); labels && labels->as_int() > 0)
      return vocab() * get("hidden_size") + labels->as_int() * each_score();
    return vocab() * get("hidden_size") * (is("tie_embeddings") ? 1 : 2);
  }

  /// Two norms and two biased projections each of attention and MLP.
  int64_t post_or_pre_norm_block(int64_t d, int64_t f) const {
    return 4 * (d * d + d) + (2 * d * f + f + d) + 2 * 2 * d;
  }
  int64_t gpt2() const {
    int64_t d = get("hidden_size");
    return embeddings() + get("max_positions") * d +
           get("layers") * post_or_pre_norm_block(d, get("ffn_hidden_size")) + 2 * d;
  }
  int64_t bert() const {
    int64_t d = get("hidden_size");
    int64_t tables = (get("max_positions") + get("segments")) * d + embeddings() + 2 * d;
    int64_t head = d * d + d + 2 * d + vocab();
    return tables + get("layers") * post_or_pre_norm_block(d, get("ffn_hidden_size")) + head;
  }
  int64_t t5() const {
    int64_t d = get("hidden_size"), attention = 4 * d * get("heads") * get("head_dim");
    int64_t mlp =
        (model_.at("activation").as_text() == "relu" ? 2 : 3) * d * get("ffn_hidden_size");
    int64_t encoder = get("encoder_layers") * (attention + mlp + 2 * d);
    int64_t decoder = get("layers") * (2 * attention + mlp + 3 * d);
    return embeddings() + encoder + decoder + 2 * get("position_buckets") * get("heads") + 2 * d;
  }

  /// Llama's kin, with or without experts.
  int64_t decoder() const {
    int64_t d = get("hidden_size"), layers = get("layers"), dense = layers, sparse = 0;
    if (model_.find("moe")) {
      dense = get("moe.first_dense_layers");
      sparse = (layers - dense) / get("moe.layer_freq");
      dense = layers - sparse;
    }
    int64_t blocks = layers * (attention() + norms() * d) + dense * 3 * d * get("ffn_hidden_size");
    if (sparse > 0) blocks += sparse * experts();
    return embeddings() + blocks + d;
  }
  /// Norms of a block that are as wide as the stream.
  int64_t norms() const {
    if (model_.at("norm_position").as_text() == "sandwich") return 4;
    return model_.at("parallel").as_text() == "one_norm" ? 1 : 2;
  }
  int64_t attention() const {
    if (find("mla.kv_lora_rank") > 0) return latent_attention();
    int64_t d = get("hidden_size"), heads = get("heads"), groups = get("kv_heads"),
            width = get("head_dim");
    if (groups == 0) groups = heads;
    if (width == 0) width = d / heads;
    int64_t out = 2 * d * heads * width + 2 * d * groups * width;
    if (is("attention.qkv_bias")) out += (heads + 2 * groups) * width;
    const bool shared = model_.at("attention.qk_norm_scope").as_text() == "head";
    if (is("attention.qk_norm")) out += (shared ? 2 : heads + groups) * width;
    return out;
  }
  int64_t latent_attention() const {
    int64_t d = get("hidden_size"), heads = get("heads"), q = get("mla.q_lora_rank");
    int64_t kv = get("mla.kv_lora_rank"), plain = get("mla.qk_head_dim"),
            turned = get("mla.rope_head_dim");
    int64_t value = get("mla.v_head_dim");
    int64_t queries = d * q + q + q * heads * (plain + turned);
    int64_t keys = d * (kv + turned) + kv + kv * heads * (plain + value);
    return queries + keys + heads * value * d;
  }
  int64_t experts() const {
    int64_t d = get("hidden_size"), count = get("moe.experts");
    int64_t gated = 3 * d *
                    ((count + get("moe.shared_experts")) * get("moe.ffn_hidden_size") +
                     get("moe.shared_ffn_hidden_size"));
    if (is("moe.shared_gate")) gated += d;
    return gated + d * count + (is("moe.router.bias") ? count : 0);
  }

  const Node& model_;
};

/// A recipe with adapters, whose frozen weights are the user's to say.
bool has_adapters(const Recipe& read) { return read.settings.peft.frozen(); }

struct PublishedSize {
  const char* name;
  int64_t parameters;
  int64_t rounded;  // the published figure is rounded to this
  const char* published;
  Names parts;
};

// The sum over the tensors of model.safetensors.index.json (metadata.total_parameters, or
// total_size / 2) where a published checkpoint has one; otherwise the paper.
const std::vector<PublishedSize> kRows = {
    {"quickstart", 3030000, 10000, "what `mtrain train` prints: 3.03M", {}},
    {"quickstart_sft", 3030000, 10000, "the same model", {}},
    {"quickstart_lora", 3030000, 10000, "the same model", {}},
    {"quickstart_reward", 3030000, 10000, "the same model, with 256 weights of a score", {}},
    {"quickstart_classes", 3030000, 10000, "the same model, with 512 weights of scores", {}},
    {"quickstart_tags", 3030000, 10000, "the same model, with 771 weights of scores", {}},
    {"quickstart_distill", 530000, 10000, "what `mtrain train` prints", {}},
    {"quickstart_dpo", 3030000, 10000, "the same model", {}},
    {"quickstart_spans", 3030000, 10000, "the same model", {}},
    {"quickstart_fp8", 3030000, 10000, "what `mtrain train` prints: 3.03M", {}},
    {"quickstart_moe", 5400000, 10000, "what `mtrain train` prints", {}},
    {"gpt2_124m", 124439808, 1, "openai-community/gpt2", {}},
    {"gpt3_175b", 174600000000, 100000000, "arXiv:2005.14165, table D.1", {}},
    {"llama2_7b", 6738415616, 1, "meta-llama/Llama-2-7b-hf", {}},
    {"llama32_1b", 1235814400, 1, "meta-llama/Llama-3.2-1B", {}},
    {"llama3_8b", 8030261248, 1, "meta-llama/Meta-Llama-3-8B", {}},
    {"llama32_1b_lora", 1235814400, 1, "meta-llama/Llama-3.2-1B", {}},
    {"llama3_8b_lora", 8030261248, 1, "meta-llama/Meta-Llama-3-8B", {}},
    {"llama3_8b_qlora", 8030261248, 1, "meta-llama/Meta-Llama-3-8B", {}},
    {"llama3_8b_dpo", 8030261248, 1, "meta-llama/Meta-Llama-3-8B", {}},
    {"mistral_7b_lora", 7241732096, 1, "mistralai/Mistral-7B-v0.1", {}},
    {"qwen3_8b_lora", 8190735360, 1, "Qwen/Qwen3-8B", {}},
    {"qwen3_8b_qlora", 8190735360, 1, "Qwen/Qwen3-8B", {}},
    {"qwen3_8b_dpo", 8190735360, 1, "Qwen/Qwen3-8B", {}},
    {"gemma3_1b_lora", 999885952, 1, "google/gemma-3-1b-pt", {}},
    {"mixtral_8x7b_lora", 46702792704, 1, "mistralai/Mixtral-8x7B-v0.1", {}},
    {"llama3_8b_fp8", 8030261248, 1, "meta-llama/Meta-Llama-3-8B", {}},
    {"bench_llama8b_slice", 5849141248, 1, "22 of the 32 blocks of meta-llama/Meta-Llama-3-8B", {}},
    {"bench_llama8b_slice_fp8",
     5849141248,
     1,
     "22 of the 32 blocks of meta-llama/Meta-Llama-3-8B",
     {}},
    {"llama3_70b", 70553706496, 1, "meta-llama/Meta-Llama-3-70B", {}},
    {"llama31_405b", 405853388800, 1, "meta-llama/Llama-3.1-405B", {}},
    {"mistral_7b", 7241732096, 1, "mistralai/Mistral-7B-v0.1", {}},
    {"qwen25_7b", 7615616512, 1, "Qwen/Qwen2.5-7B", {}},
    {"qwen3_8b", 8190735360, 1, "Qwen/Qwen3-8B", {}},
    {"phi4", 14659507200, 1, "microsoft/phi-4", {}},
    {"olmo2_7b", 7298617344, 1, "allenai/OLMo-2-1124-7B", {}},
    {"glm4_9b", 9400279040, 1, "zai-org/GLM-4-9B-0414", {}},
    {"smollm3_3b", 3075098624, 1, "HuggingFaceTB/SmolLM3-3B", {}},
    {"command_r", 34980831232, 1, "CohereLabs/c4ai-command-r-v01", {}},
    {"gemma2_9b", 9241705984, 1, "google/gemma-2-9b", {}},
    {"gemma3_1b", 999885952, 1, "google/gemma-3-1b-pt", {}},
    {"granite_8b", 8170848256, 1, "ibm-granite/granite-3.1-8b-base", {}},
    {"qwen3_30b_a3b", 30532122624, 1, "Qwen/Qwen3-30B-A3B", {}},
    {"mixtral_8x7b", 46702792704, 1, "mistralai/Mixtral-8x7B-v0.1", {}},
    {"deepseek_v3",
     671026419200,
     1,
     "deepseek-ai/DeepSeek-V3 without its prediction module; README_WEIGHTS.md there says 671B",
     {}},
    {"quickstart_bert", 2540000, 10000, "what `mtrain train` prints", {}},
    {"bert_large", 335174458, 1, "google-bert/bert-large-uncased as BertForMaskedLM", {}},
    {"quickstart_t5", 2790000, 10000, "what `mtrain train` prints", {}},
    {"t5_large", 737668096, 1, "google-t5/t5-large", {}},
    {"t5_v1_1_base", 247577856, 1, "google/t5-v1_1-base", {}},
};

/// The published layouts: tensor, pipeline, virtual, context and expert ranks; tokens of a sample
/// and samples of an update.
struct Layout {
  const char* name;
  int64_t tp, pp, vp, cp, ep;
  bool sp;
  int64_t seq_length, global_batch, micro_batch;
};
const Layout kLayouts[] = {
    {"gpt3_175b", 4, 8, 6, 1, 1, true, 2048, 2048, 2},
    {"llama2_7b", 2, 1, 1, 1, 1, false, 4096, 512, 1},
    {"llama32_1b", 1, 1, 1, 1, 1, false, 8192, 512, 1},
    {"llama3_8b", 1, 1, 1, 2, 1, false, 8192, 512, 1},
    {"llama3_70b", 4, 4, 5, 2, 1, true, 8192, 512, 1},
    {"llama31_405b", 8, 8, 2, 4, 1, true, 8192, 512, 1},
    {"qwen25_7b", 2, 1, 1, 1, 1, false, 4096, 512, 1},
    {"qwen3_8b", 1, 1, 1, 1, 1, false, 4096, 1024, 1},
    {"qwen3_30b_a3b", 1, 1, 1, 1, 16, false, 4096, 1024, 1},
    {"deepseek_v3", 2, 16, 1, 1, 64, true, 4096, 4096, 1},
};

std::string listed(const Names& names) { return join({names.begin(), names.end()}, "; "); }

/// Lines of a recipe that are neither comments nor its defaults list.
int own_lines(const fs::path& file) {
  std::ifstream in(file);
  int count = 0;
  bool defaults = false;
  for (std::string line; std::getline(in, line);) {
    if (trim(line).empty() || trim(line)[0] == '#') continue;
    if (line[0] != ' ') defaults = line == "defaults:";
    if (!defaults) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("every recipe is in the table") {
  Names known, there;
  for (const auto& row : kRows) known.insert(row.name);
  for (const auto& entry : fs::directory_iterator(testing::kRecipes))
    if (entry.path().extension() == ".yaml") there.insert(entry.path().stem().string());
  CHECK(listed(known) == listed(there));
}

TEST_CASE("a recipe composes, asks only for parts that are known, and has the published size") {
  for (const auto& row : kRows) {
    CAPTURE(row.name);
    CAPTURE(row.published);
    Recipe read = shipped_recipe(row.name);
    const std::string unsaid = has_adapters(read)                  ? "rule peft-base"
                               : read.settings.objective.teaches() ? "rule distillation-teacher"
                                                                   : "";
    CHECK(listed(missing_parts(read.report, {unsaid})) == listed(row.parts));
    int64_t parameters = Figures(read).parameters();
    CHECK((parameters + row.rounded / 2) / row.rounded * row.rounded == row.parameters);
    CHECK(own_lines(testing::kRecipes / (std::string(row.name) + ".yaml")) <= 30);
  }
}

TEST_CASE("the model that a recipe builds has as many parameters") {
  PluginHost host = testing::built_plugins();
  for (const auto& row : kRows) {
    CAPTURE(row.name);
    if (row.parts.contains("the T5 model")) continue;
    const bool predicts = std::string_view(row.name) == "deepseek_v3";
    Recipe read =
        predicts ? shipped_recipe(row.name, {"model.mtp.layers=0"}) : shipped_recipe(row.name);
    CHECK(testing::BuiltModel(read, host).parameters() == Figures(read).parameters());
  }
}

TEST_CASE("layouts are the published ones") {
  for (const auto& layout : kLayouts) {
    CAPTURE(layout.name);
    Recipe read = shipped_recipe(layout.name);
    const Settings& s = read.settings;
    CHECK(s.dist.tp == layout.tp);
    CHECK(s.dist.pp == layout.pp);
    CHECK(s.dist.vp == layout.vp);
    CHECK(s.dist.cp == layout.cp);
    CHECK(s.dist.ep == layout.ep);
    CHECK(s.dist.sp == layout.sp);
    CHECK(s.model.seq_length == layout.seq_length);
    CHECK(s.train.global_batch_size == layout.global_batch);
    CHECK(s.train.micro_batch_size == layout.micro_batch);
  }
}

TEST_CASE("peft=lora turns any recipe into one of low-rank adapters") {
  for (const auto& row : kRows) {
    CAPTURE(row.name);
    Recipe read = shipped_recipe(row.name, {"peft=lora"});
    // The weights to start from, and a teacher, are the user's to say.
    CHECK(listed(missing_parts(read.report, {"rule peft-base", "rule distillation-teacher"})) ==
          listed(row.parts));
    CHECK(read.settings.peft.type == "lora");
    if (!has_adapters(shipped_recipe(row.name))) CHECK(read.settings.peft.rank == 32);
  }
}

TEST_CASE("a preset may be named where its settings would stand") {
  SchemaCatalog catalog = schema_catalog(testing::shared_plugins());
  struct Choice {
    const char* text;
    std::vector<OverrideText> overrides;
    const char *precision, *recipe;  // what comes of it
    int64_t margin;
  };
  const std::vector<Choice> choices = {
      {"mixed_precision: auto\n", {}, "auto", "tensorwise", 0},
      {"mixed_precision: bf16_fp8_delayed\n", {}, "bf16", "delayed", 0},
      {"mixed_precision: fp16_fp8_blockwise\n",
       {{"mixed_precision.fp8_margin=2", 2}},
       "fp16",
       "blockwise",
       2},
      {"mixed_precision: bf16_mxfp8\n",
       {{"mixed_precision=fp16_fp8_current", 2}},
       "fp16",
       "tensorwise",
       0},
      {"defaults: [{mixed_precision: fp16}, _self_]\nmixed_precision: bf16_mxfp8\n",
       {},
       "bf16",
       "mxfp8",
       0},
  };
  for (const auto& choice : choices) {
    CAPTURE(choice.text);
    ConfigRequest request{
        .recipe = "r.yaml",
        .text = cat("model: llama\ndataset: mock\ntrain: {steps: 1}\n", choice.text),
        .overrides = choice.overrides,
        .search_path = {testing::kRecipes}};
    Report report;
    auto config = ConfigContainer::load(request, catalog, report);
    CHECK(listed(missing_parts(report)) == "");
    const Node& got = config.root().at("mixed_precision");
    CHECK(got.at("dtype").as_text() == choice.precision);
    CHECK(got.at("fp8_recipe").as_text() == choice.recipe);
    CHECK(got.at("fp8_margin").as_int() == choice.margin);
  }
  Report report;
  ConfigContainer::load(
      {.recipe = "r.yaml",
       .text = "model: llama\ndataset: mock\ntrain: {steps: 1}\nmixed_precision: bf17\n",
       .overrides = {},
       .search_path = {testing::kRecipes}},
      catalog, report);
  CHECK(report.errors() == 1);
  CHECK_MESSAGE(report.text().find("r.yaml:4:18") != std::string::npos, report.text());
  CHECK_MESSAGE(report.text().find("bf16") != std::string::npos, report.text());
}

TEST_CASE("what is not implemented can be chosen away") {
  for (const char* name : {"gpt2_124m", "gpt3_175b", "llama2_7b", "llama32_1b", "llama3_8b",
                           "llama3_70b", "llama31_405b"}) {
    CAPTURE(name);
    Recipe read = shipped_recipe(
        name, {"dist=single", "comm_overlap=none", "tokenizer=byte", "dataset=mock"});
    CHECK_MESSAGE(read.report.ok(), read.report.text());
  }
}

TEST_CASE("every option of every group is read without a fault") {
  SchemaCatalog catalog = schema_catalog(testing::shared_plugins());
  size_t options = 0;
  const fs::path base = testing::kRecipes / "llama32_1b.yaml";
  std::ifstream file(base);
  std::string text(std::istreambuf_iterator<char>(file), {});
  for (const auto& group : fs::directory_iterator(testing::kRecipes)) {
    if (!group.is_directory()) continue;
    for (const auto& option : fs::directory_iterator(group)) {
      std::string name = group.path().filename().string();
      bool chosen =
          text.find(cat("- ", name, ":")) != std::string::npos;  // what it does not choose is added
      std::string choice = cat(chosen ? "" : "+", name, "=", option.path().stem().string());
      CAPTURE(choice);
      // The length of the decoder is the model's.
      const fs::path of_t5 = testing::kRecipes / "t5_large.yaml";
      const bool t5 = option.path().stem() == "t5_seq2seq";
      ConfigRequest request{
          .recipe = (t5 ? of_t5 : base).string(), .text = {}, .overrides = {{choice, 2}}};
      Report report;
      ConfigContainer::load(request, catalog, report);
      missing_parts(report);
      ++options;
    }
  }
  CHECK(options > 60);
}
