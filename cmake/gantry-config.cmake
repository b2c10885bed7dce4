include(${CMAKE_CURRENT_LIST_DIR}/gantry-targets.cmake)
set(gantry_plugin_map ${CMAKE_CURRENT_LIST_DIR}/plugin.map)
find_program(GANTRY_PROGRAM gantry HINTS ${CMAKE_CURRENT_LIST_DIR}/../../../bin ${CMAKE_CURRENT_LIST_DIR}/../../../../bin)

# gantry_add_plugin(NAME SOURCES ...): libNAME.so, a provider for Gantry. It gets Gantry's headers and exports
# gantry_plugin_open, nothing else. It does not link libgantry: the host hands it a table of functions.
function(gantry_add_plugin name)
    add_library(${name} MODULE ${ARGN})
    target_include_directories(${name} PRIVATE $<TARGET_PROPERTY:gantry::gantry,INTERFACE_INCLUDE_DIRECTORIES>)
    target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--version-script=${gantry_plugin_map})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
        LINK_DEPENDS ${gantry_plugin_map})
endfunction()
