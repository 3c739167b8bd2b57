// Context parallelism: one sample over several ranks.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kContextRules[] = {
    {"cp-divides-seq", "dist.cp", "dist.cp > 1", "model.seq_length % (2 * dist.cp) == 0",
     "{model.seq_length} tokens cannot be split into 2 x cp = {2 * dist.cp} equal parts",
     "rank i has the parts i and 2 cp - 1 - i, so that causal attention is the same work on every "
     "rank",
     "dist.cp; model.seq_length"},
    {"cp-comm-per-layer", "dist.cp_comm", "len(dist.cp_comm) != 1",
     "len(dist.cp_comm) == model.layers",
     "{len(dist.cp_comm)} methods are given for {model.layers} blocks",
     "give one method for all blocks, or one for each block", "dist.cp_comm=['p2p']"},
    {"cp-hierarchy-wanted", "dist.cp_hierarchy", "'a2a+p2p' in dist.cp_comm",
     "len(dist.cp_hierarchy) > 0",
     "dist.cp_comm=a2a+p2p needs dist.cp_hierarchy: the number of ranks of each level", "",
     "dist.cp_hierarchy=[2, max(1, dist.cp // 2)]"},
    {"cp-hierarchy-product", "dist.cp_hierarchy", "len(dist.cp_hierarchy) > 0",
     "product(dist.cp_hierarchy) == dist.cp",
     "the product is {product(dist.cp_hierarchy)}, and dist.cp is {dist.cp}",
     "the product of the levels is the number of context-parallel ranks",
     "dist.cp=product(dist.cp_hierarchy)"},
    {"cp-hierarchy-used", "dist.cp_hierarchy", "len(dist.cp_hierarchy) > 0",
     "'a2a+p2p' in dist.cp_comm", "only a2a+p2p has levels", "", "dist.cp_hierarchy=[]"},
    {"a2a-heads", "dist.cp", "'a2a' in dist.cp_comm and dist.cp > 1 and model.heads % dist.tp == 0",
     "model.heads // dist.tp % dist.cp == 0",
     "the {model.heads // dist.tp} heads of a rank cannot be divided among dist.cp ({dist.cp}) "
     "ranks",
     "a2a gives each rank all tokens of some heads", "dist.cp; dist.tp"},
    {"a2a-near-heads", "dist.cp_hierarchy",
     "'a2a+p2p' in dist.cp_comm and len(dist.cp_hierarchy) > 0 and model.heads % dist.tp == 0",
     "model.heads // dist.tp % first(dist.cp_hierarchy) == 0",
     "the {model.heads // dist.tp} heads of a rank cannot be divided among the nearest level of "
     "{first(dist.cp_hierarchy)} ranks",
     "a2a+p2p gives each rank of that level all its tokens of some heads",
     "dist.tp; dist.cp_hierarchy=[1, dist.cp]"},
    {"dynamic-cp-needs-limit", "dist.max_tokens_per_cp_rank", "dist.dynamic_cp",
     "dist.max_tokens_per_cp_rank > 0", "dynamic context parallelism needs a limit",
     "each sample uses enough ranks that none has more tokens than this",
     "dist.max_tokens_per_cp_rank=model.seq_length // dist.cp"},
    {"dynamic-cp-limit", "dist.max_tokens_per_cp_rank",
     "dist.dynamic_cp and dist.max_tokens_per_cp_rank > 0",
     "model.seq_length <= dist.cp * dist.max_tokens_per_cp_rank",
     "a sequence of {model.seq_length} tokens has {(model.seq_length + dist.cp - 1) // dist.cp} on "
     "each of the dist.cp ({dist.cp}) ranks, and the limit is {dist.max_tokens_per_cp_rank}",
     "a sequence has at most dist.cp ranks",
     "dist.max_tokens_per_cp_rank=(model.seq_length + dist.cp - 1) // dist.cp; dist.cp"},
    {"dynamic-cp-alone", "dist.dynamic_cp", "dist.dynamic_cp", "dist.pp == 1",
     "cannot be combined with pipelines", "the ranks of a sample change from batch to batch",
     "dist.dynamic_cp; dist.pp=1"},
    {"dynamic-cp-ring", "dist.dynamic_cp", "dist.dynamic_cp", "dist.cp_comm == ['p2p']",
     "only p2p supports ranks with different numbers of tokens", "every sequence has its own ring",
     "dist.dynamic_cp; dist.cp_comm=['p2p']"},
    {"dynamic-cp-no-sp", "dist.dynamic_cp", "dist.dynamic_cp", "not dist.sp",
     "cannot be combined with sequence parallelism",
     "the tokens of a rank change from batch to batch, and need not divide by dist.tp",
     "dist.dynamic_cp; dist.sp"},
};

}  // namespace

std::span<const Rule> context_rules() { return kContextRules; }

}  // namespace mtrain
