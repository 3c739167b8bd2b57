#include "mtrain/config/fields.h"

#include "mtrain/base/error.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/value.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

/// What a bound variable's C++ type says about its field.
struct Described {
  FieldType type = FieldType::string;
  FieldValue value;  // the default
  int bits = 64;
  bool nullable = false;
};

struct DescribeTarget {
  Described operator()(const bool* v) const { return {FieldType::boolean, *v}; }
  Described operator()(const int64_t* v) const { return {FieldType::integer, *v}; }
  Described operator()(const int* v) const { return {FieldType::integer, int64_t{*v}, 32}; }
  Described operator()(const double* v) const { return {FieldType::number, *v}; }
  Described operator()(const float* v) const { return {FieldType::number, double{*v}, 32}; }
  Described operator()(const std::string* v) const { return {FieldType::string, *v}; }
  Described operator()(const std::vector<int64_t>* v) const {
    return {FieldType::integer_list, *v};
  }
  Described operator()(const std::vector<double>* v) const { return {FieldType::number_list, *v}; }
  Described operator()(const std::vector<std::string>* v) const {
    return {FieldType::string_list, *v};
  }
  Described operator()(const std::optional<int64_t>* v) const {
    return optional(FieldType::integer, *v);
  }
  Described operator()(const std::optional<double>* v) const {
    return optional(FieldType::number, *v);
  }
  Described operator()(const std::optional<std::string>* v) const {
    return optional(FieldType::string, *v);
  }
  Described operator()(const Node* v) const { return {FieldType::tree, *v, 64, true}; }

  template <class T>
  static Described optional(FieldType type, const std::optional<T>& v) {
    return {type, v ? FieldValue(*v) : FieldValue(std::monostate()), 64, true};
  }
};

/// Puts a checked value into the bound variable. REQUIRES: the value was read under the field's own
/// spec.
struct Assign {
  const FieldValue& value;
  void operator()(bool* v) const { *v = std::get<bool>(value); }
  void operator()(int64_t* v) const { *v = std::get<int64_t>(value); }
  void operator()(int* v) const { *v = static_cast<int>(std::get<int64_t>(value)); }
  void operator()(double* v) const { *v = std::get<double>(value); }
  void operator()(float* v) const { *v = static_cast<float>(std::get<double>(value)); }
  void operator()(Node* v) const {
    *v = std::holds_alternative<Node>(value) ? std::get<Node>(value) : Node();
  }
  template <class T>
  void operator()(T* v) const {
    *v = std::get<T>(value);
  }
  template <class T>
  void operator()(std::optional<T>* v) const {
    if (std::holds_alternative<std::monostate>(value))
      v->reset();
    else
      *v = std::get<T>(value);
  }
};

}  // namespace

Field& Fields::declare(std::string_view name, FieldTarget target, std::string_view doc) {
  Described described = std::visit(DescribeTarget(), target);
  FieldSpec spec;
  spec.path = prefix_ + std::string(name);
  spec.type = described.type;
  spec.doc = doc;
  spec.bits = described.bits;
  spec.nullable = described.nullable;
  spec.resume = resume_;
  spec.default_value = write_flow(write_value(described.value, spec));
  for (const auto& field : fields_)
    MT_CHECK(field.spec.path != spec.path, "setting ", spec.path, " is declared twice");
  return fields_.emplace_back(Field{std::move(spec), target});
}

void read_fields(const Node& section, Fields& fields) {
  Schema schema{section.base_path(), "", {}, {}};
  for (const auto& field : fields.fields()) schema.fields.push_back(field.spec);
  Report report;
  ValidateOptions options;
  options.path = section.base_path();
  Node values = validate(section, schema, report, options);
  report.throw_if_errors();
  for (const auto& field : fields.fields()) {
    if (!field.spec.alternative.empty() && !values.find(field.spec.path))
      continue;  // its alternative is set
    auto value = read_value(values.at(field.spec.path), field.spec, field.spec.path, report);
    report.throw_if_errors();
    std::visit(Assign{*value}, field.target);
  }
}

}  // namespace mtrain
