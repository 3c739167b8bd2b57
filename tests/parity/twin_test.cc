// The twin of a recipe keeps what its layouts could get wrong: windows end within its sequences, in
// some blocks and not in others, and its lists of blocks are as long as it has blocks.
#include <doctest/doctest.h>

#include <set>

#include "mtrain/nn/attention_variants.h"
#include "mtrain/verify/layouts.h"
#include "roots.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

int64_t number(const Recipe& recipe, const char* path) {
  const Node* node = recipe.config.root().find(path);
  return node ? node->as_int() : 0;
}

/// The twin of `recipe` for layouts of this size.
Recipe twin_of(const Recipe& recipe, int64_t ranks, const RankLayout& layout) {
  const std::string text = twin_recipe(recipe, ranks, 4);
  const Recipe whole = recipe_from_text(text, "the twin", fs::current_path(), {}, plugins());
  const TwinSize size{.blocks = whole.config.fact(Fact::layers).value_or(0),
                      .samples = whole.settings.global_batch(),
                      .blocks_setting = whole.config.setting_of(Fact::layers)};
  return recipe_from_text(text, "the twin", fs::current_path(), overrides(twin_size(size, layout)),
                          plugins());
}

/// The window of each block.
std::vector<int64_t> windows(const Recipe& twin) {
  AttentionVariants attention;
  attention.window = number(twin, "model.attention.window");
  attention.global_interval = number(twin, "model.attention.global_interval");
  if (const Node* list = twin.config.root().find("model.attention.window_blocks"))
    for (const Node& item : list->items()) attention.window_blocks.push_back(item.as_int());
  const int64_t blocks = number(twin, "model.layers");
  attention.check(blocks);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < blocks; ++i) out.push_back(attention.window_of(i));
  return out;
}

Subject llama_with(const std::string& attention) {
  static std::set<std::string> kept;
  return {"llama", kept.insert(cat("{type: llama, layers: 12, hidden_size: 64, heads: 8, "
                                   "ffn_hidden_size: 128, attention: {",
                                   attention, "}}"))
                       .first->c_str()};
}

const RankLayout kLayouts[] = {{.ranks = 2}, {.ranks = 2, .pp = 2}, {.ranks = 3, .pp = 3},
                               {.ranks = 4}, {.ranks = 8, .pp = 8}, {.ranks = 8, .tp = 8}};

}  // namespace

TEST_CASE("windows of a twin end within its sequences, in the blocks that have one") {
  struct Row {
    const char* attention;
    bool some, all;  // blocks with a window
  };
  const Row rows[] = {
      {"window: 4096", true, true},
      {"window: 4096, global_interval: 6", true, false},
      {"window: 4096, window_blocks: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]", true, false},
      {"window: 4096, window_blocks: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]", true, false},
      {"window: 4096, window_blocks: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", true, true},
      {"window: 4096, window_blocks: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]", false, false},
      {"window: 4096, global_interval: 1", false, false},
      {"window: 2, global_interval: 2", true, false},
      {"window: 0", false, false},
  };
  for (const Row& row : rows)
    for (const RankLayout& layout : kLayouts) {
      CAPTURE(std::string(row.attention));
      CAPTURE(text(layout));
      const Recipe twin = twin_of(recipe_of(llama_with(row.attention)), layout.ranks, layout);
      const std::vector<int64_t> found = windows(twin);
      const int64_t length = number(twin, "model.seq_length");
      CHECK(std::any_of(found.begin(), found.end(), [](int64_t w) { return w > 0; }) == row.some);
      CHECK(std::all_of(found.begin(), found.end(), [](int64_t w) { return w > 0; }) == row.all);
      for (int64_t window : found) {
        if (window == 0) continue;
        CHECK(window > 1);
        CHECK(2 * window < length);  // most tokens do not see all earlier ones
        // With context parallelism, some window ends within a piece of a sequence: pieces have an
        // even number of tokens.
        CHECK(length % (4 * layout.ranks) == 0);
        CHECK((window - 1) % 2 != 0);
      }
    }
}

TEST_CASE("a twin has blocks with and without rotary positions if the model has") {
  for (const char* attention : {"no_rope_interval: 4", "rope_pattern: [1, 1, 1, 1, 1, 0]",
                                "rope_pattern: [0, 0, 0, 0, 1]", "rope_pattern: [1, 0]"})
    for (const RankLayout& layout : kLayouts) {
      CAPTURE(std::string(attention));
      CAPTURE(text(layout));
      const Recipe twin = twin_of(recipe_of(llama_with(attention)), layout.ranks, layout);
      AttentionVariants variants;
      variants.no_rope_interval = number(twin, "model.attention.no_rope_interval");
      for (const Node& item : twin.config.root().at("model.attention.rope_pattern").items())
        variants.rope_pattern.push_back(item.as_int());
      std::set<bool> kinds;
      for (int64_t i = 0; i < number(twin, "model.layers"); ++i) kinds.insert(variants.has_rope(i));
      CHECK(kinds.size() == 2);
    }
}

TEST_CASE("groups of experts divide the experts of a twin on any number of ranks") {
  const Subject subject{"moe",
                        "{type: moe, layers: 8, hidden_size: 64, heads: 8, ffn_hidden_size: 128, "
                        "moe: {experts: 64, top_k: 6, ffn_hidden_size: 64, router: {score: "
                        "sigmoid, groups: 8, group_top_k: 4, group_best: 8}}}"};
  for (int64_t ranks : {2, 3, 4, 5, 7}) {
    const Recipe twin = twin_of(recipe_of(subject), ranks, {.ranks = ranks});
    const int64_t experts = number(twin, "model.moe.experts"),
                  groups = number(twin, "model.moe.router.groups");
    CHECK(groups > number(twin, "model.moe.router.group_top_k"));
    CHECK(experts % groups == 0);
    CHECK(number(twin, "model.moe.router.group_best") <= experts / groups);
  }
}

TEST_CASE("a feature that is switched off leaves nothing in a twin that would be refused") {
  const Subject& deepseek = *std::find_if(parts().begin(), parts().end(), [](const Subject& s) {
    return std::string_view(s.name) == "deepseek";
  });
  auto with = [&](const std::vector<OverrideText>& overrides) {
    return read_recipe(
        {.recipe = "deepseek",
         .text = cat("model: ", deepseek.model, "\ndataset: mock\n", "train: {steps: 1}\n"),
         .directory = fs::current_path(),
         .overrides = overrides,
         .cluster = {}},
        plugins());
  };
  const Recipe plain = with({{"model.mla.kv_lora_rank=0", 2},
                             {"model.moe.router.groups=0", 3},
                             {"model.moe.router.group_top_k=0", 4}});
  CHECK_MESSAGE(plain.report.ok(), plain.report.text());
  const Recipe twin = twin_of(plain, 2, {.ranks = 2});
  CHECK(number(twin, "model.mla.q_lora_rank") == 0);
  CHECK(number(twin, "model.moe.router.group_best") == 0);
  CHECK(number(twin_of(with({}), 2, {.ranks = 2}), "model.mla.q_lora_rank") > 0);
}

TEST_CASE("every recipe that comes with the program has a twin in every size") {
  size_t valid = 0;
  for (const auto& entry : fs::directory_iterator(source_root() / "recipes")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path().filename().string());
    const Recipe recipe = read_recipe({.recipe = entry.path().string(),
                                       .text = {},
                                       .directory = {},
                                       .overrides = {},
                                       .cluster = {}},
                                      plugins());
    const auto& faults = recipe.report.diagnostics();
    if (std::any_of(faults.begin(), faults.end(), [](const auto& d) {
          return d.code == "not-built" && d.path.starts_with("model");
        }))
      continue;
    for (const RankLayout& layout : kLayouts) {
      CAPTURE(text(layout));
      const bool one_stage = recipe.settings.model.type == "t5";  // a rule refuses several
      if (one_stage && (layout.pp > 1 || layout.cp > 1)) continue;
      CHECK_NOTHROW(windows(twin_of(recipe, layout.ranks, layout)));
    }
    ++valid;
  }
  CHECK(valid > 25);
}

TEST_CASE("a twin keeps the groups of parameters that do not depend on its number of blocks") {
  const Recipe recipe = recipe_from_text(
      "model: {type: llama, layers: 12, hidden_size: 64, heads: 8, ffn_hidden_size: 128}\n"
      "tokenizer: byte\ndataset: mock\ntrain: {steps: 3}\n"
      "optimizer:\n  groups:\n    - {role: embedding, lr: 1e-2, min_lr: 5e-3}\n"
      "    - {match: 'layers.11.*', lr_scale: 0.5}\n    - {match: '*.norm*', weight_decay: 0.1}\n",
      "the recipe", fs::current_path(), {}, plugins());
  REQUIRE_MESSAGE(recipe.report.ok(), recipe.report.text());
  const Recipe twin = twin_of(recipe, 2, kLayouts[0]);
  CHECK_MESSAGE(twin.report.ok(), twin.report.text());
  const Node* groups = twin.config.root().find("optimizer.groups");
  REQUIRE(groups != nullptr);
  REQUIRE(groups->size() == 2);
  CHECK(groups->items()[0].at("role").as_text() == "embedding");
  CHECK(groups->items()[1].at("match").as_text() == "*.norm*");
}
