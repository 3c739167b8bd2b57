# mtrain_add_plugin(NAME KIND kind SOURCES ...): builds <kind>_<name>.so, links it to the core alone.
function(mtrain_add_plugin name)
  cmake_parse_arguments(ARG "" "KIND" "SOURCES" ${ARGN})
  add_library(plugin_${ARG_KIND}_${name} MODULE ${ARG_SOURCES})
  set_target_properties(plugin_${ARG_KIND}_${name} PROPERTIES PREFIX "" OUTPUT_NAME ${ARG_KIND}_${name}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/mtrain/plugins)
  target_link_libraries(plugin_${ARG_KIND}_${name} PRIVATE mtrain_options mtrain_core)
  target_link_options(plugin_${ARG_KIND}_${name} PRIVATE -Wl,--no-undefined)
endfunction()
