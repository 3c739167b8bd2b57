#include "mtrain/plugin/registry.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "has.h"
#include "mtrain/config/tree.h"

using namespace mtrain;
using testing::has;

namespace {

struct WidgetContext {
  int made = 0;
};
struct Widget {
  static constexpr std::string_view kKind = "widget";
  using Context = WidgetContext;
  virtual ~Widget() = default;
  virtual std::string describe() const = 0;
};

struct WheelConfig {
  int64_t spokes = 8;
  std::string fail;
  void bind(Fields& f) {
    f("spokes", spokes, "how many").min(1);
    f("fail", fail, "what to throw");
  }
};

class Wheel final : public Widget {
 public:
  Wheel(const WheelConfig& config, WidgetContext& context) : spokes_(config.spokes) {
    if (config.fail == "std") throw std::runtime_error("bent");
    if (config.fail == "int") throw 3;
    if (config.fail == "error") throw Error(ErrorClass::data, "no rim", "find one");
    ++context.made;
  }
  std::string describe() const override { return cat(spokes_, " spokes"); }

 private:
  int64_t spokes_;
};

Registry registry_with(const std::vector<std::string>& names, const std::string& owner) {
  Registry registry;
  registry.set_owner(owner);
  for (const auto& name : names) registry.add<Widget, Wheel, WheelConfig>(name, "a wheel");
  return registry;
}

Error error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return {ErrorClass::bug, ""};
}

Node section(const std::string& key, Node value) {
  Node out = Node::map();
  out.set(key, std::move(value));
  return out;
}

}  // namespace

TEST_CASE("a registered component is made from its section") {
  Registry registry = registry_with({"wheel"}, "/p/widget_wheel.so");
  WidgetContext context;
  auto wheel = registry.make<Widget>("wheel", section("spokes", Node::integer(12)), context);
  CHECK(wheel->describe() == "12 spokes");
  CHECK(context.made == 1);
  const auto* entry = registry.find("widget", "wheel");
  REQUIRE(entry);
  CHECK(entry->owner == "/p/widget_wheel.so");
  REQUIRE(entry->schema.fields.size() == 2);
  CHECK(entry->schema.fields[0].path == "spokes");
  CHECK(entry->schema.fields[0].default_value == "8");
  CHECK(registry.find("widget", "whee") == nullptr);
  CHECK(registry.find("gear", "wheel") == nullptr);
}

TEST_CASE("an unknown name is answered with the nearest and the list") {
  Registry registry = registry_with({"wheel", "hub"}, "a.so");
  WidgetContext context;
  Error error = error_of([&] { registry.make<Widget>("wheeel", Node::map(), context); });
  CHECK(error.error_class() == ErrorClass::plugin);
  CHECK(has(error.message(), "widget named 'wheeel'"));
  CHECK(has(error.hint(), "did you mean 'wheel'?"));
  CHECK(has(error.hint(), "hub, wheel"));
}

TEST_CASE("a second registration names both owners") {
  Registry registry = registry_with({"wheel"}, "/a/first.so");
  registry.set_owner("/b/second.so");
  Error error = error_of([&] { registry.add<Widget, Wheel, WheelConfig>("wheel", "another"); });
  CHECK(error.error_class() == ErrorClass::plugin);
  CHECK(has(error.message(), "/a/first.so"));
  CHECK(has(error.message(), "/b/second.so"));
}

TEST_CASE("take moves everything or nothing") {
  Registry registry = registry_with({"wheel"}, "/a/first.so");
  registry.take(registry_with({"hub", "rim"}, "/b/second.so"));
  CHECK(registry.names("widget") == std::vector<std::string>{"hub", "rim", "wheel"});
  Error error = error_of([&] { registry.take(registry_with({"axle", "wheel"}, "/c/third.so")); });
  CHECK(has(error.message(), "/a/first.so"));
  CHECK(has(error.message(), "/c/third.so"));
  CHECK(registry.names("widget").size() == 3);
}

TEST_CASE("what a constructor throws becomes one plugin error; ours pass unchanged") {
  Registry registry = registry_with({"wheel"}, "/a/widget_wheel.so");
  WidgetContext context;
  auto fail = [&](const char* how) {
    return error_of(
        [&] { registry.make<Widget>("wheel", section("fail", Node::string(how)), context); });
  };
  for (const char* how : {"std", "int"}) {
    Error error = fail(how);
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK(has(error.message(), "widget 'wheel' of /a/widget_wheel.so"));
    CHECK_FALSE(has(error.message(), "\n"));
  }
  CHECK(has(fail("std").message(), "bent"));
  CHECK(fail("error").error_class() == ErrorClass::data);
  CHECK(fail("error").message() == "no rim");
  CHECK(context.made == 0);
}

TEST_CASE("a bad setting is a config error, not the plugin's") {
  Registry registry = registry_with({"wheel"}, "a.so");
  WidgetContext context;
  Error error = error_of(
      [&] { registry.make<Widget>("wheel", section("spokes", Node::integer(0)), context); });
  CHECK(error.error_class() == ErrorClass::config);
}
