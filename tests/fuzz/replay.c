/* What libFuzzer's driver does with a corpus, for builds without it: every file of the folders and every file
 * named is one input. An input that goes wrong ends the program; its name is the last line printed. */
#include "fuzz_tape.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat about;
    if (!file || fstat(fileno(file), &about) != 0)
        return -1;
    size_t size = (size_t)about.st_size;
    uint8_t *data = malloc(size ? size : 1); /* of exactly this size: a read past its end is found */
    int count = data && fread(data, 1, size, file) == size ? 1 : -1;
    fclose(file);
    if (count == 1) {
        printf("%s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, size);
    }
    free(data);
    return count;
}

/* How many inputs there were, or -1: something cannot be read. */
static int replay(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode))
        return replay_file(path);
    DIR *folder = opendir(path);
    int count = 0;
    for (struct dirent *entry; folder && count >= 0 && (entry = readdir(folder));) {
        char below[4096];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        int more = length < (int)sizeof below ? replay_file(below) : -1;
        count = more < 0 ? -1 : count + more;
    }
    if (folder)
        closedir(folder);
    return folder ? count : -1;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int k = 1; k < argc; k++) {
        char *path = realpath(argv[k], NULL); /* a target may change the current folder */
        int count = path ? replay(path) : -1;
        free(path);
        if (count <= 0) {
            fprintf(stderr, "%s: no inputs, or they cannot be read\n", argv[k]);
            return 1;
        }
        total += count;
    }
    printf("%d inputs\n", total);
    return total == 0;
}
