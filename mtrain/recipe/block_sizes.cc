#include "mtrain/recipe/block_sizes.h"

#include <algorithm>

#include "mtrain/recipe/recipe.h"

namespace mtrain {

BlockSizes block_sizes(const Recipe& recipe) {
  auto setting = [&](const char* path) {
    const Node* node = recipe.config.root().find(path);
    return node && node->kind() == NodeKind::integer ? static_cast<double>(node->as_int()) : 0.0;
  };
  auto fact = [&](Fact what, double otherwise) {
    const auto value = static_cast<double>(recipe.config.fact(what).value_or(0));
    return value > 0 ? value : otherwise;
  };
  const auto tp = static_cast<double>(recipe.settings.dist.tp);
  const double h = fact(Fact::hidden_size, 0), heads = fact(Fact::heads, 1),
               kv_heads = fact(Fact::kv_heads, heads), dim = fact(Fact::head_dim, h / heads);
  BlockSizes out{.hidden = h, .experts = fact(Fact::experts, 0)};
  // A key/value head that several ranks need is on each of them.
  const double least = recipe.config.fact(Fact::heads).value_or(0) > 0 ? 1 : 0;
  out.attention = 2 * h * dim * (heads / tp + std::max(least, kv_heads / tp));
  if (const double kv_rank = setting("model.mla.kv_lora_rank"); kv_rank > 0) {
    const double q_rank = setting("model.mla.q_lora_rank"),
                 plain = setting("model.mla.qk_head_dim"),
                 rotary = setting("model.mla.rope_head_dim"),
                 value = setting("model.mla.v_head_dim");
    out.attention =
        h * (q_rank + kv_rank + rotary) +
        heads / tp *
            ((q_rank > 0 ? q_rank : h) * (plain + rotary) + kv_rank * (plain + value) + value * h);
  }
  double width = out.experts > 0 ? setting("model.moe.ffn_hidden_size") : 0;
  if (width == 0) width = fact(Fact::ffn_hidden_size, 4 * h);
  out.mlp = 3 * h * width / (out.experts > 0 ? 1 : tp);
  if (out.experts > 0) out.chosen = setting("model.moe.top_k");
  const double latent = out.experts > 0 ? setting("model.moe.latent_size") : 0;
  if (latent > 0) {
    out.mlp = 3 * latent * width;
    out.attention += 2 * h * latent;
    out.sent = latent;
  } else {
    out.sent = h;
  }
  return out;
}

}  // namespace mtrain
