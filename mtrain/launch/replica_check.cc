#include "mtrain/launch/replica_check.h"

#include <algorithm>
#include <map>
#include <vector>

#include "mtrain/base/hash.h"

namespace mtrain {
namespace {

int64_t hash_of(const Tensor& t) {
  std::vector<std::byte> bytes(static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  t.context().download(t, bytes.data());
  return crc32c(bytes);
}

/// Hashes of masters if every rank holds them completely, otherwise (ZeRO) of the values.
std::vector<int64_t> hashes_of(std::span<const Parameter* const> parameters) {
  std::vector<int64_t> hashes;
  for (const Parameter* p : parameters)
    hashes.push_back(hash_of(p->master.defined() ? p->master : p->use()));
  return hashes;
}

/// The ranks whose hash of a parameter differs from the most frequent one. If two are equally
/// frequent, the hash of the first rank counts.
std::vector<size_t> minority(const std::vector<int64_t>& hashes) {
  std::map<int64_t, size_t> count;
  for (int64_t hash : hashes) ++count[hash];
  int64_t usual = hashes[0];
  for (const auto& [hash, times] : count)
    if (times > count[usual]) usual = hash;
  std::vector<size_t> found;
  for (size_t r = 0; r < hashes.size(); ++r)
    if (hashes[r] != usual) found.push_back(r);
  return found;
}

}  // namespace

std::string replica_differences(std::span<const Parameter* const> parameters,
                                Communicator& replicas) {
  auto n = static_cast<size_t>(replicas.size());
  if (n == 1 || parameters.empty()) return {};
  std::vector<int64_t> mine = hashes_of(parameters), all(mine.size() * n), of_one(n);
  replicas.all_gather(mine, all);
  for (size_t p = 0; p < parameters.size(); ++p) {
    for (size_t r = 0; r < n; ++r) of_one[r] = all[r * mine.size() + p];
    std::vector<std::string> names;
    for (size_t r : minority(of_one)) names.push_back(cat("rank ", replicas.world_ranks()[r]));
    if (names.empty()) continue;
    std::string others = n == 2 ? cat("rank ", replicas.world_ranks()[0])
                                : cat("the other ", n - names.size(), " replicas");
    return cat(join(names, ", "), names.size() == 1 ? " holds" : " hold", " a different '",
               parameters[p]->name, "' than ", others);
  }
  return {};
}

void require_equal_replicas(const ParamList& parameters, const RankMesh& mesh, int64_t step) {
  std::vector<const Parameter*> dense, experts;
  for (const Parameter& p : parameters.all())
    if (p.trained) (p.expert ? experts : dense).push_back(&p);
  std::string found = replica_differences(dense, mesh.replicas());
  if (found.empty()) found = replica_differences(experts, mesh.expert_replicas());
  MT_USER_CHECK(found.empty(), ErrorClass::numeric,
                cat("replicas differ after step ", step, ": ", found),
                "memory or a processor of that rank is faulty: continue from an earlier checkpoint "
                "without that rank's machine");
}

}  // namespace mtrain
