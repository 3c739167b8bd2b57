// A program for mpirun: layouts over processes against one rank. Every process makes the reference
// for itself; the first says how it went. Arguments: the most layouts of each subject.
#include <cstdlib>
#include <iostream>

#include "mtrain/comm/communicator.h"
#include "mtrain/verify/report.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// Every n-th of the pairwise layouts, `most` in all.
std::vector<RankLayout> some(const LayoutVerifier& verifier, size_t most) {
  std::vector<RankLayout> all = pairwise(verifier.layouts().valid), out;
  size_t stride = std::max<size_t>(1, (all.size() + most - 1) / most);
  for (size_t i = 0; i < all.size(); i += stride) out.push_back(all[i]);
  return out;
}

int compare_layouts(Communicator& world, size_t most) {
  size_t run = 0, wrong = 0;
  for (const Subject& subject : subjects()) {
    if (!built(subject)) continue;
    LayoutVerifier verifier(recipe_of(subject), plugins(),
                            {.ranks = world.size(), .steps = 3, .world = &world});
    for (const auto& layout : some(verifier, most)) {
      LayoutVerdict verdict = verifier.verify(layout);
      bool same = verdict.kind == LayoutVerdict::Kind::same;
      // A rank that failed alone would leave the others waiting in the next layout.
      if (verdict.kind == LayoutVerdict::Kind::failed) world.abort(verdict.problem);
      wrong += world.all_reduce_value<int64_t>(same ? 0 : 1, ReduceOp::max) != 0;
      ++run;
      if (world.rank() == 0)
        std::cout << subject.name << " " << verify_table_line(verdict) << std::flush;
      else if (!same)
        std::cout << "rank " << world.rank() << ": " << verdict.problem << std::endl;
    }
  }
  if (world.rank() == 0)
    std::cout << run << " layouts over " << world.size() << " processes, " << wrong << " differ\n";
  return wrong == 0 && run > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CommContext context{.timeout = std::chrono::minutes(10)};
    auto world = plugins().make<Communicator>("mpi", Node::map(), context);
    return compare_layouts(*world, argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 8);
  } catch (const std::exception& error) {
    std::cerr << "mpi parity: " << error.what() << '\n';
    return 1;
  }
}
