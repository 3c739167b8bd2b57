#include "mtrain/data/foreign_files.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view name;
  std::vector<std::string_view> starts, endings;
  std::string_view help;  // FILE is the file's name, STEM the name without its ending
};

constexpr std::string_view
    kArchive = "unpack it, and give the files or the folder that it contains to --input",
    kOtherData = "export its texts as JSON lines, one object with the field 'text' in each line",
    kNumbers = "it holds numbers, not text: name the text or the JSON lines from which it was made";

#define MT_PANDAS(read)                                                              \
  "convert it: python -c \"import pandas as pd; " read                               \
  ".to_json('STEM.jsonl', orient='records', lines=True)\", then --input STEM.jsonl " \
  "(and --json-key if the text's column is not 'text')"
#define MT_PIPED(program)                                 \
  "decompress it on the way: " program                    \
  " FILE | mtrain data prepare --input - --format jsonl " \
  "(or text) …; gzip and Zstandard are read directly"

const Format kForeignFormats[] = {
    {"a Parquet file", {"PAR1\x15"sv}, {".parquet", ".pq"}, MT_PANDAS("pd.read_parquet('FILE')")},
    {"an Arrow file",
     {"ARROW1\0"sv, "FEA1\0"sv, "\xFF\xFF\xFF\xFF"sv},  // file (Feather 2), Feather 1, stream
     {".arrow", ".feather"},
     "convert it: python -c \"import datasets; "
     "datasets.Dataset.from_file('FILE').to_json('STEM.jsonl')\" (a Feather file: "
     "pandas.read_feather), then --input STEM.jsonl"},
    {"an ORC file", {"ORC\x08"sv}, {".orc"}, MT_PANDAS("pd.read_orc('FILE')")},
    {"an Avro file", {"Obj\x01"sv}, {".avro"}, kOtherData},
    {"an Excel workbook", {}, {".xlsx", ".xls"}, MT_PANDAS("pd.read_excel('FILE')")},
    {"a table (CSV)",
     {},
     {".csv"},
     MT_PANDAS("pd.read_csv('FILE')") "; --format text reads it as a plain text"},
    {"a table (TSV)",
     {},
     {".tsv", ".tab"},
     MT_PANDAS("pd.read_csv('FILE', sep='\\t')") "; --format text reads it as a plain text"},
    {"compressed by xz",
     {"\xFD"
      "7zXZ"sv},
     {".xz"},
     MT_PIPED("xz -dc")},
    {"compressed by bzip2",
     {"BZh11AY&"sv, "BZh21AY&"sv, "BZh31AY&"sv, "BZh41AY&"sv, "BZh51AY&"sv, "BZh61AY&"sv,
      "BZh71AY&"sv, "BZh81AY&"sv, "BZh91AY&"sv},
     {".bz2"},
     MT_PIPED("bzip2 -dc")},
    {"compressed by lz4", {"\x04\x22\x4D\x18"sv}, {".lz4"}, MT_PIPED("lz4 -dc")},
    {"a 7-Zip archive", {"7z\xBC\xAF\x27\x1C"sv}, {".7z"}, kArchive},
    {"a RAR archive", {"Rar!\x1A\x07"sv}, {".rar"}, kArchive},
    {"a tar archive", {}, {".tar", ".tgz"}, kArchive},
    {"a PyTorch file", {}, {".pt", ".pth", ".ckpt"}, kNumbers},
    {"NumPy arrays", {"\x93NUMPY"sv}, {".npy", ".npz"}, kNumbers},
    {"a Word document",
     {},
     {".docx", ".doc", ".odt"},
     "convert it: pandoc -t plain -o STEM.txt FILE, then --input STEM.txt"},
    {"an e-book",
     {},
     {".epub"},
     "convert it: pandoc -t plain -o STEM.txt FILE, then --input STEM.txt"},
    {"a ZIP archive",
     {"PK\x03\x04"sv, "PK\x05\x06"sv},
     {".zip"},
     "unpack it: unzip FILE -d STEM, then --input STEM (of a Word document or an e-book, which "
     "are such archives: pandoc -t plain -o STEM.txt FILE)"},
    {"a PDF document",
     {"%PDF-"sv},
     {".pdf"},
     "convert it: pdftotext FILE STEM.txt, then --input STEM.txt"},
    {"a Python pickle",
     {"\x80\x02"sv, "\x80\x03"sv, "\x80\x04"sv, "\x80\x05"sv},
     {".pkl", ".pickle"},
     kOtherData},
    {"an HDF5 file", {"\x89HDF"sv}, {".h5", ".hdf5"}, kOtherData},
    {"an SQLite database", {"SQLite format 3\0"sv}, {".sqlite", ".sqlite3", ".db"}, kOtherData},
    {"a GGUF file of weights", {"GGUF\x02\0"sv, "GGUF\x03\0"sv}, {".gguf"}, kNumbers},
    {"a safetensors file of weights", {}, {".safetensors"}, kNumbers},
    {"an image",
     {"\x89PNG"sv, "\xFF\xD8\xFF"sv, "GIF87a"sv, "GIF89a"sv},
     {".png", ".jpg", ".jpeg", ".gif"},
     "mtrain reads texts only"},
    {"a program",
     {"\x7F"
      "ELF"sv},
     {},
     "name a file of text or of JSON lines"},
};

/// The help for a file. A name in a Python string stays FILE or STEM where its quotes would end.
std::string filled(std::string_view help, const std::string& name) {
  const fs::path path = name == "-" || name == "standard input" ? "FILE" : name;
  const std::string file = path.string(), stem = path.stem().empty() ? "x" : path.stem().string();
  constexpr size_t kWord = 4;  // FILE, STEM
  std::string out;
  for (size_t at = 0; at < help.size();) {
    const std::string_view rest = help.substr(at);
    const bool is_file = rest.starts_with("FILE"), is_stem = rest.starts_with("STEM");
    if (!is_file && !is_stem) {
      out += rest[0], ++at;
      continue;
    }
    const std::string& word = is_file ? file : stem;
    at += kWord;
    if (out.ends_with('\'')) {
      const bool fits = word.find_first_of("'\"$`\\") == word.npos && printable(word) == word;
      out += fits ? word : std::string(rest.substr(0, kWord));
      continue;
    }
    std::string ending;  // ".jsonl" of STEM.jsonl
    while (at < help.size() && (std::isalnum(static_cast<unsigned char>(help[at])) != 0 ||
                                (help[at] == '.' && ending.empty())))
      ending += help[at++];
    out += shell_word(word + ending);
  }
  return out;
}

}  // namespace

std::string help_for_records(const ForeignFile& file) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {" (and --json-key if the text's column is not 'text')", ""},
      {"; --format text reads it as a plain text", ""},
      {" | mtrain data prepare --input - --format jsonl (or text) …;",
       " > records.jsonl, then "
       "dataset.path=records.jsonl;"},
      {"give the files or the folder that it contains to --input",
       "set dataset.path to the file of records in it"},
      {"export its texts as JSON lines, one object with the field 'text' in each line",
       "export its records as JSON lines, one object in each line"},
      {"not text: name the text or the JSON lines from which it was made",
       "not records: name the JSON lines from which it was made"},
      {"mtrain reads texts only", "name a .json or .jsonl file"},
      {"name a file of text or of JSON lines", "name a .json or .jsonl file"},
      {"decompress it on the way: ", "decompress it: "},
      {"then --input ", "then dataset.path="}};
  std::string out = file.help;
  for (const auto& [from, to] : kWords) out = replace_all(std::move(out), from, to);
  return out;
}

std::optional<ForeignFile> foreign_file_of_start(std::string_view start, const std::string& name) {
  for (const Format& format : kForeignFormats)
    for (const std::string_view magic : format.starts)
      if (start.starts_with(magic))
        return ForeignFile{std::string(format.name), filled(format.help, name)};
  return std::nullopt;
}

std::optional<ForeignFile> foreign_file_of_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Format& format : kForeignFormats)
    if (std::ranges::find(format.endings, ending) != format.endings.end())
      return ForeignFile{std::string(format.name), filled(format.help, path.string())};
  return std::nullopt;
}

}  // namespace mtrain
