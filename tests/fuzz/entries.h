// The fuzzed entry points: each reads hostile text and must end with a value or with reported
// faults, for any text. A violation aborts. Used by the fuzzers and by the test that replays the
// seeds. Stateless.
#pragma once
#include <string_view>

namespace mtrain::fuzz {

/// YAML to a tree, and back.
void yaml(std::string_view text);
/// Overrides, one a line: values, edits, sweeps.
void override_lines(std::string_view text);
/// Interpolations and arithmetic.
void expression(std::string_view text);
/// Rules: the first line is a condition, the second an expression that should fix it, the rest the
/// settings.
void rules(std::string_view text);
/// Hugging Face's tokenizer.json, and texts through what it says.
void tokenizer_json(std::string_view text);
/// SentencePiece's model, and texts through what it says.
void sentencepiece_model(std::string_view bytes);

/// An .idx next to a .bin with the size in the first two bytes, and all reads that the index
/// allows.
void indexed(std::string_view bytes);
/// A line of JSON: what the fast parser accepts, the exact parser accepts too, with the same texts.
void json_line(std::string_view line);
/// A gzip or Zstandard stream, or text, read as lines.
void input_stream(std::string_view bytes);

/// Messages of strangers to one end of a connection, or altered messages between two ends of a job.
/// Neither is trusted.
void tcp_greeting(std::string_view bytes);
/// Messages of ranks to a rank that itself sends and receives.
void tcp_wires(std::string_view bytes);
/// Messages of watching processes, and the judge's conclusions.
void watch_messages(std::string_view bytes);

/// A chat template, over a conversation.
void chat(std::string_view text);

/// A whole recipe, with the settings of all plugins, and what it resolves to.
void recipe(std::string_view text);
/// A folder of Hugging Face's layout: files with their names, "=====" between them.
void hf_folder(std::string_view text);
/// A folder of adapters of PyPI's peft, in the same form.
void peft_folder(std::string_view text);
/// The file of a family of Hugging Face models, and the tensors that it expands to.
void hf_family(std::string_view text);

struct Entry {
  const char* name;  // of its folder of seeds
  void (*run)(std::string_view text);
};
constexpr Entry kEntries[] = {{"yaml", yaml},
                              {"override", override_lines},
                              {"expression", expression},
                              {"rules", rules},
                              {"chat", chat},
                              {"tokenizer_json", tokenizer_json},
                              {"sentencepiece", sentencepiece_model},
                              {"indexed", indexed},
                              {"json_line", json_line},
                              {"input_stream", input_stream},
                              {"tcp_greeting", tcp_greeting},
                              {"tcp_wires", tcp_wires},
                              {"watch_messages", watch_messages}};
/// Entries that need more libraries: only fuzz_mutations has them.
constexpr Entry kWholeEntries[] = {{"recipe", recipe},
                                   {"hf_folder", hf_folder},
                                   {"peft_folder", peft_folder},
                                   {"hf_family", hf_family}};

}  // namespace mtrain::fuzz
