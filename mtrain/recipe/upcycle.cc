#include "mtrain/recipe/upcycle.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr std::string_view kExperts = ".mlp.experts.", kDown = ".down.weight";
constexpr const char* kNormalize = "moe.router.normalize";

std::string value_text(const HfModel& model, const std::string& path) {
  return brief(model.value(path));
}

double real_number(const HfModel& model, const std::string& path, double otherwise) {
  const Node value = model.value(path);
  return value.is(NodeKind::number) || value.is(NodeKind::integer) ? value.as_double() : otherwise;
}

int64_t expert_width(const HfModel& model) {
  const int64_t own = model.number("moe.ffn_hidden_size");
  return own > 0 ? own : model.number("ffn_hidden_size");
}

/// Whether the weights of a token's experts have a constant sum, by RouterRule::normalizes().
bool normalizes(const HfModel& model) {
  const std::string normalize = value_text(model, kNormalize);
  if (normalize != "auto") return normalize == "always";
  return value_text(model, "moe.router.score") == "softmax"
             ? value_text(model, "moe.router.pre_softmax") != "true"
             : model.number("moe.top_k") > 1;
}

/// Settings that add something to the model for which the dense one has no values, or that change
/// what its MLP computes. Each must be off.
void add_additions(const HfModel& model, std::vector<UpcycleFault>& out) {
  struct Addition {
    const char *setting, *off, *why;
  };
  constexpr Addition kAdditions[] = {
      {"mlp_gated", "true", "experts have gates, which this MLP does not have"},
      {"mlp_bias", "false", "experts that start from a dense MLP have no biases"},
      {"moe.expert_bias", "false", "experts that start from a dense MLP have no biases"},
      {"moe.shared_experts", "0", "a dense model has no values for a shared expert"},
      {"moe.shared_ffn_hidden_size", "0", "a dense model has no values for a shared expert"},
      {"moe.shared_gate", "false", "a dense model has no values for a shared expert"},
      {"moe.latent_size", "0", "a dense model has no projections around its MLP"},
      {"moe.activation_clamp", "null", "it changes what the MLP computes"},
      {"moe.swish_factor", "1", "it changes what the MLP computes"},
      {"moe.glu_offset", "0", "it changes what the MLP computes"},
      {"mla.kv_lora_rank", "0", "the dense models have plain attention"},
      {"mtp.layers", "0", "the dense models have no blocks for multi-token prediction"}};
  for (const auto& [setting, off, why] : kAdditions) {
    const Node value = model.value(setting);
    const bool number = value.is(NodeKind::number) || value.is(NodeKind::integer);
    const bool is_off =
        number ? value.as_double() == std::atof(off) : value.is_null() || brief(value) == off;
    if (!is_off)
      out.push_back(
          {setting, cat("is ", brief(value), ": ", why), cat("set model.", setting, "=", off)});
  }
}

/// Experts of a part of the MLP's width.
void add_width_faults(const HfModel& model, int64_t dense, std::vector<UpcycleFault>& out) {
  const int64_t own = expert_width(model);
  const char* setting =
      model.number("moe.ffn_hidden_size") > 0 ? "moe.ffn_hidden_size" : "ffn_hidden_size";
  if (dense < 1) {
    out.push_back(
        {setting,
         "cannot be compared: config.json of the folder does not say how wide its "
         "MLP is",
         "give config.json the width as a whole number, or leave model.init_upcycle out"});
    return;
  }
  if (own < 1 || dense % own != 0) {
    out.push_back(
        {setting, cat("is ", own, ", which does not divide the width of the folder's MLP, ", dense),
         cat("choose ", dense, " (each expert is a copy of the MLP), or a divisor of ", dense,
             " (each expert is a slice of it)")});
    return;
  }
  const int64_t parts = dense / own, experts = model.number("moe.experts"),
                groups = model.number("moe.router.groups");
  if (parts == 1) return;
  const std::string copy = cat(parts, " experts of this width are one copy of the MLP");
  for (const char* whole : {"moe.experts", "moe.top_k"})
    if (model.number(whole) % parts != 0)
      out.push_back({whole, cat("is ", model.number(whole), ", but ", copy),
                     cat("choose a multiple of ", parts)});
  if (groups > 0 && experts / groups % parts != 0)
    out.push_back({"moe.router.groups",
                   cat("is ", groups, ", which gives groups of ", experts / groups, ", but ", copy),
                   "choose groups of whole copies"});
  const Node balancing = model.value("moe.router.balancing");
  if (brief(balancing).find("sinkhorn") != std::string::npos)
    out.push_back({"moe.router.balancing", cat("sinkhorn does not select whole copies: ", copy),
                   "choose aux_loss, or experts of the whole width"});
}

/// "layers.3.mlp.gate.weight": 3; -1 for other names. `rest`: what follows "mlp.".
int64_t mlp_block(std::string_view name, std::string_view& rest) {
  constexpr std::string_view kLayers = "layers.", kMlp = ".mlp.";
  if (!name.starts_with(kLayers)) return -1;
  name.remove_prefix(kLayers.size());
  int64_t block = 0;
  size_t digits = 0;
  while (digits < name.size() && digits < 9 &&
         std::isdigit(static_cast<unsigned char>(name[digits])))
    block = block * 10 + (name[digits++] - '0');
  name.remove_prefix(digits);
  if (digits == 0 || !name.starts_with(kMlp)) return -1;
  rest = name.substr(kMlp.size());
  return block;
}

}  // namespace

std::vector<UpcycleFault> upcycle_faults(const HfModel& model, int64_t dense_width) {
  std::vector<UpcycleFault> out;
  add_additions(model, out);
  add_width_faults(model, dense_width, out);
  if (!normalizes(model))
    out.push_back({kNormalize,
                   "gives the routing weights of a token no constant sum, so the model would not "
                   "start with the folder's function",
                   value_text(model, "moe.router.score") == "softmax"
                       ? "set model.moe.router.pre_softmax=false, or "
                         "model.moe.router.normalize=always, which fewer families can express"
                       : "set model.moe.router.normalize=always"});
  return out;
}

Upcycling upcycling_of(const HfModel& model, int64_t dense_width) {
  const int64_t parts = dense_width / expert_width(model);
  return {.experts = model.number("moe.experts"),
          .parts = parts,
          .scale = static_cast<double>(parts) / real_number(model, "moe.router.scaling", 1)};
}

std::string not_upcyclable(const Schema& dense, const Schema& experts) {
  const bool mixture = std::any_of(experts.fields.begin(), experts.fields.end(),
                                   [](const FieldSpec& f) { return f.fact == Fact::experts; });
  if (!mixture) return cat("models of the plugin ", experts.name, " have no experts");
  if (dense.name == experts.name) return "it has experts already";
  for (const FieldSpec& field : dense.fields)
    if (std::none_of(experts.fields.begin(), experts.fields.end(),
                     [&](const FieldSpec& other) { return other.path == field.path; }))
      return cat("the model plugin ", dense.name, ", which reads it, has the setting model.",
                 field.path, ", and ", experts.name, " does not");
  return "";
}

std::string upcycled_name(const HfModel& model, const std::string& dense) {
  std::string_view rest;
  const int64_t block = mlp_block(dense, rest);
  if (block < 0 || (rest != "gate.weight" && rest != "up.weight" && rest != "down.weight"))
    return dense;
  const HfBlocks sparse{
      .name = "sparse", .from = "moe.first_dense_layers", .every = "moe.layer_freq"};
  if (!model.contains(sparse, block)) return dense;
  return cat("layers.", block, kExperts, rest);
}

bool is_upcycled(const std::string& parameter) {
  return parameter.find(kExperts) != std::string::npos && parameter.ends_with(".weight");
}

Shape dense_shape(const Upcycling& how, const std::string& parameter, const Shape& shape) {
  MT_CHECK_EQ(shape.rank(), 3);
  return parameter.ends_with(kDown) ? Shape{shape[1], shape[2] * how.parts}
                                    : Shape{shape[1] * how.parts, shape[2]};
}

std::vector<float> upcycled(const Upcycling& how, const std::string& parameter, const Shape& shape,
                            const std::vector<float>& dense) {
  MT_CHECK_EQ(shape[0], how.experts);
  const int64_t rows = shape[1], width = shape[2];
  std::vector<float> out(static_cast<size_t>(shape.numel()));
  const bool down = parameter.ends_with(kDown);
  for (int64_t e = 0; e < how.experts; ++e) {
    const int64_t part = e % how.parts;
    float* to = out.data() + e * rows * width;
    if (!down) {  // the part's rows are one after the other
      std::copy_n(dense.data() + part * rows * width, rows * width, to);
      continue;
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c)
        to[r * width + c] = static_cast<float>(
            how.scale * double{dense[static_cast<size_t>((r * how.parts + part) * width + c)]});
  }
  return out;
}

void share_rows(const Upcycling& how, std::vector<float>& rows) {
  const size_t width = rows.size() / static_cast<size_t>(how.experts),
               parts = static_cast<size_t>(how.parts);
  for (size_t e = 0; e < static_cast<size_t>(how.experts); ++e)
    if (e % parts != 0)
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(e / parts * parts * width), width,
                  rows.begin() + static_cast<std::ptrdiff_t>(e * width));
}

}  // namespace mtrain
