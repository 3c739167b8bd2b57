// DeviceBackend: a backend that a plugin brings ("cuda"), as the kind of component that the
// registry makes. One object per rank; ranks that are threads of one process have one each, and
// share the device.
#pragma once
#include <string>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// What the maker of a backend is given. Making one opens nothing: a machine without the device can
/// make it and ask probe().
struct BackendContext {
  bool tf32 = false;  // products of fp32 may round their operands to 10 bits of fraction, where the
                      // device is faster then
};

class MT_API DeviceBackend : public Backend {
 public:
  static constexpr std::string_view kKind = "backend";
  using Context = BackendContext;
  ~DeviceBackend() override;

  /// One line per device that probe() counts: "NVIDIA H200, 139.8 GiB, compute capability 9.0".
  virtual std::vector<std::string> describe() const = 0;
  /// What to do where probe() finds no device; empty when it finds one.
  virtual std::string remedy() const = 0;
};

}  // namespace mtrain
