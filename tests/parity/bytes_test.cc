// What ranks send in a step of a whole training run, against theory. Bytes are those that the first rank sends.
#include <doctest/doctest.h>
#include <unistd.h>

#include "mtrain/train/verify_run.h"
#include "mtrain/train/verify_twin.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int64_t kRanks = 4;

struct Sizes {
  int64_t layers, hidden, tokens, micro_batches, vocab = 257;
  int64_t parameters = 0, norms = 0;  // elements; of norms alone
};

struct Sent {
  Sizes sizes;
  std::map<std::string, CommCounters> along;
  int64_t bytes(const std::string& axis, CommKind kind) const { return along.at(axis)[kind].bytes_sent; }
};

/// Sends of the second step; the tokens are those of one micro-batch.
Sent sent_in(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  std::string folder = (fs::temp_directory_path() / cat("mtrain-bytes-", ::getpid())).string();
  all.push_back("run.dir=" + folder);
  Recipe recipe = recipe_from_text(twin_recipe(recipe_of(subjects()[0]), kRanks, 2), "the twin", fs::current_path(),
                                   all, plugins());
  LayoutFigures figures = run_layout(recipe, plugins(), {.steps = 2});
  fs::remove_all(folder);
  const Node& root = recipe.config.root();
  const Settings& s = recipe.settings;
  Sizes sizes{root.find("model.layers")->as_int(), root.find("model.hidden_size")->as_int(),
              s.train.micro_batch_size * s.model.seq_length, s.micro_batches()};
  for (const auto& [name, tensor] : figures.gradients) {
    sizes.parameters += static_cast<int64_t>(tensor.values.size());
    if (name.find("norm") != std::string::npos) sizes.norms += static_cast<int64_t>(tensor.values.size());
  }
  return {sizes, figures.sent};
}

}  // namespace

TEST_CASE("sequence parallelism gathers twice and scatters twice in every block and direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.tp=", n), "dist.sp=true", "model.kv_heads=4"});
    const Sizes& z = sent.sizes;
    int64_t stream = (n - 1) * z.tokens * z.hidden * 4 / n;  // one gathering or scattering of the residual stream
    int64_t times = z.micro_batches * (4 * z.layers + 2);    // embedding and head have one pair more between them
    int64_t head =
        z.micro_batches * (n - 1) * z.tokens * 4;  // each token's logarithm of the sum over the rank's vocabulary
    CHECK(sent.bytes("tp", CommKind::reduce_scatter) == times * stream);
    CHECK(sent.bytes("tp", CommKind::all_gather) == times * stream + head);
    int64_t targets = z.micro_batches * 2 * (n - 1) * z.tokens * 4 / n;  // the target's logit
    CHECK(sent.bytes("tp", CommKind::all_reduce) == targets + 2 * (n - 1) * z.norms * 4 / n);
  }
}

TEST_CASE("tensor parallelism adds up twice in every block and direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.tp=", n), "model.kv_heads=4"});
    const Sizes& z = sent.sizes;
    int64_t times = z.micro_batches * (4 * z.layers + 2);
    int64_t targets = z.micro_batches * 2 * (n - 1) * z.tokens * 4 / n;
    CHECK(sent.bytes("tp", CommKind::all_reduce) == times * (2 * (n - 1) * z.tokens * z.hidden * 4 / n) + targets);
    CHECK(sent.bytes("tp", CommKind::reduce_scatter) == 0);
  }
}

TEST_CASE("data parallelism sends every gradient once each way, however many micro-batches there are") {
  for (const char* micro : {"train.micro_batch_size=2", "train.micro_batch_size=1"})
    for (int64_t n : {2, 4}) {
      CAPTURE(n);
      Sent sent = sent_in({cat("dist.nproc=", n), micro});
      int64_t gradients = 2 * (n - 1) * sent.sizes.parameters * 4 / n;
      int64_t all = sent.along.at("replicas").total().bytes_sent;
      CHECK(all >= gradients);
      CHECK(all <= gradients + 1024);  // the number of targets and the losses
    }
}
