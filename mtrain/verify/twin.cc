#include "mtrain/verify/twin.h"

#include <algorithm>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr int64_t kHeadDim = 8, kMaxBlocks = 8, kMicroBatch = 2;
constexpr int64_t kSmallHeadDim =
    32;  // FP8 and FP4 products have scaling groups of up to this many values

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Reads and changes the settings of one section that are present.
class Shrinker {
 public:
  Shrinker(Node& tree, std::string section) : tree_(tree), section_(std::move(section)) {}
  int64_t get(const std::string& key, int64_t otherwise = 0) const {
    const Node* value = tree_.find(section_ + "." + key);
    return value && value->is(NodeKind::integer) ? value->as_int() : otherwise;
  }
  void set(const std::string& key, int64_t value) {
    if (tree_.find(section_ + "." + key)) tree_.set(section_ + "." + key, Node::integer(value));
  }
  void at_most(const std::string& key, int64_t value) {
    if (get(key) > value) set(key, value);
  }

 private:
  Node& tree_;
  std::string section_;
};

/// Reads and changes settings by the fact that they define, such as the number of heads.
class FactShrinker {
 public:
  FactShrinker(Node& tree, const ConfigContainer& config) : tree_(tree), config_(config) {}
  int64_t get(Fact fact, int64_t otherwise = 0) const {
    return config_.fact(fact).value_or(otherwise);
  }
  void set(Fact fact, int64_t value) {
    const std::string path = config_.setting_of(fact);
    if (!path.empty() && tree_.find(path)) tree_.set(path, Node::integer(value));
  }

 private:
  Node& tree_;
  const ConfigContainer& config_;
};

/// Keeps the number of heads per key/value head, and the ratio of head width to hidden size.
/// Returns the width of a head.
int64_t shrink_heads(FactShrinker& model, int64_t heads, int64_t dim) {
  int64_t whole = model.get(Fact::heads, 1), shared = model.get(Fact::kv_heads);
  int64_t width = model.get(Fact::head_dim), hidden = model.get(Fact::hidden_size);
  model.set(Fact::heads, heads);
  model.set(Fact::hidden_size, heads * dim);
  if (shared > 0) {
    int64_t fewer = std::max<int64_t>(1, heads * shared / whole);
    while (heads % fewer != 0) --fewer;  // for example with five or seven heads
    model.set(Fact::kv_heads, fewer);
  }
  if (model.get(Fact::ffn_hidden_size) > 0) model.set(Fact::ffn_hidden_size, 2 * heads * dim);
  if (width == 0) return dim;
  width = width * whole > hidden ? 2 * dim : width * whole < hidden ? dim / 2 : dim;
  model.set(Fact::head_dim, width);
  return width;
}

/// Rotates whole heads, or half of each, and keeps one factor of longrope for each pair.
void shrink_rope(Node& tree, int64_t head_dim) {
  const Node* percent = tree.find("model.rope.percent");
  if (percent && percent->as_double() < 1) {
    tree.set("model.rope.percent", Node::number(0.5));
    head_dim /= 2;
  }
  for (const char* name : {"short_factor", "long_factor"}) {
    const std::string path = cat("model.rope.", name);
    const Node* factors = tree.find(path);
    if (!factors || factors->items().empty()) continue;
    Node fewer = *factors;
    fewer.items().resize(static_cast<size_t>(head_dim / 2), factors->items().back());
    tree.set(path, std::move(fewer));
  }
}

/// True for a list with both values.
bool mixed(const std::vector<Node>& flags) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const Node& flag) { return flag.as_int() != flags[0].as_int(); });
}

/// Windows that end within a sequence, so that a token sees some, but not all earlier ones, and
/// within a piece of context parallelism: those have an even number of tokens, too. A model
/// that has windows or rotary positions in some of its blocks alternates blocks with and without:
/// then a twin of any number of blocks has both.
void shrink_attention(Node& tree, int64_t seq_length) {
  Shrinker attention(tree, "model.attention");
  attention.at_most("window", round_up(seq_length / 3, 2));
  if (const Node* list = tree.find("model.attention.window_blocks"); list && list->size() > 0) {
    const std::vector<Node> blocks = list->items();
    attention.set("global_interval", mixed(blocks) ? 2 : 0);
    if (!mixed(blocks) && blocks[0].as_int() == 0) attention.set("window", 0);
    tree.erase("model.attention.window_blocks");
  }
  attention.at_most("global_interval", 2);
  attention.at_most("no_rope_interval", 2);
  const Node* pattern = tree.find("model.attention.rope_pattern");
  if (!pattern || pattern->size() <= 2 || !mixed(pattern->items())) return;
  const int64_t first = pattern->items()[0].as_int();
  Node pair = *pattern;
  pair.items() = {Node::integer(first), Node::integer(1 - first)};
  tree.set("model.attention.rope_pattern", std::move(pair));
}

/// Two blocks per stage; one per stage if that exceeds kMaxBlocks.
int64_t num_blocks(int64_t ranks) {
  if (ranks == 1) return 2;
  return 2 * ranks <= kMaxBlocks ? 2 * ranks : std::min(ranks, kMaxBlocks);
}

void shrink_experts(FactShrinker& model, Shrinker& moe, int64_t ranks, int64_t hidden) {
  if (model.get(Fact::experts) == 0) return;
  moe.at_most("router.groups", 2);
  const int64_t groups = std::max<int64_t>(1, moe.get("router.groups")),
                experts = round_up(4, std::lcm(ranks, groups));
  model.set(Fact::experts, experts);
  moe.at_most("router.group_top_k", 1);
  moe.at_most("router.group_best", experts / groups);
  moe.at_most("top_k", 2);
  if (moe.get("ffn_hidden_size") > 0) moe.set("ffn_hidden_size", hidden);
  moe.at_most("shared_ffn_hidden_size", hidden);
  moe.at_most("first_dense_layers", 1);
  // The smaller model has num_blocks() blocks, at least two. At least the last one must have
  // experts.
  moe.at_most("layer_freq", num_blocks(ranks) > 2 || moe.get("first_dense_layers") == 0 ? 2 : 1);
  moe.at_most("latent_size", hidden / 2);
}

/// The widths of latent attention. Returns that of the rotary part of a head, or `head_dim` without
/// latents.
int64_t shrink_latents(Shrinker&& mla, int64_t dim, int64_t head_dim, bool small) {
  if (mla.get("kv_lora_rank") == 0) return head_dim;
  mla.at_most("q_lora_rank", 3 * dim);
  mla.at_most("kv_lora_rank", 2 * dim);
  mla.at_most("qk_head_dim", dim);
  mla.at_most("v_head_dim", dim);
  mla.at_most("rope_head_dim", small ? dim : dim / 2);
  return mla.get("rope_head_dim");
}

/// Without the settings that have no effect: the text of a twin is a recipe of its own, in which
/// they would be refused, although the recipe's command line may have switched their feature off.
void drop_unused(Node& tree) {
  Shrinker model(tree, "model");
  if (model.get("mla.kv_lora_rank") > 0)
    tree.erase("model.head_dim");
  else
    tree.erase("model.mla");
  if (model.get("moe.router.groups") == 0) tree.erase("model.moe.router.group_best");
}

void shrink_model(Node& tree, const ConfigContainer& config, int64_t ranks) {
  Shrinker model(tree, "model"), moe(tree, "model.moe");
  FactShrinker sizes(tree, config);
  auto chosen = [&](const char* key) {
    const Node* type = tree.find(cat("mixed_precision.", key));
    return type && type->as_text() != "none";
  };
  bool small = chosen("fp8") || chosen("fp4");
  int64_t heads = round_up(4, ranks), dim = small ? kSmallHeadDim : kHeadDim;
  const Node* base = tree.find("peft.base");
  // Half of all heads are as wide as a block of codes on each rank.
  if (base && base->as_text() == "nf4") dim = std::max(dim, 128 * ranks / heads);
  int64_t width = shrink_heads(sizes, heads, dim);
  shrink_rope(tree, shrink_latents(Shrinker(tree, "model.mla"), dim, width, small));
  sizes.set(Fact::layers, num_blocks(ranks));
  model.set("seq_length", round_up(16, (small ? 16 : 4) * ranks));
  shrink_attention(tree, model.get("seq_length"));
  // Of an encoder with a decoder.
  model.at_most("decoder_seq_length", model.get("seq_length") / 2);
  model.at_most("encoder_layers", 2);
  Shrinker precision(tree, "mixed_precision");
  precision.at_most("first_bf16_layers", 1);
  precision.at_most("last_bf16_layers", num_blocks(ranks) > 2 ? 1 : 0);
  model.set("vocab_size", 0);
  model.set("vocab_multiple", 1);
  model.set("recompute_layers", 1);
  if (model.get("max_positions") > 0) model.set("max_positions", model.get("seq_length"));
  shrink_experts(sizes, moe, ranks, heads * dim);
  tree.erase("model.mtp.standalone");  // a choice of layouts
  for (const char* of_its_own : {"recompute", "recompute_method", "recompute_modules",
                                 "recompute_distribute", "init_from", "init_vocab", "init_upcycle"})
    tree.erase(cat("model.", of_its_own));
  drop_unused(tree);
}

Node section(std::initializer_list<std::pair<const char*, Node>> entries) {
  Node map = Node::map();
  for (const auto& [key, value] : entries) map.set(key, value);
  return map;
}

/// Adapters of small rank to random weights. Their dropout is not valid in every layout.
/// "layers.*.attn" of "layers.12.attn": the twin has other blocks.
std::string of_any_block(std::string pattern) {
  constexpr std::string_view kBlocks = "layers.";
  for (size_t at = pattern.find(kBlocks); at != std::string::npos; at = pattern.find(kBlocks, at)) {
    at += kBlocks.size();
    const size_t end = pattern.find_first_not_of("0123456789", at);
    if (end != at) pattern.replace(at, std::min(end, pattern.size()) - at, "*");
  }
  return pattern;
}

void shrink_adapters(const Node& given, Node& tree) {
  const Node* peft = given.find("peft");
  const Node* type = given.find("peft.type");
  if (!type || type->as_text() == "none") return;
  tree.set("peft", *peft);
  Shrinker(tree, "peft").at_most("rank", 4);
  for (const char* left_out : {"peft.init_from", "peft.dropout"}) tree.erase(left_out);
  if (const Node* init = given.find("peft.init"); init && init->as_text() == "pissa")
    tree.erase("peft.init");  // random weights have no principal part
  for (const char* patterns : {"peft.targets", "peft.exclude", "peft.feedforward", "peft.train"})
    if (const Node* list = given.find(patterns); list && list->is_list()) {
      Node any = Node::list();
      for (const Node& pattern : list->items())
        any.push(Node::string(of_any_block(pattern.as_text())));
      tree.set(patterns, std::move(any));
    }
}

/// Groups without those of numbered blocks, which the twin may lack, and without their minima,
/// which may be above its learning rate.
void keep_groups(Node& tree) {
  const Node* groups = tree.find("optimizer.groups");
  if (!groups || !groups->is_list()) return;
  Node kept = Node::list();
  for (Node group : groups->items()) {
    if (!group.is_map()) continue;
    const Node* match = group.get("match");
    if (match && of_any_block(match->as_text()) != match->as_text()) continue;
    if (group.get("min_lr")) group.erase("min_lr");
    kept.push(std::move(group));
  }
  tree.set("optimizer.groups", std::move(kept));
}

/// A teacher of the twin's own size with random values of another seed, which runs in each step.
void keep_distillation(Node& tree) {
  for (const char* left_out : {"objective.teacher", "objective.store"})
    if (tree.find(left_out)) tree.erase(left_out);
  Shrinker(tree, "objective").at_most("top_k", 16);
}

/// Pairs of answers; an objective over labels takes each of a pair as good or bad. A model of
/// several scores learns classes.
void keep_objective(const Node& given, Node& tree) {
  const Node* type = given.find("objective.type");
  if (!type || type->as_text() == ObjectiveSection::kTokens) return;
  tree.set("objective", *given.find("objective"));
  if (type->as_text() == ObjectiveSection::kDistillation) return keep_distillation(tree);
  // As with the recipe's weights, although adapters of random ones do not start as nothing.
  const Node *peft = given.find("peft.type"), *train = given.find("peft.train"),
             *reference = given.find("objective.reference");
  if (peft && peft->as_text() != "none" && (!train || train->size() == 0) && reference &&
      reference->as_text() == "auto")
    tree.set("objective.reference", Node::string("adapters"));
  const Node* labels = given.find("model.labels");
  const bool classes = labels && labels->is(NodeKind::integer) && labels->as_int() > 1;
  tree.set("dataset.answers", Node::integer(classes ? 0 : 2));
}

void add_training(Node& tree, int64_t ranks, int64_t steps) {
  tree.set("tokenizer", section({{"type", Node::string("byte")}}));
  tree.set("dataset", section({{"type", Node::string("mock")}}));
  // Two samples per micro-batch, and at least as many micro-batches as stages if all ranks are
  // stages.
  tree.set(
      "train",
      section({{"steps", Node::integer(steps)},
               {"micro_batch_size", Node::integer(kMicroBatch)},
               {"global_batch_size", Node::integer(kMicroBatch * std::max<int64_t>(2, ranks))}}));
  // A learning rate at which a few steps change the weights; the recipe's schedule would still be
  // in its warm-up.
  tree.set("optimizer.lr", Node::number(1e-3));
  keep_groups(tree);
  tree.set("scheduler", section({{"type", Node::string("constant")}}));
  tree.set("checkpoint", section({{"resume", Node::string("never")}}));
  tree.set("logger",
           section({{"tensorboard", Node::boolean(false)}, {"metrics", Node::boolean(false)}}));
  tree.set("run", section({{"threads", Node::integer(1)}}));
}

}  // namespace

std::string twin_recipe(const Recipe& recipe, int64_t ranks, int64_t steps) {
  const Node* type = recipe.config.root().find("model.type");
  // The recipe may be for another number of ranks, so violated rules are ignored. Unknown settings
  // and invalid values are errors.
  bool readable = std::none_of(recipe.report.diagnostics().begin(),
                               recipe.report.diagnostics().end(), [](const auto& d) {
                                 return d.severity == Severity::error && d.code != "not-built" &&
                                        !d.code.starts_with("rule ");
                               });
  if (!readable || !type || type->as_text().empty()) recipe.report.throw_if_errors();
  Node given = recipe.config.resolved(), tree = Node::map();
  for (const char* kept : {"model", "optimizer", "mixed_precision", "ddp", "rng"})
    if (const Node* part = given.find(kept)) tree.set(kept, *part);
  // These settings are not valid in every layout, and do not affect the values.
  tree.erase("ddp.overlap_param_gather"), tree.erase("mixed_precision.fp8_params");
  // One rank sends no gradients and rounds none.
  tree.erase("ddp.grads_dtype"), tree.erase("ddp.accumulate_dtype");
  shrink_adapters(given, tree);
  if (const Node* order = given.find("dist.order")) tree.set("dist.order", *order);
  tree.set("dist.silence_seconds",
           Node::number(0));  // a failing layout must not end the process that runs the comparison
  shrink_model(tree, recipe.config, ranks);
  add_training(tree, ranks, steps);
  keep_objective(given, tree);
  return write_yaml(tree);
}

TwinSize twin_size(const TwinSize& whole, const RankLayout& layout) {
  TwinSize size = whole;
  const int64_t chunks = std::max<int64_t>(1, layout.pp * layout.vp - (layout.mtp_apart ? 2 : 0)),
                least = std::max<int64_t>(4, chunks);
  while (size.blocks % 2 == 0 && size.blocks / 2 >= least && size.blocks / 2 % chunks == 0)
    size.blocks /= 2;
  int64_t least_samples = kMicroBatch * layout.dp() * (layout.pp > 1 ? 2 * layout.pp : 2);
  auto even = [&](int64_t samples) { return samples % (kMicroBatch * layout.dp()) == 0; };
  while (size.samples % 2 == 0 && size.samples / 2 >= least_samples && even(size.samples / 2))
    size.samples /= 2;
  return size;
}

std::vector<std::string> overrides(const TwinSize& size) {
  std::vector<std::string> settings = {cat("train.global_batch_size=", size.samples)};
  if (size.blocks > 0) settings.push_back(cat(size.blocks_setting, "=", size.blocks));
  return settings;
}

}  // namespace mtrain
