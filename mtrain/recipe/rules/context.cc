// Context parallelism: one sample over several ranks.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kRules[] = {
    {"cp-divides-seq", "dist.cp", "dist.cp > 1", "model.seq_length % (2 * dist.cp) == 0",
     "{model.seq_length} tokens cannot be cut into 2 x cp = {2 * dist.cp} equal parts",
     "rank i takes the parts i and 2 cp - 1 - i, so that causal attention is the same work "
     "everywhere",
     "dist.cp; model.seq_length"},
    {"cp-comm-per-layer", "dist.cp_comm", "len(dist.cp_comm) != 1",
     "len(dist.cp_comm) == model.layers",
     "{len(dist.cp_comm)} ways are given for {model.layers} blocks",
     "give one for all, or one for each block", "dist.cp_comm=['p2p']"},
    {"cp-hierarchy-wanted", "dist.cp_hierarchy", "'a2a+p2p' in dist.cp_comm",
     "len(dist.cp_hierarchy) > 0", "a2a+p2p needs the sizes of its levels", "",
     "dist.cp_hierarchy=[2, max(1, dist.cp // 2)]"},
    {"cp-hierarchy-product", "dist.cp_hierarchy", "len(dist.cp_hierarchy) > 0",
     "product(dist.cp_hierarchy) == dist.cp",
     "the product is {product(dist.cp_hierarchy)}, and dist.cp is {dist.cp}",
     "the levels together are all ranks", "dist.cp=product(dist.cp_hierarchy)"},
    {"cp-hierarchy-used", "dist.cp_hierarchy", "len(dist.cp_hierarchy) > 0",
     "'a2a+p2p' in dist.cp_comm", "only a2a+p2p has levels", "", "dist.cp_hierarchy=[]"},
    {"a2a-heads", "dist.cp", "'a2a' in dist.cp_comm and dist.cp > 1 and model.heads % dist.tp == 0",
     "model.heads // dist.tp % dist.cp == 0",
     "the {model.heads // dist.tp} heads of a rank cannot be shared out over dist.cp ({dist.cp})",
     "a2a gives each rank all tokens of some heads", "dist.cp; dist.tp"},
    {"a2a-near-heads", "dist.cp_hierarchy",
     "'a2a+p2p' in dist.cp_comm and len(dist.cp_hierarchy) > 0 and model.heads % dist.tp == 0",
     "model.heads // dist.tp % first(dist.cp_hierarchy) == 0",
     "the {model.heads // dist.tp} heads of a rank cannot be shared out over the nearest level of "
     "{first(dist.cp_hierarchy)} ranks",
     "a2a+p2p gives each rank of that level all its tokens of some heads",
     "dist.tp; dist.cp_hierarchy=[1, dist.cp]"},
    {"dynamic-cp-needs-limit", "dist.max_tokens_per_cp_rank", "dist.dynamic_cp",
     "dist.max_tokens_per_cp_rank > 0", "dynamic context parallelism needs a limit",
     "a sample takes so many ranks that none has more tokens than this",
     "dist.max_tokens_per_cp_rank=model.seq_length // dist.cp"},
    {"dynamic-cp-alone", "dist.dynamic_cp", "dist.dynamic_cp", "dist.pp == 1",
     "does not go together with pipelines", "the ranks of a sample change from batch to batch",
     "dist.dynamic_cp; dist.pp=1"},
    {"dynamic-cp-ring", "dist.dynamic_cp", "dist.dynamic_cp", "dist.cp_comm == ['p2p']",
     "only p2p takes ranks with different numbers of tokens",
     "every sequence has a ring of its own", "dist.dynamic_cp; dist.cp_comm=['p2p']"},
    {"dynamic-cp-no-sp", "dist.dynamic_cp", "dist.dynamic_cp", "not dist.sp",
     "does not go together with sequence parallelism",
     "the tokens of a rank change from batch to batch, and need not divide by dist.tp",
     "dist.dynamic_cp; dist.sp"},
};

}  // namespace

std::span<const Rule> context_rules() { return kRules; }

}  // namespace mtrain
