#include "mtrain/config/setting_word.h"

#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override.h"

namespace mtrain {

std::string setting_word(std::string_view path, const std::string& text) {
  return shell_word(cat(path, "=", override_value_text(Node::string(text))));
}

}  // namespace mtrain
