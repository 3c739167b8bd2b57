// Settings as words of suggested commands.
#include "mtrain/config/setting_word.h"

#include <doctest/doctest.h>

using mtrain::setting_word;

TEST_CASE("a setting is a word that gives the text") {
  CHECK(setting_word("run.dir", "runs/a") == "run.dir=runs/a");
  CHECK(setting_word("dataset.path", "my text") == "'dataset.path=my text'");
}
