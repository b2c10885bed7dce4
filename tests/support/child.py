"""A piece of a corpus suite in a process of its own: one that dies does not take the rest with it, and memory is given back."""
import json
import os


def in_child(work):
    """The list of problems that work() returns; an exception or a crash is one problem."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            problems = work()
        except BaseException as e:  # noqa: B902
            problems = ["%s: %s" % (type(e).__name__, e)]
        with os.fdopen(write, "w") as f:
            json.dump(problems, f)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if status == 0 and text else ["the process ended with status %d" % status]
