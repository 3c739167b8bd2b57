// Reads a setting that is a list of maps, each of which is read like a section: optimizer.groups.
// Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// Fills the bound variables of one item. Reports its faults under `path`, "optimizer.groups[1]";
/// false if there are any.
MT_API bool read_item(const Node& item, const std::string& path, Fields& fields, Report& report);
/// The items of a list; null: none. False, with a fault, for any other value.
MT_API bool is_item_list(const Node& list, const std::string& path, Report& report);

/// The items without faults. The items' struct has bind() and fault(), which returns what is wrong
/// with an item whose values are valid one by one; empty: nothing.
template <class T>
std::vector<T> read_items(const Node& list, const std::string& path, Report& report) {
  std::vector<T> out;
  if (!is_item_list(list, path, report)) return out;
  for (size_t i = 0; i < list.size(); ++i) {
    const Node& item = list.items()[i];
    const std::string place = path + "[" + std::to_string(i) + "]";
    T one{};
    Fields fields;
    one.bind(fields);
    if (!read_item(item, place, fields, report)) continue;
    if (std::string fault = one.fault(); !fault.empty())
      report.error("conflict", place, item.loc(), std::move(fault));
    else
      out.push_back(std::move(one));
  }
  return out;
}

/// The items; throws Error(config) with all faults.
template <class T>
std::vector<T> require_items(const Node& list, const std::string& path) {
  Report report;
  std::vector<T> out = read_items<T>(list, path, report);
  report.throw_if_errors();
  return out;
}

}  // namespace mtrain
