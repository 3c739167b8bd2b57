#include "mtrain/config/units.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

using namespace mtrain;

namespace {

struct UnitConfig {
  int64_t tokens = 0, seconds = 0, bytes = 0, plain = 0;
  double minutes = 0, rate = 0;
  int small = 0;
  std::vector<int64_t> steps;
  std::string text;
  void bind(Fields& f) {
    f("tokens", tokens, "").unit("tokens");
    f("seconds", seconds, "").unit("s");
    f("bytes", bytes, "").unit("bytes");
    f("plain", plain, "");
    f("minutes", minutes, "").unit("min");
    f("rate", rate, "").max(1e13);
    f("small", small, "");
    f("steps", steps, "").unit("steps");
    f("text", text, "");
  }
};

/// The value of one key, or the faults.
std::string read_units(const std::string& yaml) {
  Report report;
  Node out = validate(parse_yaml(yaml, "r.yaml"), schema_of<UnitConfig>("x", ""), report);
  if (!report.ok()) return report.text();
  return write_flow(*out.get(yaml.substr(0, yaml.find(':'))));
}

}  // namespace

TEST_CASE("a number may have a magnitude and the unit of its setting") {
  struct Row {
    const char* yaml;
    const char* result;  // the value, or words of the fault
  };
  const Row rows[] = {
      {"plain: 4k", "4000"},
      {"plain: 4Ki", "4096"},
      {"plain: 1.5k", "1500"},
      {"plain: -2M", "-2000000"},
      {"plain: +2M", "2000000"},
      {"plain: 1G", "1000000000"},
      {"plain: 1B", "1000000000"},
      {"plain: 2T", "2000000000000"},
      {"plain: 1Mi", "1048576"},
      {"plain: 1Gi", "1073741824"},
      {"plain: 1Ti", "1099511627776"},
      {"plain: 1.5Ki", "1536"},
      {"plain: .5k", "500"},
      {"plain: 0.0005M", "500"},
      {"plain: 9223372036854775.807k", "9223372036854775807"},
      {"plain: 9223372036854775.808k", "does not fit in 64 bits"},
      {"plain: 1.2345k", "it is 1234.5"},
      {"plain: 0.1Ki", "wanted an integer"},
      {"plain: 4K", "write 4k for thousands or 4Ki"},
      {"plain: 4x", "'x' is neither a magnitude"},
      {"plain: 4kk", "neither a magnitude nor a unit"},
      {"plain: 64MB", "is a number of bytes; this setting has no unit"},
      {"tokens: 64MB", "is a number of bytes; the unit here is tokens"},
      {"plain: 30m", "for millions write 30M"},
      {"plain: 5tokens", "this setting has no unit"},
      {"plain: '4k'", "write 4k without quotes"},
      {"plain: k", "wanted an integer"},
      {"plain: 1.2.3k", "wanted an integer"},
      {"small: 3G", "does not fit 32 bits"},
      {"tokens: 1.5B_tokens", "1500000000"},
      {"tokens: 1.5B tokens", "1500000000"},
      {"tokens: 500tokens", "500"},
      {"tokens: 1token", "1"},
      {"tokens: 1kTokens", "neither a magnitude nor a unit"},
      {"tokens: 500steps", "the unit here is tokens"},
      {"tokens: 5s", "is a time; the unit here is tokens"},
      {"steps: [1k, 2ksteps]", "[1000, 2000]"},
      {"steps: [1k, 5tokens]", "the unit here is steps"},
      {"seconds: 2h", "7200"},
      {"seconds: 90", "90"},
      {"seconds: 30m", "1800"},
      {"seconds: 1.5min", "90"},
      {"seconds: 1d", "86400"},
      {"seconds: 1500ms", "it is 1.5"},
      {"seconds: 2000ms", "2"},
      {"seconds: 1k", "not a unit of time"},
      {"seconds: 1ks", "not a unit of time"},
      {"minutes: 90s", "1.5"},
      {"minutes: 2h", "120.0"},
      {"minutes: 10", "10.0"},
      {"minutes: 1steps", "the unit here is min"},
      {"bytes: 4GiB", "4294967296"},
      {"bytes: 4GB", "4000000000"},
      {"bytes: 16B", "16"},
      {"bytes: 16bytes", "16"},
      {"bytes: 1Mi", "1048576"},
      {"rate: 1.5k", "1500.0"},
      {"rate: 0.1k", "100.0"},
      {"rate: 3Ki", "3072.0"},
      {"rate: 100T", "wanted number <= "},
      {"text: 4k", "4k"},
      {"plain: 010", "write 10 (or 8 if octal was meant)"},
      {"plain: yes", "wanted an integer"},
      {"plain: 1_000", "write 1000"},
      {"plain: 1e3k", "1000000"},
      {"tokens: 1.5e9 tokens", "1500000000"},
      {"plain: 5e-1k", "500"},
      {"rate: 1e-3k", "1.0"},
      {"plain: 4e", "'e' is neither a magnitude"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.yaml);
    std::string got = read_units(row.yaml);
    CAPTURE(got);
    if (got.starts_with("error["))
      CHECK(got.find(row.result) != std::string::npos);
    else
      CHECK(got == row.result);
  }
}
