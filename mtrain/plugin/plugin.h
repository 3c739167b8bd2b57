// The header that a plugin's source includes, in addition to the interface of its kind. MT_PLUGIN
// appears in it once, at file scope:
//
//   MT_PLUGIN("lion", "the Lion optimizer: sign of an interpolated momentum") {
//     registry.add<Optimizer, Lion, LionConfig>("lion", "sign of an interpolated momentum");
//   }
//
// The file must be named <kind>_<name>.so (mtrain_add_plugin in CMake ensures it) and register
// exactly that component. The host calls the registration once, from one thread.
#pragma once
#include "mtrain/plugin/registry.h"
#include "mtrain/plugin/stamp.h"

// NOLINTBEGIN(cppcoreguidelines-macro-usage): it defines the two symbols that the host looks up.
#define MT_PLUGIN(plugin_name, one_line_doc)                                        \
  extern "C" {                                                                      \
  extern MT_API const ::mtrain::PluginStamp mtrain_plugin_stamp;                    \
  MT_API void mtrain_plugin_register(::mtrain::Registry& registry);                 \
  }                                                                                 \
  __attribute__((section(".mtrain.plugin"),                                         \
                 used)) constinit const ::mtrain::PluginStamp mtrain_plugin_stamp = \
      ::mtrain::make_stamp(plugin_name, one_line_doc);                              \
  void mtrain_plugin_register([[maybe_unused]] ::mtrain::Registry& registry)
// NOLINTEND
