/* The inner loops of own convolutions on blocks of channels, one table for each instruction set
 * (conv_loops_avx2.c, conv_loops_avx512.c, both made from conv_loops_impl.h): products of rows with packed
 * weights, Winograd's transforms, and what is done to sums on their way out. */
#ifndef CPU_CONV_LOOPS_H
#define CPU_CONV_LOOPS_H

#include "conv.h"
#include "rows.h"

/* What becomes of the sums: bias, residual if any, then one of the first three; or, after the bias, a list of
 * posts one by one, each a row function or an addition. Lanes of padding channels are stored as 0. */
typedef enum cpu_conv_activation {
    CPU_CONV_CLAMP, /* to low .. high */
    CPU_CONV_SILU,
    CPU_CONV_HARD_SWISH,
    CPU_CONV_POSTS
} cpu_conv_activation;

typedef struct cpu_conv_post {
    cpu_post_kind kind;
    uint32_t input; /* RESIDUAL */
    cpu_unary_fn unary;
    float parameters[2];
} cpu_conv_post;

typedef struct cpu_conv_finish {
    int64_t channels;  /* of the output */
    const float *bias; /* padded to whole blocks */
    cpu_conv_activation activation;
    float low, high;
    int residual_input; /* or -1; not of POSTS */
    uint32_t post_count;
    cpu_conv_post posts[CPU_MAX_POSTS];
} cpu_conv_finish;

/* Where a tile is read: x is channel block 0 of an image, `first` the tile's first element in it, which may
 * lie outside. */
typedef struct cpu_conv_source {
    const float *x;
    int64_t first, row, plane;        /* floats: to the tile, between rows, between channel blocks */
    int64_t top, bottom, left, right; /* rows and columns of the tile inside of the plane: from, to */
} cpu_conv_source;

/* Where the results of a tile go. */
typedef struct cpu_conv_target {
    float *y;
    const float *const *inputs; /* of the call */
    int64_t offset;             /* of the tile's first result in y and in a residual */
    int64_t row;                /* floats between rows */
    int64_t rows, columns;      /* results wanted */
    int64_t block;              /* of output channels */
} cpu_conv_target;

/* Winograd's schemes (conv_winograd.h). */
typedef enum cpu_conv_scheme {
    CPU_CONV_TILE_2,
    CPU_CONV_TILE_4,
    CPU_CONV_TILE_4_STRIDE_2,
    CPU_CONV_SCHEME_COUNT
} cpu_conv_scheme;

/* The inner loops for one instruction set (conv_loops_impl.h). Tables are immutable. */
typedef struct cpu_conv_loops {
    const char *isa;
    int width;     /* floats of a vector, channels of a block */
    int max_panel; /* vectors */
    /* Transforms one channel block (x) of a tile. */
    void (*input[CPU_CONV_SCHEME_COUNT])(const cpu_conv_source *source, const float *x, float *v,
                                         int64_t v_point);
    /* m [panel][tiles] = v [channels][tiles] * u [channels][panel]; m_vector: floats between vectors of m */
    void (*multiply)(const float *v, int64_t v_block, int64_t tiles, const float *u, int64_t channels,
                     int panel, float *m, int64_t m_vector);
    /* Transforms one vector of a tile back and stores it. False, and nothing is stored, when a sum is not
     * finite. */
    bool (*output[CPU_CONV_SCHEME_COUNT])(const cpu_conv_finish *f, const float *m, int64_t m_point,
                                          const cpu_conv_target *target);
    /* The same vector by the definition: what not finite inputs give. u: the panel's weights at this vector.
     */
    void (*direct[CPU_CONV_SCHEME_COUNT])(const cpu_conv_finish *f, const cpu_conv_source *source,
                                          int64_t channels, const float *u, int panel,
                                          const cpu_conv_target *target);
    /* Finishes one channel block of count * spread neighbouring pixels (not POSTS), where pixel j comes from
     * m[j % spread] [j / spread]; m_vector floats lie between the m. The residual may be NULL. */
    void (*finish)(const cpu_conv_finish *f, const float *m, int64_t m_vector, int64_t spread, int64_t count,
                   int64_t block, float *y, const float *residual);
} cpu_conv_loops;

#if defined(__x86_64__)
extern const cpu_conv_loops cpu_conv_loops_avx2;
extern const cpu_conv_loops cpu_conv_loops_avx512;
#endif

/* The table for blocks as the provider lays them out; NULL when this processor has none. */
const cpu_conv_loops *cpu_conv_loops_for(const cpu_provider *provider);

/* Reads the build's post-ops. False when one has no function here. */
bool cpu_conv_finish_read(const cpu_build *build, const cpu_conv *conv, cpu_conv_finish *out_finish);
/* Sets the bias, and says in the build and the kernel how bias and residual are read; both are constants or
 * blocked. */
gantry_status cpu_conv_finish_bind(cpu_build *build, const cpu_conv *conv, int width, cpu_conv_finish *finish,
                                   cpu_kernel *kernel);

/* The activation, on a row of results of any channel (without residual). */
void cpu_conv_finish_row(const cpu_conv_finish *finish, float *y, int64_t count);

/* float32 in blocks of channels, where each output pixel comes from one input pixel: 1x1 windows, and
 * transposed ones that do not overlap. GANTRY_UNSUPPORTED without an error text for others, and where oneDNN
 * is as fast. */
gantry_status cpu_conv_pixels(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

#endif
