#include "mtrain/data/absent_path.h"

#include "mtrain/base/text.h"

namespace mtrain {

std::string advice_for_comma(const std::filesystem::path& path, std::string_view several) {
  if (path.string().find(',') == std::string::npos) return {};
  return cat("; a text with a comma is one path: ", several, "; to train once for each, use -m");
}

}  // namespace mtrain
