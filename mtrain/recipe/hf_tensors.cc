#include "mtrain/recipe/hf_tensors.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/nn/head_shard.h"
#include "mtrain/nn/logical_matrix.h"
#include "mtrain/nn/score_head.h"

namespace mtrain {
namespace {

using Part = HfTensorRule::Part;

std::string with_number(std::string text, const std::string& letter, int64_t number) {
  const std::string wanted = cat("{", letter, "}"), by = std::to_string(number);
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1))
    text.replace(at, wanted.size(), by);
  return text;
}

bool has_letter(const std::string& text, const std::string& letter) {
  return text.find(cat("{", letter, "}")) != std::string::npos;
}

/// Rows of a parameter as a matrix.
int64_t rows_of(const Shape& shape) {
  return shape.rank() == 3 ? shape[0] * shape[1] : shape.rank() == 0 ? 1 : shape[0];
}
int64_t width_of(const Shape& shape) {
  const int64_t rows = rows_of(shape);
  return rows == 0 ? 0 : shape.numel() / rows;
}

/// The rows of queries, keys or values in the fused projection: those of one of `groups` groups of
/// heads.
void add_part(const HeadLayout& heads, Part part, int64_t group, int64_t groups, HfPlacement& out) {
  const char* name = part == Part::queries ? "q" : part == Part::keys ? "k" : "v";
  for (const LogicalMatrix& matrix : qkv_matrices(heads, 1)) {
    if (matrix.name != name) continue;
    const int64_t each = matrix.num_rows() / groups, begin = group * each, end = begin + each;
    int64_t at = 0;  // of the range, among the matrix's rows
    for (const RowRange& range : matrix.rows) {
      const int64_t from = std::max(begin, at), to = std::min(end, at + range.rows);
      if (from < to) out.rows.push_back({0, range.first + from - at, out.height, to - from});
      out.height += std::max<int64_t>(0, to - from);
      at += range.rows;
    }
  }
}

/// The rows of a tensor for parts of the fused projection.
void add_projection_parts(const HfTensor& tensor, const HeadLayout& heads, HfPlacement& out) {
  const HfTensorRule& rule = *tensor.rule;
  MT_USER_CHECK(heads.groups % rule.groups == 0, ErrorClass::config,
                cat("the family's tensor ", tensor.name, " has ", rule.groups,
                    " groups of heads, which do not divide ", heads.groups, " key/value heads"),
                "choose another number of heads, or export to another family");
  out.height = 0;
  const Part second = rule.keys_last ? Part::values : Part::keys,
             third = rule.keys_last ? Part::keys : Part::values;
  for (int64_t group = 0; group < rule.groups; ++group)
    for (const Part part : {Part::queries, second, third})
      if (rule.part == part || rule.part == Part::all)
        add_part(heads, part, group, rule.groups, out);
}

/// Whether a name fits a pattern, in which {x} stands for digits, and * at the end for any rest.
bool fits_pattern(std::string_view pattern, std::string_view name) {
  while (!pattern.empty()) {
    if (pattern == "*") return true;
    if (pattern.front() != '{') {
      if (name.empty() || name.front() != pattern.front()) return false;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
      continue;
    }
    const size_t end = pattern.find('}');
    pattern.remove_prefix(end == std::string_view::npos ? pattern.size() : end + 1);
    size_t digits = 0;
    while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits]))) ++digits;
    if (digits == 0) return false;
    name.remove_prefix(digits);
  }
  return name.empty();
}

/// The one tensor of a head of scores of sequences, in all families, and the two of one of tokens.
/// `head`: its name in the family.
const HfTensorRule& score_rule(const std::string& head, bool bias) {
  static const auto rule_of = [](const char* tensor, const char* parameter) {
    return HfTensorRule{
        .tensor = tensor, .parameters = {parameter}, .when = {}, .blocks = {}, .where = {}};
  };
  static const HfTensorRule rules[] = {
      rule_of(kScoreWeight, kScoreWeight), rule_of(kScoreBias, kScoreBias),
      rule_of("classifier.weight", kScoreWeight), rule_of("classifier.bias", kScoreBias)};
  return rules[(head == "classifier" ? 2 : 0) + (bias ? 1 : 0)];
}

bool is_of_head(const HfTensorRule& rule) { return rule.parameters[0].starts_with("head."); }

constexpr std::string_view kBlock = "layers.{i}", kFurther = "mtp.{i}";

/// Whether the family's models may have blocks for multi-token prediction.
bool has_further(const HfFamily& family) {
  return std::any_of(family.tensors.begin(), family.tensors.end(), [](const HfTensorRule& rule) {
    return rule.parameters[0].starts_with(kFurther);
  });
}

class Expander {
 public:
  Expander(const HfFamily& family, const HfModel& model) : family_(family), model_(model) {}

  std::vector<HfTensor> all() {
    for (const HfTensorRule& rule : family_.tensors) {
      if (!model_.holds(rule.when) || (model_.scores() && is_of_head(rule))) continue;
      if (!has_letter(rule.tensor, "i")) {
        add(rule, rule.tensor, rule.parameters);
        continue;
      }
      add_blocks(rule);
    }
    if (model_.scores()) add_scores();
    return std::move(out_);
  }

 private:
  void add_scores() {
    const bool tokens = model_.token_scores();
    for (const bool bias : {false, true}) {
      const HfTensorRule& rule = score_rule(tokens ? family_.token_head : "score", bias);
      if (tokens || !bias) add(rule, rule.tensor, rule.parameters);
    }
  }

  /// The tensors of all blocks, and of the blocks of multi-token prediction, which have the numbers
  /// after the last block and are like it. Parameters of "mtp.{i}" are of these alone.
  void add_blocks(const HfTensorRule& rule) {
    const bool only_further = rule.parameters[0].starts_with(kFurther);
    const int64_t layers = model_.fact(Fact::layers), depths = model_.fact(Fact::mtp_layers);
    for (int64_t i = only_further ? layers : 0; i < layers + (has_further_ ? depths : 0); ++i) {
      if (!is_in(rule, std::min(i, layers - 1))) continue;
      std::vector<std::string> parameters;
      for (std::string name : rule.parameters) {
        if (i >= layers && name.starts_with(kBlock))
          name = cat(kFurther, ".block", name.substr(kBlock.size()));
        parameters.push_back(with_number(name, "i", i < layers ? i : i - layers));
      }
      add(rule, with_number(rule.tensor, "i", i), parameters);
    }
  }

  bool is_in(const HfTensorRule& rule, int64_t block) const {
    for (const HfBlocks& blocks : family_.blocks)
      if (blocks.name == rule.blocks) return model_.contains(blocks, block) != rule.not_in_blocks;
    return true;
  }

  /// Adds a tensor, or one for each value of its further letter.
  void add(const HfTensorRule& rule, const std::string& tensor,
           const std::vector<std::string>& parameters) {
    for (const auto& [letter, setting] : family_.indices) {
      if (!has_letter(tensor, letter)) continue;
      const int64_t count = model_.number(setting);
      const bool ours = has_letter(parameters[0], letter);
      for (int64_t n = 0; n < count; ++n) {
        HfTensor one{.name = with_number(tensor, letter, n), .parameters = {}, .rule = &rule};
        for (const std::string& name : parameters)
          one.parameters.push_back(with_number(name, letter, n));
        if (!ours) one.piece = n, one.pieces = count;
        out_.push_back(std::move(one));
      }
      return;
    }
    out_.push_back({tensor, parameters, &rule});
  }

  const HfFamily& family_;
  const HfModel& model_;
  const bool has_further_ = has_further(family_);
  std::vector<HfTensor> out_;
};

}  // namespace

Node HfModel::value(const std::string& path) const {
  if (const Node* set = section_.find(path)) return *set;
  for (const FieldSpec& spec : plugin_.fields)
    if (spec.path == path && !spec.default_value.empty()) return default_value(spec, plugin_.name);
  return Node();
}

int64_t HfModel::number(const std::string& path) const {
  const Node node = value(path);
  return node.is(NodeKind::integer) ? node.as_int() : 0;
}

int64_t HfModel::fact(Fact fact) const {
  for (const FieldSpec& spec : plugin_.fields)
    if (spec.fact == fact) return number(spec.path);
  return 0;
}

bool HfModel::scores() const { return number(kLabelsSetting) > 0; }

bool HfModel::token_scores() const { return scores() && brief(value(kLabelsOfSetting)) == "token"; }

bool HfModel::holds(const HfConditions& conditions) const {
  return std::all_of(conditions.begin(), conditions.end(), [&](const auto& condition) {
    const std::string is = brief(value(condition.first));
    const Node& wanted = condition.second;
    if (wanted.is(NodeKind::string) && wanted.as_text().starts_with("not "))
      return is != wanted.as_text().substr(4);
    return is == brief(wanted);
  });
}

bool HfModel::contains(const HfBlocks& blocks, int64_t block) const {
  const int64_t from = number(blocks.from), every = std::max<int64_t>(1, number(blocks.every));
  return block >= from && (block - from + 1) % every == 0;
}

HeadLayout HfModel::heads() const {
  // Heads of latent attention have widths of their own, and no projection is of all of them.
  if (number("mla.kv_lora_rank") > 0) return {};
  return layout_of_heads(fact(Fact::hidden_size), fact(Fact::heads), fact(Fact::kv_heads),
                         fact(Fact::head_dim));
}

std::vector<HfTensor> hf_tensors(const HfFamily& family, const HfModel& model) {
  return Expander(family, model).all();
}

HfPlacement hf_placement(const HfTensor& tensor, const HeadLayout& heads,
                         const std::vector<Shape>& given) {
  const HfTensorRule& rule = *tensor.rule;
  MT_CHECK_EQ(given.size(), tensor.parameters.size());
  std::vector<Shape> shapes = given;
  const bool vectors = rule.stacked && given[0].rank() == 2;  // biases of experts: columns
  for (Shape& shape : shapes)
    if (vectors && shape.rank() == 2) shape.push_back(1);
  HfPlacement out;
  out.transposed = rule.transpose && shapes[0].rank() > 1;
  out.width = width_of(shapes[0]);
  out.stacks = rule.stacked ? shapes[0][0] : 1;
  const auto count = static_cast<int64_t>(shapes.size());
  std::vector<int64_t> heights;
  for (const Shape& shape : shapes) {
    MT_USER_CHECK(
        width_of(shape) == out.width && shape.rank() == shapes[0].rank() &&
            rows_of(shape) % (tensor.pieces * out.stacks) == 0,
        ErrorClass::plugin,
        cat("the family's tensor ", tensor.name, " cannot hold ", join(tensor.parameters, ", ")),
        cat("correct its file: ", rule.where.text()));
    heights.push_back(rows_of(shape) / tensor.pieces / out.stacks);
    out.height += heights.back();
  }
  if (rule.part != Part::whole) {
    add_projection_parts(tensor, heads, out);
  } else {
    for (int64_t s = 0; s < out.stacks; ++s) {
      int64_t offset = 0;
      for (int64_t k = 0; k < count; ++k) {
        const int64_t rows = heights[static_cast<size_t>(k)];
        out.rows.push_back({static_cast<size_t>(k), (tensor.piece + s) * rows,
                            s * out.height + (rule.interleave ? k : offset), rows,
                            rule.interleave ? count : 1});
        offset += rows;
      }
    }
  }
  MT_USER_CHECK(!rule.vector || out.height == 1, ErrorClass::plugin,
                cat("the family's tensor ", tensor.name, " is a vector, and ",
                    join(tensor.parameters, ", "), " has ", out.height, " rows for it"),
                cat("correct its file: ", rule.where.text()));
  if (vectors)
    out.shape = Shape{out.stacks, out.height};
  else if (rule.vector)
    out.shape = Shape{out.width};
  else if (shapes[0].rank() <= 1)
    out.shape = rule.matrix ? Shape{1, out.height} : Shape{out.stacks * out.height};
  else if (rule.flat)
    out.shape = out.transposed ? Shape{out.stacks * out.width, out.height}
                               : Shape{out.stacks * out.height, out.width};
  else if (out.stacks > 1 || rule.stacked)
    out.shape = out.transposed ? Shape{out.stacks, out.width, out.height}
                               : Shape{out.stacks, out.height, out.width};
  else
    out.shape = out.transposed ? Shape{out.width, out.height} : Shape{out.height, out.width};
  return out;
}

bool hf_is_of_score_head(std::string_view tensor) {
  return is_of_score_head(tensor) || tensor == "classifier.weight" || tensor == "classifier.bias";
}

bool hf_is_other_head(const HfFamily& family, const HfModel& model, std::string_view tensor) {
  return model.scores() &&
         std::any_of(family.tensors.begin(), family.tensors.end(), [&](const HfTensorRule& rule) {
           return is_of_head(rule) &&
                  (rule.tensor == tensor || without_root(rule.tensor) == tensor);
         });
}

std::vector<std::pair<std::string, std::string>> hf_copies(const HfFamily& family,
                                                           const HfModel& model) {
  std::vector<std::pair<std::string, std::string>> out;
  const int64_t layers = model.fact(Fact::layers), depths = model.fact(Fact::mtp_layers);
  for (const HfCopy& copy : family.copies) {
    if (!model.holds(copy.when)) continue;
    if (!has_letter(copy.tensor, "i")) out.emplace_back(copy.tensor, copy.of);
    // Blocks of multi-token prediction repeat what they share with the model.
    for (int64_t k = 0; has_letter(copy.tensor, "i") && k < depths; ++k)
      out.emplace_back(with_number(copy.tensor, "i", layers + k), copy.of);
  }
  return out;
}

bool hf_unused(const HfFamily& family, std::string_view tensor) {
  return std::any_of(family.unused.begin(), family.unused.end(), [&](const auto& entry) {
    const std::string_view rest = without_root(entry.first);
    return fits_pattern(entry.first, tensor) || (rest != "*" && fits_pattern(rest, tensor));
  });
}

bool hf_is_unbuilt_depth(const HfFamily& family, const HfModel& model, std::string_view tensor) {
  constexpr std::string_view kTheirs = "model.layers.";
  if (!has_further(family) || !tensor.starts_with(kTheirs)) return false;
  int64_t block = -1;
  const std::string_view number = tensor.substr(kTheirs.size());
  const auto read = std::from_chars(number.data(), number.data() + number.size(), block);
  return read.ec == std::errc() && block >= model.fact(Fact::layers) + model.fact(Fact::mtp_layers);
}

bool hf_is_buffer(const HfFamily& family, std::string_view tensor) {
  return std::any_of(family.tensors.begin(), family.tensors.end(), [&](const HfTensorRule& rule) {
    return rule.buffer &&
           (fits_pattern(rule.tensor, tensor) || fits_pattern(without_root(rule.tensor), tensor));
  });
}

std::string_view without_root(std::string_view tensor) {
  const size_t dot = tensor.find('.');
  return dot == std::string_view::npos ? tensor : tensor.substr(dot + 1);
}

}  // namespace mtrain
