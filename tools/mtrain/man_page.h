// Manual pages of commands, in the macros of man(7). Stateless.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace mtrain {

/// The page of section 1 of a command; `spelled` is its full name, "mtrain data prepare".
std::string man_page(const CLI::App& command, const std::string& spelled);

}  // namespace mtrain
