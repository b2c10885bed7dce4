/* On a function with vector loops: compiled for AVX-512, for AVX2 with FMA and for any x86-64, chosen when
 * the library is loaded. Sanitizers run before that choice can be made. */
#ifndef GT_BASE_CLONES_H
#define GT_BASE_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&     \
    !defined(__SANITIZE_THREAD__)
#define GT_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#else
#define GT_CLONES
#endif

#endif
