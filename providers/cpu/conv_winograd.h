/* Convolutions with a 3x3 window and stride 1 by Winograd's minimal filtering: fewer multiplications than the
 * definition has, at the price of transforms.
 *
 *     a tile of m x m outputs reads (m+2) x (m+2) inputs; with P = (m+2)^2 points
 *
 *     input tile  -- B' d B -->  V [P][C]          once for all output channels
 *     weights     -- G g G' -->  U [P][C][K]       once, when the kernel is made
 *     M [P][K] = V[P] * U[P]                       P products over many tiles
 *     A' M A      --> the m x m outputs
 *
 * m = 4: 36 multiplications instead of 144, with the points 0, +-sqrt(1/2), +-sqrt(2) and infinity. Against
 * 0, +-1, +-2 they have a third of the error (measured: 2 to 3 times that of the direct sum), because no
 * coefficient is above 4. m = 2: 16 instead of 36, points 0, +-1 and infinity, the error of the direct sum.
 */
#ifndef CPU_CONV_WINOGRAD_H
#define CPU_CONV_WINOGRAD_H

#include "conv.h"
#include "rows.h"

#define CPU_WINOGRAD_MAX_TILE 4
#define CPU_WINOGRAD_MAX_POINTS 36

/* What becomes of the sums: bias, residual if any, then one of the first three; or, after the bias, a list of
 * posts one by one, each a row function or an addition. Lanes of padding channels are stored as 0. */
typedef enum cpu_winograd_activation {
    CPU_WINOGRAD_CLAMP, /* to low .. high */
    CPU_WINOGRAD_SILU,
    CPU_WINOGRAD_HARD_SWISH,
    CPU_WINOGRAD_POSTS
} cpu_winograd_activation;

typedef struct cpu_winograd_post {
    cpu_post_kind kind;
    uint32_t input; /* RESIDUAL */
    cpu_unary_fn unary;
    float parameters[2];
} cpu_winograd_post;

typedef struct cpu_winograd {
    int tile; /* outputs of a tile's side: 2 or 4 */
    int64_t batch, in_channels, out_channels;
    int64_t in[2], out[2], pad[2];
    int64_t tile_rows, tile_columns; /* of one image */
    int64_t in_vectors, out_vectors; /* blocks of channels */
    int64_t panel_count;             /* groups of output blocks that are multiplied together */
    int64_t block_tiles, blocks;     /* tiles that are transformed together */
    int64_t panel_groups;            /* shares of the panels that threads take */
    const float *weights;            /* panels [P][C][vectors of the panel], blocks of channels */
    const float *bias;               /* padded to whole blocks */
    cpu_winograd_activation activation;
    float low, high;
    int residual_input; /* or -1; not of POSTS */
    uint32_t post_count;
    cpu_winograd_post posts[CPU_MAX_POSTS];
} cpu_winograd;

/* Where a tile is read: x is channel block 0 of an image, `first` the tile's first element in it, which may
 * lie outside. */
typedef struct cpu_winograd_source {
    const float *x;
    int64_t first, row, plane;        /* floats: to the tile, between rows, between channel blocks */
    int64_t top, bottom, left, right; /* rows and columns of the tile inside of the plane: from, to */
} cpu_winograd_source;

/* Where the results of a tile go. */
typedef struct cpu_winograd_target {
    float *y;
    const float *const *inputs; /* of the call */
    int64_t offset;             /* of the tile's first result in y and in a residual */
    int64_t row;                /* floats between rows */
    int64_t rows, columns;      /* results wanted */
    int64_t block;              /* of output channels */
} cpu_winograd_target;

/* The inner loops for one instruction set (conv_winograd_impl.h). Tables are immutable. */
typedef struct cpu_winograd_table {
    const char *isa;
    int width;     /* floats of a vector, channels of a block */
    int max_panel; /* vectors */
    /* Transforms one channel block (x) of a tile; [m == 4]. */
    void (*input[2])(const cpu_winograd_source *source, const float *x, float *v, int64_t v_point);
    /* m [panel][tiles] = v [channels][tiles] * u [channels][panel]; m_vector: floats between vectors of m */
    void (*multiply)(const float *v, int64_t v_block, int64_t tiles, const float *u, int64_t channels,
                     int panel, float *m, int64_t m_vector);
    /* Transforms one vector of a tile back and stores it. False, and nothing is stored, when a sum is not
     * finite. */
    bool (*output[2])(const cpu_winograd *w, const float *m, int64_t m_point,
                      const cpu_winograd_target *target);
    /* The same vector by the definition: what not finite inputs give. u: the panel's weights at this vector.
     */
    void (*direct[2])(const cpu_winograd *w, const cpu_winograd_source *source, const float *u, int panel,
                      const cpu_winograd_target *target);
} cpu_winograd_table;

#if defined(__x86_64__)
extern const cpu_winograd_table cpu_winograd_avx2;
extern const cpu_winograd_table cpu_winograd_avx512;
#endif

/* float32 in blocks of channels. GANTRY_UNSUPPORTED without an error text when the shape is not one for it,
 * or the direct kernel is faster. */
gantry_status cpu_conv_winograd(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

#endif
