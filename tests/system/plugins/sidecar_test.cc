// Sidecars: written by loading once, read without loading, refused when they are another build's.
#include "mtrain/plugin/sidecar.h"

#include <doctest/doctest.h>

#include <fstream>
#include <functional>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/container.h"
#include "roots.h"
#include "scratch_folder.h"

using namespace mtrain;
using testing::has;

namespace {

Error sidecar_error(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return {ErrorClass::bug, ""};
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// A folder with the gadget and its sidecar.
struct GadgetFolder {
  ScratchFolder folder;
  fs::path plugin = folder / "widget_gadget.so", sidecar = folder / "widget_gadget.json";
  GadgetFolder() {
    fs::copy_file(testing::kFixtures / "widget_gadget.so", plugin);
    CHECK(write_sidecar(plugin) == sidecar);
  }
  void write(const std::string& text) const {
    std::ofstream(sidecar, std::ios::binary | std::ios::trunc) << text;
  }
  Error failure() const {
    PluginHost host({folder.path()});
    Error error = sidecar_error([&] { read_sidecar(host.locate("widget", "gadget")); });
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK(has(error.message(), "widget_gadget.json: "));
    CHECK(has(error.hint(), "mtrain plugins export-schema " + plugin.string()));
    return error;
  }
};

}  // namespace

TEST_CASE("a catalog gives the settings without running the plugin") {
  GadgetFolder gadget;
  fs::copy_file(testing::kFixtures / "widget_wrong_abi.so", gadget.folder / "widget_wrong_abi.so");
  fs::copy_file(testing::kFixtures / "widget_constructor.so",
                gadget.folder / "widget_constructor.so");  // no sidecar
  PluginHost host({gadget.folder.path()});
  SchemaCatalog catalog;
  add_components(host, catalog);
  CHECK(catalog.components("widget") == std::vector<std::string>{"gadget"});
  CHECK(catalog.components("gear").empty());
  CHECK(has(catalog.note_of("widget"), "searched: " + gadget.folder.path().string()));
  CHECK(has(catalog.note_of("widget"), "plugin interface number"));
  CHECK(has(catalog.note_of("widget"), "widget_constructor.json: is missing"));
  CHECK(has(catalog.note_of("model"), "searched: "));
  REQUIRE(catalog.component("widget", "gadget"));
  const Schema& schema = *catalog.component("widget", "gadget");
  CHECK(host.registry().entries().empty());
  CHECK(schema.name == "gadget");
  CHECK(schema.doc == "a widget that works");
  REQUIRE(schema.fields.size() == 2);
  CHECK(schema.fields[0].path == "size");
  CHECK(schema.fields[0].type == FieldType::integer);
  CHECK(schema.fields[0].default_value == "3");
  CHECK(schema.fields[0].unit == "mm");
  CHECK(schema.fields[0].min == 1.0);
  CHECK(schema.fields[1].choices == std::vector<std::string>{"red", "green"});
}

TEST_CASE("a missing, stale or damaged sidecar says so") {
  GadgetFolder gadget;
  const std::string good = read_file(gadget.sidecar);
  SUBCASE("missing") {
    fs::remove(gadget.sidecar);
    CHECK(has(gadget.failure().message(), "is missing"));
  }
  SUBCASE("of another build") {
    PluginImage image = read_plugin_image(gadget.plugin);
    std::string other = image.identity;
    other.back() = other.back() == '0' ? '1' : '0';
    gadget.write(replaced(good, image.identity, other));
    CHECK(has(gadget.failure().message(), "another build"));
  }
  SUBCASE("of another plugin") {
    gadget.write(replaced(good, "\"gadget\"", "\"gizmo\""));
    CHECK(has(gadget.failure().message(), "describes widget 'gizmo'"));
  }
  SUBCASE("of another version") {
    gadget.write(replaced(good, "\"mtrain_sidecar\": 1", "\"mtrain_sidecar\": 2"));
    CHECK(has(gadget.failure().message(), "version"));
  }
  SUBCASE("without a schema") {
    gadget.write(replaced(good, "\"schema\"", "\"scheme\""));
    CHECK(has(gadget.failure().message(), "damaged"));
  }
  SUBCASE("a folder in its place") {
    fs::remove(gadget.sidecar);
    fs::create_directory(gadget.sidecar);
    CHECK(has(gadget.failure().message(), "cannot be read"));
  }
  SUBCASE("too large") {
    gadget.write(std::string(3 << 20, ' '));
    CHECK(has(gadget.failure().message(), "limit"));
  }
  SUBCASE("nested without end") {
    gadget.write(std::string(500000, '['));
    CHECK(has(gadget.failure().message(), "damaged"));
  }
  SUBCASE("no JSON") {
    for (const char* text : {"", " ", "[]", "3", "null", "{", "{\"mtrain_sidecar\":", "\xff\xfe",
                             "{}{}", "{\"a\":1e999}"}) {
      gadget.write(text);
      gadget.failure();
    }
  }
  SUBCASE("truncated at every length") {
    for (size_t size = 0; size + 2 < good.size(); ++size) {
      gadget.write(good.substr(0, size));
      gadget.failure();
    }
  }
}

TEST_CASE("random damage to a sidecar is refused or harmless") {
  GadgetFolder gadget;
  const std::string good = read_file(gadget.sidecar);
  uint64_t state = 7;
  auto next = [&](uint64_t bound) {
    return ((state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 33) % bound;
  };
  PluginHost host({gadget.folder.path()});
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = good;
    constexpr std::string_view kLikely = "{}[]\",:0129-e.ntf\\";
    for (uint64_t i = 0, count = 1 + next(3); i < count; ++i)
      damaged[next(damaged.size())] =
          next(2) ? kLikely[next(kLikely.size())] : static_cast<char>(next(256));
    gadget.write(damaged);
    try {
      read_sidecar(host.locate("widget", "gadget"));
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::plugin);
    }
  }
}

TEST_CASE("a plugin that cannot be loaded gets no sidecar") {
  ScratchFolder folder;
  fs::copy_file(testing::kFixtures / "widget_throws_std.so", folder / "widget_throws_std.so");
  CHECK(has(sidecar_error([&] { write_sidecar(folder / "widget_throws_std.so"); }).message(),
            "no screws"));
  CHECK_FALSE(fs::exists(folder / "widget_throws_std.json"));
}

TEST_CASE("writing replaces an older sidecar and leaves no temporary file") {
  GadgetFolder gadget;
  const std::string good = read_file(gadget.sidecar);
  gadget.write("old");
  write_sidecar(gadget.plugin);
  CHECK(read_file(gadget.sidecar) == good);
  CHECK(std::distance(fs::directory_iterator(gadget.folder.path()), fs::directory_iterator()) == 2);
}
