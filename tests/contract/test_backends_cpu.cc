// Every level of instructions that this CPU has, best first.
#include "contract/test_backends.h"
#include "mtrain/cpu/isa.h"

namespace mtrain::contract {

std::vector<TestBackend> test_backends() {
  std::vector<TestBackend> out;
  for (const cpu::Isa& isa : cpu::usable_isas())
    out.push_back({std::string(isa.name),
                   [isa](int threads) { return cpu::make_cpu_backend_at(isa, threads); }});
  return out;
}

}  // namespace mtrain::contract
