#include "mtrain/recipe/reference.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "built_plugins.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/recipe.h"
#include "roots.h"

using namespace mtrain;

namespace {

SchemaCatalog built_catalog() { return schema_catalog(testing::built_plugins()); }

}  // namespace

TEST_CASE("no setting is without documentation") {
  for (const auto& path : undocumented(built_catalog()))
    CHECK_MESSAGE(false, path, " has no documentation");
  SchemaCatalog silent = built_catalog();
  silent.add_section({"extra", "something more", {FieldSpec{.path = "x"}}});
  CHECK(undocumented(silent) == std::vector<std::string>{"extra.x of extra"});
}

TEST_CASE("the references in docs/ are current") {
  auto check_current = [](const char* file, const char* format, const std::string& wanted) {
    std::ifstream in(testing::source_root() / "docs" / file);
    std::stringstream text;
    text << in.rdbuf();
    CHECK_MESSAGE(text.str() == wanted, "stale: build/bin/mtrain schema --format ", format,
                  " > docs/", file);
  };
  check_current("config.md", "markdown", reference_markdown(built_catalog()));
  check_current("rules.md", "rules", rules_markdown());
  check_current("man/mtrain-recipe.5", "man", reference_man_page(built_catalog()));
}

TEST_CASE("tables and macros survive any documentation") {
  SchemaCatalog odd;
  odd.add_section({"s",
                   "one | two",
                   {FieldSpec{.path = "x", .doc = ".a | b\nc - \\d", .default_value = "'|'"}}});
  std::string markdown = reference_markdown(odd), page = reference_man_page(odd);
  CHECK(markdown.find("| `x` | string | `'\\|'` | .a \\| b c - \\d |\n") != std::string::npos);
  CHECK(page.find("\n\\&.a | b\nc \\- \\ed.\n") != std::string::npos);
}
