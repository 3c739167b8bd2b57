// PluginHost against real libraries: every way in which one can be wrong gives one line, and
// nothing of a refused one runs.
#include "mtrain/plugin/plugin_host.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/tree.h"
#include "mtrain/plugin/probe.h"
#include "mtrain/plugin/sidecar.h"
#include "roots.h"
#include "scratch_folder.h"
#include "widget.h"

using namespace mtrain;
using testing::has;
using namespace mtrain::fixtures;

namespace {

Error host_error(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.message().find('\n') == std::string::npos);
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

TEST_CASE("a sound plugin is loaded once, alone, and makes its component") {
  PluginHost host({testing::kFixtures});
  CHECK(host.registry().entries().empty());
  const auto& entry = host.load("widget", "gadget");
  CHECK(&host.load("widget", "gadget") == &entry);
  CHECK(host.registry().entries().size() == 1);
  REQUIRE(host.loaded().size() == 1);
  CHECK(host.loaded()[0].identity.starts_with("build-id:"));
  CHECK(host.loaded()[0].path == testing::kFixtures / "widget_gadget.so");
  WidgetContext context;
  CHECK(host.make<Widget>("gadget", section("size", Node::integer(5)), context)->describe() ==
        "red gadget of 5 mm ready");
  CHECK(context.made == 1);
}

TEST_CASE("what a plugin made outlives the host") {
  std::unique_ptr<Widget> widget;
  {
    PluginHost host({testing::kFixtures});
    WidgetContext context;
    widget = host.make<Widget>("gadget", Node::map(), context);
  }
  CHECK(widget->describe() == "red gadget of 3 mm ready");
}

TEST_CASE("two hosts may hold the same plugin") {
  PluginHost one({testing::kFixtures}), two({testing::kFixtures});
  CHECK(one.load("widget", "gadget").name == two.load("widget", "gadget").name);
}

TEST_CASE("a stamp that does not fit is refused before any code of the plugin runs") {
  struct Case {
    const char *name, *expected;
  };
  // Each has a static initialiser that would end this process.
  const Case cases[] = {{"wrong_abi", "plugin interface number: the plugin's is 999"},
                        {"wrong_size", "stamp size"},
                        {"wrong_pointer", "pointer size"},
                        {"wrong_headers", "hash of mtrain's headers"},
                        {"wrong_library", "_GLIBCXX_USE_CXX11_ABI"},
                        {"wrong_debug", "_GLIBCXX_DEBUG"},
                        {"wrong_language", "__cplusplus"},
                        {"wrong_sanitizer", "sanitizer"},
                        {"wrong_magic", "right mark"}};
  PluginHost host({testing::kFixtures});
  for (const auto& test : cases) {
    Error error = host_error([&] { host.load("widget", test.name); });
    INFO(error.message());
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK(has(error.message(), test.expected));
    CHECK(has(error.message(), cat("widget_", test.name, ".so: ")));
  }
  CHECK(host.registry().entries().empty());
}

TEST_CASE("faults of loading and registration leave nothing behind") {
  struct Case {
    const char *name, *expected;
  };
  const Case cases[] = {{"plain", "no mtrain plugin (it carries no stamp)"},
                        {"no_entry", "has no entry point mtrain_plugin_register"},
                        {"unresolved", "undefined symbol: defined_nowhere"},
                        {"needs_absent", "libabsent.so: cannot open shared object file"},
                        {"nothing", "registered nothing"},
                        {"other_name", "but registered widget 'somebody_elses'"},
                        {"twice", "registered twice"},
                        {"throws_std", "its registration failed: no screws"},
                        {"throws_int", "not a std::exception"},
                        {"throws_error", "its registration failed: no licence"},
                        {"static_throws", "a static initialiser threw: too early"},
                        {"static_exits", "ended the process with status 0"},
                        {"static_aborts", "a static initialiser died of signal 6"},
                        {"register_aborts", "its registration died of signal 6"},
                        {"register_exits", "its registration ended the process with status 0"},
                        {"misnamed", "its name is 'rightly_named' in MT_PLUGIN"}};
  PluginHost host({testing::kFixtures});
  for (const auto& test : cases) {
    Error error = host_error([&] { host.load("widget", test.name); });
    INFO(error.message());
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK(has(error.message(), test.expected));
    CHECK(has(error.message(), cat("widget_", test.name, ".so: ")));
    CHECK(host.registry().entries().empty());
  }
  CHECK(host.loaded().empty());
}

TEST_CASE(
    "a plugin is tested in another process first, however many threads this one has and "
    "whatever they block") {
  sigset_t signals, before;
  sigemptyset(&signals);
  for (int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, &before);  // as a run does
  std::promise<void> over;
  std::thread other([end = over.get_future()]() mutable { end.wait(); });
  PluginHost host({testing::kFixtures});
  CHECK(has(host_error([&] { host.load("widget", "static_exits"); }).message(),
            "a static initialiser ended the process with status 0"));
  CHECK(
      has(host_error([&] { host.load("widget", "static_aborts"); }).message(), "died of signal 6"));
  CHECK(has(host_error([&] { host.load("widget", "static_hangs"); }).message(),
            "a static initialiser did not end within 20 s"));
  CHECK(host.load("widget", "gadget").name == "gadget");
  over.set_value();
  other.join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("a plugin that hangs is ended in time, whatever it does to the pipe that it reports by") {
  for (const char* name : {"static_hangs", "static_closes", "static_floods"}) {
    CAPTURE(name);
    CHECK(probe_plugin(testing::kFixtures / cat("widget_", name, ".so"), std::chrono::seconds(1)) ==
          "a static initialiser did not end within 1 s");
  }
}

TEST_CASE("a sidecar that cannot be read does not keep its plugin from being loaded") {
  for (const char* text : {"", "{", "[]"}) {
    ScratchFolder folder;
    fs::copy_file(testing::kFixtures / "widget_gadget.so", folder / "widget_gadget.so");
    std::ofstream(folder / "widget_gadget.json") << text;
    CHECK(PluginHost({folder.path()}).load("widget", "gadget").name == "gadget");
  }
}

TEST_CASE(
    "a plugin whose code is not what it was when its sidecar was written is refused before any of "
    "it runs") {
  ScratchFolder folder;
  fs::path file = folder / "widget_gadget.so";
  fs::copy_file(testing::kFixtures / "widget_gadget.so", file);
  write_sidecar(file);
  CHECK(PluginHost({folder.path()}).load("widget", "gadget").name == "gadget");
  const std::string whole = read_file(file), hash = plugin_content_hash(file);
  const PluginImage sound = read_plugin_image(file);
  size_t refused = 0, unchanged = 0;
  for (size_t at = 0; at < whole.size(); at += whole.size() / 300 + 1) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    fs::remove(file);  // it may be mapped: a new file takes its place
    std::ofstream(file, std::ios::binary) << damaged;
    std::string other;
    try {
      other = plugin_content_hash(file);
      if (other ==
          hash) {  // what is not loaded: names of symbols, the search path, debug information
        ++unchanged;
        continue;
      }
      if (read_plugin_image(file).identity != sound.identity) continue;  // looks like another build
    } catch (const Error&) {
    }
    PluginHost host({folder.path()});
    Error error = host_error([&] { host.load("widget", "gadget"); });
    CHECK(error.error_class() == ErrorClass::plugin);
    ++refused;
  }
  MESSAGE(refused, " refused, ", unchanged, " of what is not loaded");
  CHECK(refused > 50);
}

TEST_CASE("a constructor that throws names the plugin and the component") {
  PluginHost host({testing::kFixtures});
  WidgetContext context;
  auto fail = [&](const char* how) {
    return host_error(
        [&] { host.make<Widget>("constructor", section("how", Node::string(how)), context); });
  };
  for (const char* how : {"std", "int"}) {
    Error error = fail(how);
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK(has(error.message(), "widget 'constructor' of " +
                                   (testing::kFixtures / "widget_constructor.so").string()));
  }
  CHECK(fail("error").error_class() == ErrorClass::data);
  CHECK(fail("error").hint() == "look in the other folder");
}

TEST_CASE("an unknown name: the nearest, the list, the folders, what was passed over") {
  ScratchFolder folder;
  fs::copy_file(testing::kFixtures / "widget_gadget.so", folder / "widget_gadget.so");
  fs::copy_file(testing::kFixtures / "widget_gadget.so", folder / "gadjet.so");
  PluginHost host({folder.path(), folder / "absent"});
  Error error = host_error([&] { host.load("widget", "gadjet"); });
  CHECK(error.error_class() == ErrorClass::plugin);
  CHECK(has(error.message(), "no widget plugin named 'gadjet'"));
  CHECK(has(error.hint(), "did you mean 'gadget'?"));
  CHECK(has(error.hint(), "available: gadget"));
  CHECK(has(error.hint(), folder.path().string() + ","));
  CHECK(has(error.hint(), (folder / "absent").string() + " (absent)"));
  CHECK(has(error.hint(), "gadjet.so: is not named as a plugin"));
  CHECK(has(host_error([&] { host.load("gear", "gadget"); }).hint(),
            "widget_gadget.so is of the kind widget"));
}

TEST_CASE("names are never paths") {
  ScratchFolder folder;
  fs::copy_file(testing::kFixtures / "widget_gadget.so", folder / "widget_gadget.so");
  fs::create_directory(folder / "widget_");
  fs::copy_file(testing::kFixtures / "widget_gadget.so", folder / "widget_" / "gadget.so");
  PluginHost host({folder.path()});
  for (const char* name : {"", ".", "..", "/gadget", "../gadget", "./gadget", "gadget.so",
                           "gadget\n", "Gadget", "gadget/", "$(id)", "gadget;id", "widget_gadget"})
    CHECK(
        has(host_error([&] { host.load("widget", name); }).message(), "there is no widget plugin"));
  CHECK(has(host_error([&] { host.load("../widget", "gadget"); }).message(), "there is no"));
}

TEST_CASE("no file of the working folder or LD_LIBRARY_PATH is ever picked up") {
  ScratchFolder decoys, empty;
  fs::copy_file(testing::kFixtures / "widget_gadget.so", decoys / "widget_gadget.so");
  fs::path before = fs::current_path();
  fs::current_path(decoys.path());
  ::setenv("LD_LIBRARY_PATH", decoys.path().c_str(), 1);
  PluginHost host({empty.path()});
  CHECK(has(host_error([&] { host.load("widget", "gadget"); }).message(),
            "there is no widget plugin"));
  ::unsetenv("LD_LIBRARY_PATH");
  fs::current_path(before);
}

TEST_CASE("the first folder wins, and a bad file there is an error, not a fall-back") {
  ScratchFolder first, second;
  fs::copy_file(testing::kFixtures / "widget_gadget.so", first / "widget_gadget.so");
  fs::copy_file(testing::kFixtures / "widget_gadget.so", second / "widget_gadget.so");
  PluginHost host({first.path(), second.path()});
  auto files = host.list();
  REQUIRE(files.size() == 2);
  CHECK_FALSE(files[0].shadowed);
  CHECK(files[1].shadowed);
  CHECK(host.load("widget", "gadget").owner == (first / "widget_gadget.so").string());
  fs::remove(first / "widget_gadget.so");  // it is mapped: a new file must take its place
  std::ofstream(first / "widget_gadget.so") << "";
  PluginHost again({first.path(), second.path()});
  CHECK(has(host_error([&] { again.load("widget", "gadget"); }).message(), "is an empty file"));
}

TEST_CASE("files and folders that anybody may write to are refused") {
  ScratchFolder folder;
  fs::path file = folder / "widget_gadget.so";
  fs::copy_file(testing::kFixtures / "widget_gadget.so", file);
  PluginHost host({folder.path()});
  ::chmod(file.c_str(), 0666);
  CHECK(has(host_error([&] { host.load("widget", "gadget"); }).message(),
            "anybody may write to this file"));
  ::chmod(file.c_str(), 0644);
  ::chmod(folder.path().c_str(), 0777);
  CHECK(has(host_error([&] { host.load("widget", "gadget"); }).message(),
            "anybody may write to this plugin folder"));
  ::chmod(folder.path().c_str(), 0755);
  CHECK(host.load("widget", "gadget").name == "gadget");
}

TEST_CASE("list judges every file and runs none") {
  PluginHost host({testing::kFixtures});
  size_t usable = 0, bad = 0;
  for (const auto& file : host.list()) {
    file.problem.empty() ? ++usable : ++bad;
    if (file.name == "gadget") CHECK(file.doc == "a widget that works");
    if (file.name == "wrong_abi") CHECK(has(file.problem, "interface number"));
    CHECK(file.problem.find('\n') == std::string::npos);
  }
  CHECK(usable >= 9);
  CHECK(bad >= 10);
  CHECK(host.registry().entries().empty());
}

TEST_CASE(
    "a real library truncated at any length, or with flipped bytes, never crashes the reader") {
  ScratchFolder folder;
  fs::path file = folder / "widget_gadget.so";
  const std::string whole = read_file(testing::kFixtures / "widget_gadget.so");
  auto judge = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    PluginHost host({folder.path()});
    auto files = host.list();
    REQUIRE(files.size() == 1);
    CHECK(files[0].problem.find('\n') == std::string::npos);
    return files[0].problem.empty();
  };
  CHECK(judge(whole));
  for (size_t size = 0; size < whole.size(); size += 97) CHECK_FALSE(judge(whole.substr(0, size)));
  CHECK_FALSE(judge(whole.substr(0, whole.size() - 1)));
  uint64_t state = 99;
  auto next = [&](uint64_t bound) {
    return ((state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 33) % bound;
  };
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 4; ++i) {
      size_t at = next(3)   ? next(damaged.size())
                  : next(2) ? next(1024)
                            : damaged.size() - 1 - next(3000);
      damaged[at] = static_cast<char>(next(256));
    }
    judge(damaged);
  }
}

TEST_CASE("file names") {
  std::string kind, name;
  CHECK(parse_plugin_file_name("tokenizer_byte_level.so", kind, name));
  CHECK(kind == "tokenizer");
  CHECK(name == "byte_level");
  for (const char* bad : {"llama.so", "model_.so", "_llama.so", "model_llama.so.1",
                          "model_Llama.so", "model-llama.so", ".so", "model_llama"})
    CHECK_FALSE(parse_plugin_file_name(bad, kind, name));
}

TEST_CASE("the search path") {
  ::setenv("MTRAIN_PLUGIN_PATH", "/opt/a::/opt/b:/opt/a", 1);
  auto folders = plugin_folders({"/opt/first", "relative"});
  ::unsetenv("MTRAIN_PLUGIN_PATH");
  REQUIRE(folders.size() == 5);
  CHECK(folders[0] == "/opt/first");
  CHECK(folders[1] == fs::weakly_canonical(fs::current_path() / "relative"));
  CHECK(folders[2] == "/opt/a");
  CHECK(folders[3] == "/opt/b");
  CHECK(folders[4] == fs::weakly_canonical(program_directory() / "../lib/mtrain/plugins"));
}
