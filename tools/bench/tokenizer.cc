// Times a tokenizer plugin: bench_tokenizer PLUGIN_FOLDER NAME PATH DOCUMENT_BYTES TEXT… Prints one
// JSON object: seconds to load, MB/s of the first pass over the texts (cold word cache), of the
// best later pass (warm), and of the best pass on two threads. Texts are divided at line ends into
// documents of about DOCUMENT_BYTES.
#include "mtrain/data/tokenizer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "mtrain/config/tree.h"
#include "mtrain/plugin/plugin_host.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::string_view> documents(std::string_view text, size_t bytes) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    size_t end = text.size() <= bytes ? std::string_view::npos : text.find('\n', bytes);
    end = end == std::string_view::npos ? text.size() : end + 1;
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

std::string read_all(char** names, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    std::ifstream in(names[i], std::ios::binary);
    out.append(std::istreambuf_iterator<char>(in), {});
  }
  return out;
}

int run(int argc, char** argv) {
  using namespace mtrain;
  PluginHost host({argv[1]});
  Node settings = Node::map();
  settings.set("path", Node::string(argv[3]));
  TokenizerContext context{std::filesystem::current_path()};
  auto warm_up =
      host.make<Tokenizer>(argv[2], settings, context);  // the library itself is loaded once
  auto begin = Clock::now();
  auto tokenizer = host.make<Tokenizer>(argv[2], settings, context);
  const double load = seconds_since(begin);
  const std::string text = read_all(argv + 5, argc - 5);
  const auto docs = documents(text, std::strtoull(argv[4], nullptr, 10));
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::vector<int32_t> ids;
  auto pass = [&] {
    const auto start = Clock::now();
    size_t tokens = 0;
    for (auto doc : docs) {
      ids.clear();
      tokenizer->encode_to(doc, ids);
      tokens += ids.size();
    }
    return std::pair(seconds_since(start), tokens);
  };
  const auto [cold, tokens] = pass();
  double warm = cold, two = 1e9;
  for (int i = 0; i < 5; ++i) warm = std::min(warm, pass().first);
  for (int i = 0; i < 4; ++i) {
    const auto start = Clock::now();
    tokenizer->encode_batch(docs, 2);
    two = std::min(two, seconds_since(start));
  }
  std::printf(
      "{\"load_ms\": %.1f, \"megabytes\": %.2f, \"documents\": %zu, \"tokens\": %zu, \"cold\": "
      "%.1f, "
      "\"warm\": %.1f, "
      "\"two_threads\": %.1f}\n",
      load * 1e3, megabytes, docs.size(), tokens, megabytes / cold, megabytes / warm,
      megabytes / two);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fputs("usage: bench_tokenizer PLUGIN_FOLDER NAME PATH DOCUMENT_BYTES TEXT...\n", stderr);
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_tokenizer: %s\n", e.what());
    return 1;
  }
}
