/* A folder for the files of one test: Test(..., .init = begin) calls test_folder_open, .fini = end
 * test_folder_close. Thread-hostile, as Criterion's tests are: each is a process of its own. */
#ifndef GT_TESTS_TEST_FOLDER_H
#define GT_TESTS_TEST_FOLDER_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static inline void test_folder_open(void)
{
    snprintf(folder, sizeof folder, "/tmp/gantry-test-XXXXXX");
    cr_assert(mkdtemp(folder), "%s: %s", folder, strerror(errno));
}

/* The path of a file in the folder; valid until the eighth call from here. */
static inline const char *inside(const char *name)
{
    static char paths[8][256];
    static int next;
    next = (next + 1) % 8;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static inline bool is_there(const char *name)
{
    return access(inside(name), F_OK) == 0;
}

static inline void put_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    cr_assert(file, "%s: %s", path, strerror(errno));
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    cr_assert_eq(fclose(file), 0);
}

static inline int test_folder_remove_entry(const char *path, const struct stat *about, int kind,
                                           struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    return remove(path);
}

/* Removes the folder with all that is in it. */
static inline void test_folder_close(void)
{
    cr_assert_eq(nftw(folder, test_folder_remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0, "%s: %s", folder,
                 strerror(errno));
}

/* Fails when the folder holds a file that is not one of these: what was made on the way must be gone. */
static inline void test_folder_expect_only(uint32_t count, const char *const *names)
{
    DIR *entries = opendir(folder);
    cr_assert(entries);
    for (struct dirent *entry; (entry = readdir(entries));) {
        bool known = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        for (uint32_t k = 0; !known && k < count; k++)
            known = strcmp(entry->d_name, names[k]) == 0;
        cr_expect(known, "%s is left in %s", entry->d_name, folder);
    }
    closedir(entries);
}

#endif
