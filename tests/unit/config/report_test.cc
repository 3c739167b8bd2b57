#include "mtrain/config/report.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/config/container.h"

using namespace mtrain;

namespace {

struct Settings {
  double lr = 0.1;
  std::string key;
  void bind(Fields& f) {
    f("lr", lr, "peak learning rate").min(0);
    f("key", key, "a password").secret().one_of({"right"});
  }
};

Report report_of(std::vector<OverrideText> overrides) {
  SchemaCatalog catalog;
  catalog.add_section(schema_of<Settings>("optimizer", "how parameters move"));
  Report report;
  ConfigRequest request{.recipe = "r.yaml",
                        .text = "optimizer:\n  lr: 0.5\n  key: right\n",
                        .overrides = std::move(overrides)};
  ConfigContainer config = ConfigContainer::load(request, catalog, report);
  config.add_shadows(report);
  return report;
}

}  // namespace

TEST_CASE("a fault says what its value replaced") {
  CHECK(report_of({{"optimizer.lr=-1", 3}}).text() ==
        "error[out-of-range] optimizer.lr: wanted number >= 0, got -1\n"
        "  --> command line, argument 3: optimizer.lr=-1   shadows r.yaml:2:7 (0.5)\n"
        "1 error");
  auto json = nlohmann::json::parse(report_of({{"optimizer.lr=-1", 3}}).json());
  CHECK(json["diagnostics"][0]["shadows"]["at"] == "r.yaml:2:7");
  CHECK(json["diagnostics"][0]["shadows"]["value"] == "0.5");
  // The last of several is what was replaced.
  CHECK(report_of({{"optimizer.lr=2", 3}, {"optimizer.lr=-1", 4}})
            .text()
            .find("shadows command line, argument 3 (2)") != std::string::npos);
}

TEST_CASE("a fault of a secret does not show what stood there before") {
  std::string text = report_of({{"optimizer.key=wrong", 3}}).text();
  CHECK(text.find("shadows") == std::string::npos);
  CHECK(text.find("the secret is not of type string") != std::string::npos);
}
