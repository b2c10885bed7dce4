# How every target of the project is made: one static library a folder, linked whole into libgantry.so; one module a plugin.
add_library(gt_base INTERFACE)
target_include_directories(gt_base INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
target_link_libraries(gt_base INTERFACE m Threads::Threads)

# libFuzzer counts branches in everything it drives; OpenMP threads would only blur what an input reached.
if(GANTRY_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "GANTRY_FUZZ needs clang (libFuzzer): configure with the preset fuzz")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(GANTRY_SANITIZE)
    add_compile_options(-fsanitize=${GANTRY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${GANTRY_SANITIZE})
    # clang counts NULL + 0 among the overflows of pointers: what a loop over no elements starts with.
    if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND GANTRY_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize=pointer-overflow)
    endif()
endif()
# The build tree can be moved as a whole; CMake adds the folders of oneDNN and OpenBLAS by itself.
set(CMAKE_BUILD_RPATH "$ORIGIN")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/empty.c CONTENT "")

# -Wmaybe-uninitialized depends on what was inlined: it finds other false cases at each level and in each compiler.
function(gantry_warnings target)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes
        -Wvla -Wno-unused-parameter $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE GANTRY_BUILD)
endfunction()

# gantry_library(NAME FOLDER DEPENDS ...): all .c files of the folder and of its subfolders.
function(gantry_library name folder)
    cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c)
    add_library(${name} STATIC ${sources} ${CMAKE_BINARY_DIR}/empty.c)
    gantry_warnings(${name})
    target_link_libraries(${name} PUBLIC gt_base ${ARG_DEPENDS})
endfunction()

# gantry_target_pragmas(TARGET): gives what `#pragma GCC target("...")` at the head of a source says as options as well: clang,
# and with it clang-tidy, does not know that pragma.
function(gantry_target_pragmas target)
    get_target_property(sources ${target} SOURCES)
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    foreach(source ${sources})
        file(STRINGS ${source} pragma REGEX "^#pragma GCC target" LIMIT_COUNT 1)
        if(pragma MATCHES "\"(.+)\"")
            string(REPLACE "," ";-m" options "-m${CMAKE_MATCH_1}")
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${options}")
        endif()
    endforeach()
endfunction()

# gantry_protobuf(TARGET FILE.proto): adds what protoc-c makes of it; sources include "FILE.pb-c.h". Nothing when the file is
# not there.
function(gantry_protobuf target proto)
    get_filename_component(name ${proto} NAME_WE)
    get_filename_component(folder ${CMAKE_SOURCE_DIR}/${proto} DIRECTORY)
    if(NOT EXISTS ${CMAKE_SOURCE_DIR}/${proto})
        return()
    endif()
    find_program(GANTRY_PROTOC_C protoc-c REQUIRED)
    set(generated ${CMAKE_BINARY_DIR}/generated)
    file(MAKE_DIRECTORY ${generated})
    add_custom_command(OUTPUT ${generated}/${name}.pb-c.c ${generated}/${name}.pb-c.h
        COMMAND ${GANTRY_PROTOC_C} --c_out=${generated} --proto_path=${folder} ${CMAKE_SOURCE_DIR}/${proto}
        DEPENDS ${CMAKE_SOURCE_DIR}/${proto})
    set_source_files_properties(${generated}/${name}.pb-c.c PROPERTIES COMPILE_OPTIONS -w)
    target_sources(${target} PRIVATE ${generated}/${name}.pb-c.c ${generated}/${name}.pb-c.h)
    target_include_directories(${target} SYSTEM PUBLIC ${generated})
endfunction()

# libgantry.so: everything but the plugins; exports the GANTRY_API names only.
function(gantry_shared_library)
    add_library(gantry SHARED ${CMAKE_BINARY_DIR}/empty.c)
    target_link_libraries(gantry PRIVATE -Wl,--whole-archive gt_graph gt_core gt_cpu -Wl,--no-whole-archive ${CMAKE_DL_LIBS})
    target_include_directories(gantry PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
    target_link_options(gantry PRIVATE -Wl,-z,defs -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/gantry.map)
    set_target_properties(gantry PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
        LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/gantry.map
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()

# gantry_plugin(NAME OUTPUT-FOLDER SOURCES ... DEPENDS ...): libNAME.so, which exports gantry_plugin_open and nothing else.
# It sees the public headers and the header-only base/, and does not link libgantry: the host hands it a table.
function(gantry_plugin name output)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
    add_library(${name} MODULE ${ARG_SOURCES})
    gantry_warnings(${name})
    target_link_libraries(${name} PRIVATE gt_base ${ARG_DEPENDS})
    target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/plugin.map)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${output} LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/plugin.map)
endfunction()

# gantry_plugin_folder(NAME FOLDER OUTPUT): the folder's own CMakeLists.txt when it has one; nothing when it is not there.
function(gantry_plugin_folder name folder output)
    if(EXISTS ${CMAKE_SOURCE_DIR}/${folder}/CMakeLists.txt)
        add_subdirectory(${CMAKE_SOURCE_DIR}/${folder})
        return()
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c)
    if(sources)
        gantry_plugin(${name} ${output} SOURCES ${sources} DEPENDS ${CMAKE_DL_LIBS})
    endif()
endfunction()
