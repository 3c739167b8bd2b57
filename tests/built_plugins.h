// The plugins of this build, for tests that load them.
#pragma once
#include "mtrain/plugin/plugin_host.h"
#include "roots.h"

namespace mtrain::testing {

/// A host of the plugins of this build alone.
inline PluginHost built_plugins() { return PluginHost({build_root() / "lib/mtrain/plugins"}); }
/// One of them for the whole process.
inline PluginHost& shared_plugins() {
  static PluginHost host = built_plugins();
  return host;
}

}  // namespace mtrain::testing
