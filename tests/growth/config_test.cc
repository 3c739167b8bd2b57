// Recipes of any size and shape: read, overridden, computed and checked in linear work, and what
// would grow without end stops at a limit.
#include "growth/work.h"
#include "mtrain/base/text.h"
#include "mtrain/config/container.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/override.h"
#include "mtrain/config/yaml_load.h"

using namespace mtrain;
using testing::check_bounded;
using testing::check_linear;
using testing::work_of;

namespace {

SourcePtr source_of(std::string text) {
  return std::make_shared<Source>(SourceKind::file, "r.yaml", std::move(text));
}

std::string repeated(std::string_view part, int64_t times) {
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += part;
  return out;
}

/// The work of reading a text, and of writing what is wrong with it.
uint64_t work_of_loading(const std::string& text) {
  return work_of([&] {
    Report report;
    (void)load_yaml(source_of(text), report);
    (void)report.text();
  });
}

/// The work of computing the expressions of a recipe, whose faults have to tell `fault`.
uint64_t work_of_computing(const std::string& yaml, std::string_view fault) {
  Node root = parse_yaml(yaml, "r.yaml");
  Report report;
  uint64_t work = work_of([&] { interpolate(root, InterpolationScope{}, report); });
  std::string text = report.text();
  CAPTURE(text.substr(0, 500));
  CHECK((fault.empty() ? report.ok() : text.find(fault) != std::string::npos));
  return work;
}

struct Settings {
  int64_t steps = 0;
  void bind(Fields& f) { f("steps", steps, "optimizer steps").min(1); }
};

std::string unknown_keys(int64_t count, const char* value) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += cat("key_", i, ": ", value, "\n");
  return text;
}

/// The work of loading a recipe of so many known settings in so many groups of each section, a
/// seventh of them expressions.
uint64_t work_of_known(int64_t sections, int64_t settings, int64_t groups) {
  SchemaCatalog catalog;
  std::string text;
  for (int64_t s = 0; s < sections; ++s) {
    Schema schema{cat("section_", s), "", {}, {}};
    text += schema.name + ":\n";
    for (int64_t k = 0; k < settings; ++k) {
      FieldSpec spec;
      spec.path = cat("group_", k % groups, ".key_", k);
      spec.type = FieldType::integer;
      spec.default_value = "0";
      schema.fields.push_back(spec);
    }
    for (int64_t g = 0; g < groups; ++g) {
      text += cat("  group_", g, ":\n");
      for (int64_t k = g; k < settings; k += groups)
        text += cat("    key_", k, ": ", k % 7 != 0 ? "4k" : "${= 2 * 3}", "\n");
    }
    catalog.add_section(std::move(schema));
  }
  ConfigRequest request;
  request.recipe = "big.yaml";
  request.text = text;
  return work_of([&] {
    Report report;
    auto config = ConfigContainer::load(request, catalog, report);
    CHECK(report.ok());
    CHECK(config.root().at("section_0.group_1.key_1").as_int() == 4000);
  });
}

}  // namespace

TEST_CASE("a recipe is read in linear work, hostile shapes too") {
  check_linear("keys", 5000, [](int64_t n) { return work_of_loading(unknown_keys(n, "1")); });
  const std::pair<const char*, std::string_view> lines[] = {
      {"plain words", "x "},
      {"lines of a plain scalar", " x\n"},
      {"open quotes", "''"},
      {"comments", "#\n"},
      {"question marks", "? "},
      {"flow keys", "a,"},
      {"colons", "a:\n"},
      {"anchors", "&a "},
      {"tags", "! "},
      {"blanks", " "},
      {"block text", " x\n"},
      {"folded text", " x\n\n"},
      {"escapes", "\\x41"},
      {"percent", "%YAML 1.2\n"},
      {"document ends", "...\n"},
      {"small strings", "- 'a'\n"},
      {"long key", "k"},
      {"bidi", "\xE2\x80\xAE"},
      {"lists", "["},
      {"dashes", "- "},
  };
  for (const auto& [what, part] : lines)
    for (const char* before : {"", "a:\n", "a: '", "a: \"", "a: |\n", "a: >\n", "{"}) {
      auto of = [&](int64_t bytes) {
        return work_of_loading(before + repeated(part, bytes / static_cast<int64_t>(part.size())) +
                               "\n");
      };
      uint64_t small = of(16384), large = of(65536);
      INFO(std::string(what), " after '", std::string(before), "': ", small, ", ", large);
      CHECK(small > 100);
      CHECK(large < 5 * small);
    }
}

TEST_CASE("aliases that name each other stop at a limit") {
  check_bounded("alias bomb", 8, 14, [](int64_t depth) {
    std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
    for (int64_t i = 1; i < depth; ++i)
      bomb += cat("a", i, ": &a", i, " [", repeated(cat("*a", i - 1, ", "), 8), "*a", i - 1, "]\n");
    return work_of_loading(bomb);
  });
}

TEST_CASE("expressions that name each other stop at a limit, and nestings are linear") {
  auto bomb = [](int64_t depth, const std::string& first, const std::string& open,
                 const std::string& between, const std::string& close) {
    std::string text = "a0: " + first + "\n";
    for (int64_t i = 1; i < depth; ++i) {
      text += cat("a", i, ": ", open);
      for (int k = 0; k < 10; ++k) text += cat(k ? between : "", "${a", i - 1, "}");
      text += close + "\n";
    }
    return text;
  };
  check_bounded("lists of lists", 9, 15, [&](int64_t depth) {
    return work_of_computing(bomb(depth, "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "[\"", "\", \"", "\"]"),
                             "too many values");
  });
  check_bounded("texts of texts", 9, 15, [&](int64_t depth) {
    return work_of_computing(bomb(depth, "xxxxxxxxxx", "\"", "", "\""), "text is too long");
  });
  // A chain ends at a limit for each that asks. A map is searched from its start, so that n names
  // in one are n * n comparisons.
  const uint64_t length = 2000;
  std::string chain;
  for (uint64_t i = 0; i < length; ++i) chain += cat("a", i, ": ${a", i + 1, "}\n");
  CHECK(work_of_computing(cat(chain, "a", length, ": 1\n"), "chain of more than") <
        5 * length * length);
  check_linear("a nesting", 1000, [](int64_t depth) {
    return work_of_computing("a: \"" + repeated("${", depth) + repeated("}", depth) + "\"\n",
                             "error[interpolation]");
  });
  check_linear("many expressions", 2000, [](int64_t count) {
    std::string text = "a: 2\n";
    for (int64_t i = 0; i < count; ++i) text += cat("b", i, ": ${= ", i, " * ${a}}\n");
    return work_of_computing(text, "");
  });
}

TEST_CASE("overrides are applied in linear work") {
  auto applying = [](const std::string& line, int64_t count) {
    std::string text = repeated(line, count);
    return work_of([&] {
      Report report;
      Node root = parse_yaml("{a: 0, l: []}");
      for (const auto& one :
           read_override_lines(std::make_shared<Source>(SourceKind::file, "o.txt", text), report))
        if (auto override = parse_override(one, report)) apply_override(root, *override, report);
      CHECK(report.ok());
      CHECK(root.at("a").history().size() + root.at("l").history().size() ==
            static_cast<size_t>(count));
    });
  };
  check_linear("overrides of one setting", 2500,
               [&](int64_t count) { return applying("a=1\n", count); });
  // The history of a list keeps what it was before each: a copy of every item. A file has 10,000
  // lines at most.
  const uint64_t count = 10000;
  CHECK(applying("l=append(x)\n", count) < 20 * count * count);
}

TEST_CASE("a recipe is checked in linear work, whatever is wrong with it") {
  SchemaCatalog catalog;
  catalog.add_section(schema_of<Settings>("train", "the loop"));
  check_linear("unknown sections", 5000, [&](int64_t count) {
    ConfigRequest request;
    request.recipe = "r.yaml";
    request.text = "train: {steps: 1}\n" + unknown_keys(count, "{a: 1}");
    return work_of([&] {
      Report report;
      (void)ConfigContainer::load(request, catalog, report);
      CHECK(report.text().find(cat(count, " errors")) != std::string::npos);
    });
  });
  check_linear("unknown settings", 5000, [](int64_t count) {
    Node section = parse_yaml(unknown_keys(count, "1"));
    return work_of([&] {
      Report report;
      validate(section, schema_of<Settings>("train", ""), report);
      (void)report.text();
      CHECK(report.errors() == static_cast<size_t>(count));
    });
  });
  check_linear("bytes of an unknown name", 250, [&](int64_t bytes) {
    ConfigRequest request;
    request.recipe = "r.yaml";
    request.text = "train: {steps: 1, " + std::string(static_cast<size_t>(bytes), 'a') + ": 1}\n" +
                   std::string(static_cast<size_t>(bytes), 'b') + ": 1\n";
    return work_of([&] {
      Report report;
      (void)ConfigContainer::load(request, catalog, report);
      CHECK(report.errors() == 2);
    });
  });
  check_linear("known settings in many sections", 25,
               [](int64_t sections) { return work_of_known(sections, 200, 10); });
  check_linear("known settings in one section", 5000,
               [](int64_t settings) { return work_of_known(1, settings, settings / 50); });
}
