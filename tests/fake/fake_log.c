/* The log: a line for everything that a queue or a waiting host begins or ends, in the order in which it
 * happened, so that tests see what ran beside what without looking at a clock. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

gantry_status fake_log_open(fake_log *log, const char *path, gantry_error *err)
{
    log->fd = *path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (!*path || log->fd >= 0)
        return GANTRY_OK;
    return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "fake device: log_file %s: %s", path,
                     strerror(errno));
}

void fake_log_close(fake_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    pthread_mutex_destroy(&log->lock);
}

void fake_note(fake_domain *domain, const char *format, ...)
{
    char line[300], who[32] = "host";
    if (domain->log->fd < 0)
        return;
    if (fake_queue_number() >= 0)
        snprintf(who, sizeof who, "queue %d", fake_queue_number());
    int used = snprintf(line, sizeof line, "%s %s ", domain->config->domain, who);
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    used = used < (int)sizeof line - 1 ? used : (int)sizeof line - 2;
    line[used++] = '\n';
    pthread_mutex_lock(&domain->log->lock);
    ssize_t written = write(domain->log->fd, line, (size_t)used); /* a short one shows in the test */
    pthread_mutex_unlock(&domain->log->lock);
    (void)written;
}
