// DeviceBackend: a backend that a plugin provides ("cuda"), as a kind of component in the registry.
// One object per rank. Ranks that are threads of one process have one object each and share the
// device. Thread-safe like Backend.
#pragma once
#include <string>
#include <vector>

#include "mtrain/tensor/backend.h"

namespace mtrain {

/// Arguments of a backend's constructor. Construction opens no device: on a machine without one it
/// succeeds, and probe() gives the reason.
struct BackendContext {
  bool tf32 = false;  // fp32 products may round their operands to 10 fraction bits where the device
                      // is faster that way
  bool any_order_attention = false;  // the gradient of attention may be summed in any order where
                                     // the device is faster that way; its last bits then vary
};

class MT_API DeviceBackend : public Backend {
 public:
  static constexpr std::string_view kKind = "backend";
  using Context = BackendContext;
  ~DeviceBackend() override;

  /// One line per device that probe() counts: "NVIDIA H200, 139.8 GiB, compute capability 9.0".
  virtual std::vector<std::string> describe() const = 0;
  /// What the user can do if probe() finds no device; empty if it finds one.
  virtual std::string remedy() const = 0;
};

}  // namespace mtrain
