// Which matrices a parameter contains, and what a parameter is.
#include "mtrain/nn/logical_matrix.h"

#include <doctest/doctest.h>

#include "contract/harness.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"
#include "mtrain/nn/moe.h"

namespace mtrain {
namespace {

using namespace contract;

TEST_CASE("plain matrices: the last two dimensions, one for each index of those before them") {
  CHECK(plain_matrices({}).empty());
  CHECK(plain_matrices({7}).empty());
  CHECK(plain_matrices({3, 5}) == std::vector<LogicalMatrix>{{"", {{0, 3}}, 5}});
  CHECK(plain_matrices({2, 3, 5}) ==
        std::vector<LogicalMatrix>{{"0", {{0, 3}}, 5}, {"1", {{3, 3}}, 5}});
  CHECK(plain_matrices({2, 2, 3, 5}).back() == LogicalMatrix{"3", {{9, 3}}, 5});
}

TEST_CASE("matrices of a fused projection: group by group its queries, its key, its value") {
  for (HeadLayout layout : {HeadLayout{4, 4, 3}, HeadLayout{6, 2, 5}, HeadLayout{8, 1, 2}}) {
    auto matrices = qkv_matrices(layout, 11);
    REQUIRE(matrices.size() == 3);
    CHECK(matrices[0].num_rows() == layout.heads * layout.head_dim);
    CHECK(matrices[1].num_rows() == layout.groups * layout.head_dim);
    CHECK(matrices[2].num_rows() == layout.groups * layout.head_dim);
    const int64_t queries = layout.queries_per_group() * layout.head_dim;
    for (const LogicalMatrix& matrix : matrices) {
      CHECK(matrix.cols == 11);
      REQUIRE(matrix.rows.size() == static_cast<size_t>(layout.groups));
      for (int64_t g = 0; g < layout.groups; ++g) {
        const int64_t begin = matrix.name == "q"   ? 0
                              : matrix.name == "k" ? queries
                                                   : queries + layout.head_dim;
        CHECK(matrix.rows[static_cast<size_t>(g)].first == g * layout.group_stride() + begin);
      }
    }
  }
}

TEST_CASE("matrix_of and set_matrix: rows in order, a view where they are one range") {
  Fixture lab;
  ExecutionContext& ctx = lab.context();
  Tensor tensor = make(ctx, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 2, 2}, DType::f32);
  LogicalMatrix one{"one", {{2, 2}}, 2}, split{"split", {{4, 1}, {0, 2}}, 2};
  Tensor view = matrix_of(tensor, one), copy = matrix_of(tensor, split);
  CHECK(view.shape() == Shape({2, 2}));
  CHECK(view.storage() == tensor.storage());
  CHECK(values_of(view) == Values{4, 5, 6, 7});
  CHECK(copy.shape() == Shape({3, 2}));
  CHECK(values_of(copy) == Values{8, 9, 0, 1, 2, 3});
  ctx.fill(view, -1);
  set_matrix(tensor, one, view);
  set_matrix(tensor, split, make(ctx, {20, 21, 22, 23, 24, 25}, {3, 2}, DType::f32));
  CHECK(values_of(tensor) == Values{22, 23, 24, 25, -1, -1, -1, -1, 20, 21, 10, 11});
  CHECK_THROWS(set_matrix(tensor, split, view));
}

TEST_CASE("layers say what their parameters are and which matrices they contain") {
  Fixture lab;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list};
  Scope s(settings);
  Dim embed{"embed", 8}, vocab{"vocab", 10};
  Embedding table(s / "embed", vocab, embed);
  Norm norm(s / "norm", Norm::Kind::layer, embed, 1e-5f);
  Attention attention(s / "attn", embed, {.layout = {4, 2, 2}, .bias = true});
  GatedMlp mlp(s / "mlp", embed, {"mlp", 12}, 0.02f, 0.02f);
  Moe moe(s / "moe", embed,
          {.experts = 2, .ffn = 3, .shared_ffn = 4, .shared_gate = true, .rule = {.top_k = 1}});
  LmHead head(s / "head", vocab, embed, 10, nullptr, 0.02f, true);
  s.param("free", {{"a", 2}, {"b", 3}}, Init::ones(), true);
  s.param("scale", {{"a", 2}}, Init::ones(), true);
  s.param("table", {{"a", 2}, {"b", 3}}, Init::ones(), true, ParamRole::other);
  auto role = [&](std::string_view name) {
    REQUIRE_MESSAGE(list.find(name), name);
    return list.find(name)->role;
  };
  CHECK(role("embed.weight") == ParamRole::embedding);
  CHECK(role("norm.weight") == ParamRole::norm);
  CHECK(role("norm.bias") == ParamRole::norm);
  CHECK(role("attn.qkv.weight") == ParamRole::matrix);
  CHECK(role("attn.qkv.bias") == ParamRole::bias);
  CHECK(role("attn.out.weight") == ParamRole::matrix);
  CHECK(role("mlp.down.weight") == ParamRole::matrix);
  CHECK(role("moe.router.weight") == ParamRole::router);
  CHECK(role("moe.shared.scale.weight") == ParamRole::router);
  CHECK(role("moe.shared.up.weight") == ParamRole::matrix);
  CHECK(role("moe.experts.up.weight") == ParamRole::expert_matrix);
  CHECK(role("head.weight") == ParamRole::head);
  CHECK(role("head.bias") == ParamRole::bias);
  CHECK(role("free") == ParamRole::matrix);
  CHECK(role("scale") == ParamRole::other);
  CHECK(role("table") == ParamRole::other);
  CHECK(list.find("attn.qkv.weight")->matrices == qkv_matrices({4, 2, 2}, 8));
  CHECK(list.find("attn.qkv.bias")->matrices.empty());
  CHECK(list.find("moe.experts.down.weight")->matrices ==
        std::vector<LogicalMatrix>{{"0", {{0, 8}}, 3}, {"1", {{8, 8}}, 3}});
  CHECK(list.find("attn.out.weight")->matrices == plain_matrices({8, 8}));
  for (const Parameter& p : list.all()) {
    int64_t elements = 0;
    for (const LogicalMatrix& m : p.matrices) elements += m.num_rows() * m.cols;
    CHECK_MESSAGE(elements == (p.matrices.empty() ? 0 : p.global.numel()), p.name);
    CHECK(p.tensor_axis == nullptr);
    CHECK(p.tensor_dim == -1);
  }
}

}  // namespace
}  // namespace mtrain
