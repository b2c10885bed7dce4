/* A picture in a PNG or JPEG file as the float tensor that a vision model takes. */
#include "io.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <png.h>

/* 16384 x 16384: beyond it a picture of a few bytes could ask for many gigabytes. */
#define MAX_PIXELS (1u << 28)
#define MAX_SIDE 65535
#define CHANNELS 3u

/* What --image says; texts point into the copy of the spec. */
typedef struct image_spec {
    const char *name, *file;
    uint32_t width, height;
    float mean[CHANNELS], std[CHANNELS];
    uint32_t mean_count, std_count;
    bool nhwc, bgr, gray;
} image_spec;

/* Bytes of RGB, row by row. */
typedef struct picture {
    unsigned char *rgb;
    uint32_t width, height;
} picture;

/* ---- the spec -------------------------------------------------------------------------------- */

static gantry_status bad_spec(gantry_error *err, const char *format, ...) GANTRY_PRINTF(2, 3);
static gantry_status bad_spec(gantry_error *err, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gt_fail(
        err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
        "picture: %s (NAME=FILE,size=WxH,mean=M[:M:M],std=S[:S:S],order=NCHW-RGB; NHWC, BGR, GRAY)", text);
}

static gantry_status parse_size(const char *text, image_spec *spec, gantry_error *err)
{
    char *end;
    long width = strtol(text, &end, 10), height = 0;
    bool good = *end == 'x' && end[1] >= '0' && end[1] <= '9';
    if (good)
        height = strtol(end + 1, &end, 10);
    if (!good || *end || width < 1 || height < 1 || width > MAX_SIDE || height > MAX_SIDE ||
        (uint64_t)width * (uint64_t)height > MAX_PIXELS)
        return bad_spec(err, "size=%s is no WxH with sides up to %d and up to %u pixels", text, MAX_SIDE,
                        MAX_PIXELS);
    spec->width = (uint32_t)width;
    spec->height = (uint32_t)height;
    return GANTRY_OK;
}

/* One number, or one a channel, separated by colons. */
static gantry_status parse_numbers(const char *key, const char *text, float *out_numbers, uint32_t *out_count,
                                   gantry_error *err)
{
    const char *at = text;
    for (*out_count = 0; *out_count < CHANNELS;) {
        char *end;
        float number = strtof(at, &end);
        if (end == at || !isfinite(number) || (*end && *end != ':'))
            break;
        out_numbers[(*out_count)++] = number;
        if (!*end)
            return GANTRY_OK;
        at = end + 1;
    }
    return bad_spec(err, "%s=%s is no number, nor up to %u numbers with colons between", key, text, CHANNELS);
}

static gantry_status parse_order(const char *text, image_spec *spec, gantry_error *err)
{
    static const struct {
        const char *text;
        bool nhwc, bgr, gray;
    } orders[] = {{"NCHW-RGB", false, false, false}, {"NCHW-BGR", false, true, false},
                  {"NCHW-GRAY", false, false, true}, {"NHWC-RGB", true, false, false},
                  {"NHWC-BGR", true, true, false},   {"NHWC-GRAY", true, false, true}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (strcmp(text, orders[i].text) == 0) {
            spec->nhwc = orders[i].nhwc;
            spec->bgr = orders[i].bgr;
            spec->gray = orders[i].gray;
            return GANTRY_OK;
        }
    return bad_spec(err, "order=%s is none of NCHW-RGB, NCHW-BGR, NCHW-GRAY, NHWC-RGB, NHWC-BGR, NHWC-GRAY",
                    text);
}

static gantry_status check_counts(const image_spec *spec, gantry_error *err)
{
    uint32_t channels = spec->gray ? 1 : CHANNELS;
    if ((spec->mean_count != 1 && spec->mean_count != channels) ||
        (spec->std_count != 1 && spec->std_count != channels))
        return bad_spec(err, "%u channels, but %u values of mean and %u of std", channels, spec->mean_count,
                        spec->std_count);
    for (uint32_t c = 0; c < spec->std_count; c++)
        if (spec->std[c] == 0)
            return bad_spec(err, "std is 0: values are divided by it");
    return GANTRY_OK;
}

/* Cuts text, which it changes, at its commas: first NAME=FILE, then the keys in any order. */
static gantry_status parse_spec(char *text, image_spec *out_spec, gantry_error *err)
{
    enum { SIZE = 1, MEAN = 2, STD = 4, ORDER = 8, ALL = 15 };
    unsigned seen = 0;
    char *rest = text, *part = strsep(&rest, ","), *value = strchr(part, '=');
    *out_spec = (image_spec){0};
    if (!value || value == part || !value[1])
        return bad_spec(err, "'%s' is no NAME=FILE", part);
    *value = 0;
    out_spec->name = part;
    out_spec->file = value + 1;
    while ((part = strsep(&rest, ","))) {
        value = strchr(part, '=');
        if (!value)
            return bad_spec(err, "'%s' is no key=value", part);
        *value++ = 0;
        unsigned key = strcmp(part, "size") == 0    ? SIZE
                       : strcmp(part, "mean") == 0  ? MEAN
                       : strcmp(part, "std") == 0   ? STD
                       : strcmp(part, "order") == 0 ? ORDER
                                                    : 0;
        if (!key || seen & key)
            return bad_spec(err, "the key '%s' is %s", part, key ? "there twice" : "unknown");
        seen |= key;
        GT_TRY(key == SIZE   ? parse_size(value, out_spec, err)
               : key == MEAN ? parse_numbers(part, value, out_spec->mean, &out_spec->mean_count, err)
               : key == STD  ? parse_numbers(part, value, out_spec->std, &out_spec->std_count, err)
                             : parse_order(value, out_spec, err));
    }
    if (seen != ALL)
        return bad_spec(err, "missing:%s%s%s%s", seen & SIZE ? "" : " size", seen & MEAN ? "" : " mean",
                        seen & STD ? "" : " std", seen & ORDER ? "" : " order");
    return check_counts(out_spec, err);
}

/* ---- decoding -------------------------------------------------------------------------------- */

static gantry_status allocate(const char *path, uint32_t width, uint32_t height, picture *out_picture,
                              gantry_error *err)
{
    if (!width || !height || (uint64_t)width * height > MAX_PIXELS)
        return io_fail(err, GANTRY_DATA, path, "%u x %u pixels; 1 to %u are read", width, height, MAX_PIXELS);
    out_picture->width = width;
    out_picture->height = height;
    out_picture->rgb = malloc((size_t)width * height * CHANNELS);
    return out_picture->rgb ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_RUN);
}

static gantry_status decode_png(const char *path, io_bytes file, picture *out_picture, gantry_error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, file.data, file.size))
        return io_fail(err, GANTRY_DATA, path, "libpng: %s", image.message);
    image.format = PNG_FORMAT_RGB;
    gantry_status status = allocate(path, image.width, image.height, out_picture, err);
    const png_color white = {255, 255, 255};
    if (status == GANTRY_OK && !png_image_finish_read(&image, &white, out_picture->rgb, 0, NULL))
        status = io_fail(err, GANTRY_DATA, path, "libpng: %s", image.message);
    else if (status == GANTRY_OK && image.warning_or_error & PNG_IMAGE_ERROR)
        status = io_fail(err, GANTRY_DATA, path, "libpng: %s", image.message);
    png_image_free(&image);
    return status;
}

/* libjpeg's default handlers print and exit. */
typedef struct jpeg_failure {
    struct jpeg_error_mgr manager;
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
} jpeg_failure;

static void jpeg_give_up(j_common_ptr jpeg)
{
    jpeg_failure *failure = (jpeg_failure *)jpeg->err;
    jpeg->err->format_message(jpeg, failure->text);
    longjmp(failure->jump, 1);
}

/* A warning means damaged data: a picture that is partly grey would give wrong numbers silently. */
static void jpeg_message(j_common_ptr jpeg, int level)
{
    if (level < 0)
        jpeg_give_up(jpeg);
}

static gantry_status jpeg_rows(struct jpeg_decompress_struct *jpeg, const char *path, picture *out_picture,
                               gantry_error *err)
{
    jpeg_read_header(jpeg, TRUE);
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK)
        return io_fail(err, GANTRY_UNSUPPORTED, path, "a CMYK picture; save it as RGB");
    jpeg->out_color_space = JCS_RGB;
    GT_TRY(allocate(path, jpeg->image_width, jpeg->image_height, out_picture, err));
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = out_picture->rgb + (size_t)jpeg->output_scanline * out_picture->width * CHANNELS;
        jpeg_read_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_decompress(jpeg);
    return GANTRY_OK;
}

static gantry_status decode_jpeg(const char *path, io_bytes file, picture *out_picture, gantry_error *err)
{
    struct jpeg_decompress_struct jpeg;
    jpeg_failure failure;
    gantry_status status;
    jpeg.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = jpeg_give_up;
    failure.manager.emit_message = jpeg_message;
    jpeg_create_decompress(&jpeg);
    if (setjmp(failure.jump)) {
        status = io_fail(err, GANTRY_DATA, path, "libjpeg: %s", failure.text);
    } else {
        jpeg_mem_src(&jpeg, file.data, (unsigned long)file.size);
        status = jpeg_rows(&jpeg, path, out_picture, err);
    }
    jpeg_destroy_decompress(&jpeg);
    return status;
}

static gantry_status decode(const char *path, picture *out_picture, gantry_error *err)
{
    io_bytes file;
    GT_TRY(io_file_read(path, &file, err));
    gantry_status status;
    if (file.size >= 8 && png_sig_cmp(file.data, 0, 8) == 0)
        status = decode_png(path, file, out_picture, err);
    else if (file.size >= 3 && memcmp(file.data, "\xff\xd8\xff", 3) == 0)
        status = decode_jpeg(path, file, out_picture, err);
    else
        status = io_fail(err, GANTRY_DATA, path, "is neither a PNG nor a JPEG file");
    free(file.data);
    return status;
}

/* ---- resizing and normalising ---------------------------------------------------------------- */

/* The two source positions that an output position lies between, and the weight of the second. */
typedef struct tap {
    uint32_t first, second;
    float weight;
} tap;

static tap tap_at(uint32_t position, uint32_t from, uint32_t to)
{
    double at = ((double)position + 0.5) * from / to - 0.5;
    if (at < 0)
        at = 0;
    uint32_t first = (uint32_t)at;
    if (first >= from - 1)
        return (tap){from - 1, from - 1, 0};
    return (tap){first, first + 1, (float)(at - first)};
}

static float sample(const picture *p, tap x, tap y, uint32_t channel)
{
    const unsigned char *upper = p->rgb + (size_t)y.first * p->width * CHANNELS + channel;
    const unsigned char *lower = p->rgb + (size_t)y.second * p->width * CHANNELS + channel;
    float top = upper[x.first * CHANNELS] * (1 - x.weight) + upper[x.second * CHANNELS] * x.weight;
    float bottom = lower[x.first * CHANNELS] * (1 - x.weight) + lower[x.second * CHANNELS] * x.weight;
    return top * (1 - y.weight) + bottom * y.weight;
}

/* Channel c of the tensor, 0 to 255. Grey is the luma of ITU-R 601, as image libraries have it. */
static float pixel(const image_spec *spec, const picture *p, tap x, tap y, uint32_t c)
{
    if (spec->gray)
        return 0.299f * sample(p, x, y, 0) + 0.587f * sample(p, x, y, 1) + 0.114f * sample(p, x, y, 2);
    return sample(p, x, y, spec->bgr ? CHANNELS - 1 - c : c);
}

static void fill(const image_spec *spec, const picture *p, float *out)
{
    uint32_t channels = spec->gray ? 1 : CHANNELS;
    size_t plane = spec->nhwc ? 1 : (size_t)spec->width * spec->height, step = spec->nhwc ? channels : 1;
    for (uint32_t h = 0; h < spec->height; h++) {
        tap y = tap_at(h, p->height, spec->height);
        for (uint32_t w = 0; w < spec->width; w++) {
            tap x = tap_at(w, p->width, spec->width);
            float *at = out + ((size_t)h * spec->width + w) * step;
            for (uint32_t c = 0; c < channels; c++) {
                float mean = spec->mean[spec->mean_count > 1 ? c : 0],
                      std = spec->std[spec->std_count > 1 ? c : 0];
                at[c * plane] = (pixel(spec, p, x, y, c) / 255.0f - mean) / std;
            }
        }
    }
}

gantry_status io_image_read(const char *spec_text, io_tensor *out_tensor, gantry_error *err)
{
    image_spec spec;
    picture p = {0};
    *out_tensor = (io_tensor){0};
    char *text = strdup(spec_text);
    if (!text)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    gantry_status status = parse_spec(text, &spec, err);
    if (status == GANTRY_OK)
        status = decode(spec.file, &p, err);
    if (status == GANTRY_OK) {
        int64_t channels = spec.gray ? 1 : CHANNELS;
        int64_t nchw[] = {1, channels, spec.height, spec.width},
                nhwc[] = {1, spec.height, spec.width, channels};
        status = io_tensor_create(spec.name, GANTRY_FLOAT32, 4, spec.nhwc ? nhwc : nchw, out_tensor, err);
    }
    if (status == GANTRY_OK)
        fill(&spec, &p, out_tensor->data);
    free(p.rgb);
    free(text);
    return status;
}
