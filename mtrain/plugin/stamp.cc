#include "mtrain/plugin/stamp.h"

#include <cstring>
#include <vector>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

std::string sanitizer_names(uint32_t bits) {
  std::vector<std::string> names;
  if (bits & kAddressSanitizer) names.emplace_back("address");
  if (bits & kThreadSanitizer) names.emplace_back("thread");
  if (bits & kMemorySanitizer) names.emplace_back("memory");
  if (bits & ~7U) names.push_back(cat("unknown ", bits & ~7U));
  return names.empty() ? "none" : join(names, "+");
}

template <class T>
std::string differs(const char* what, const T& theirs, const T& ours) {
  return cat(what, ": the plugin's is ", theirs, ", mtrain's is ", ours);
}

}  // namespace

std::string stamp_text(std::span<const char> field) {
  return printable({field.data(), strnlen(field.data(), field.size())}, field.size());
}

const PluginStamp& host_stamp() {
  static constexpr PluginStamp kStamp = make_stamp("mtrain", "");
  return kStamp;
}

std::string stamp_mismatch(const PluginStamp& stamp) {
  const PluginStamp& host = host_stamp();
  if (stamp.abi != host.abi) return differs("plugin interface number", stamp.abi, host.abi);
  if (stamp.struct_size != host.struct_size)
    return differs("stamp size", stamp.struct_size, host.struct_size);
  if (stamp.pointer_bytes != host.pointer_bytes)
    return differs("pointer size", stamp.pointer_bytes, host.pointer_bytes);
  if (stamp.sanitizers != host.sanitizers)
    return differs("sanitizer", sanitizer_names(stamp.sanitizers),
                   sanitizer_names(host.sanitizers));
  if (stamp.cxx11_abi != host.cxx11_abi)
    return differs("standard library ABI (_GLIBCXX_USE_CXX11_ABI)", stamp.cxx11_abi,
                   host.cxx11_abi);
  if (stamp.glibcxx_debug != host.glibcxx_debug)
    return differs("debug containers (_GLIBCXX_DEBUG)", stamp.glibcxx_debug, host.glibcxx_debug);
  if (stamp.cplusplus != host.cplusplus)
    return differs("C++ version (__cplusplus)", stamp.cplusplus, host.cplusplus);
  if (std::strncmp(stamp.headers, host.headers, sizeof host.headers) != 0)
    return differs("hash of mtrain's headers", stamp_text(stamp.headers), stamp_text(host.headers));
  return {};
}

std::string describe(const PluginStamp& stamp) {
  return cat("mtrain ", stamp_text(stamp.version), ", plugin interface ", stamp.abi, ", headers ",
             stamp_text(stamp.headers), ", C++ ", stamp.cplusplus, ", cxx11 abi ", stamp.cxx11_abi,
             stamp.glibcxx_debug ? ", debug containers" : "", ", sanitizer ",
             sanitizer_names(stamp.sanitizers));
}

}  // namespace mtrain
