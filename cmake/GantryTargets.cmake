# How every target of the project is made: one static library a folder, linked whole into libgantry.so.
add_library(gt_base INTERFACE)
target_include_directories(gt_base INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
target_link_libraries(gt_base INTERFACE m pthread)

function(gantry_warnings target)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes
        -Wvla -Wno-unused-parameter)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE GANTRY_BUILD)
endfunction()

# gantry_library(NAME FOLDER DEPENDS ...): all .c files of the folder (and of its subfolders).
function(gantry_library name folder)
    cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c)
    add_library(${name} STATIC ${sources})
    gantry_warnings(${name})
    target_link_libraries(${name} PUBLIC gt_base ${ARG_DEPENDS})
endfunction()

# libgantry.so: everything but the plugins; exports the GANTRY_API names only.
function(gantry_shared_library)
    file(WRITE ${CMAKE_BINARY_DIR}/empty.c "")
    add_library(gantry SHARED ${CMAKE_BINARY_DIR}/empty.c)
    target_link_libraries(gantry PRIVATE -Wl,--whole-archive gt_graph gt_core gt_cpu -Wl,--no-whole-archive ${CMAKE_DL_LIBS})
    target_include_directories(gantry PUBLIC ${CMAKE_SOURCE_DIR}/include)
    target_link_options(gantry PRIVATE -Wl,-z,defs
        -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/gantry.map)
    set_target_properties(gantry PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
