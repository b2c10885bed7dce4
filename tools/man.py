#!/usr/bin/env python3
"""Makes the man page gantry(1) from what the program says about itself and from the option table of gantry.h.

    tools/man.py build/release/gantry > docs/man/gantry.1

tests/check_man.sh compares the committed page with what this prints, so that the page cannot go stale.
"""
import os
import re
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# "  --name ARG   text"; a long name and its argument may leave one space only.
OPTION = re.compile(r"  (-\S.*?)(?:  +(\S.*))$|  (-\S+ \S+) (\S.*)$")


def say(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def escape(text):
    """Roff: a line may not begin with . or ', hyphens of options are minus signs."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in ".'" else text


def bold(text):
    return "\\fB%s\\fR" % escape(text)


def entry(term, text):
    return [".TP", bold(term), escape(text)]


def help_section(text):
    """One command's help: usage, options (a line further right goes on), paragraphs, examples."""
    out, lines, examples = [], text.rstrip().splitlines(), False
    for line in lines:
        option = OPTION.match(line)
        if line.startswith(("usage: ", "       gantry")):
            out += [".br", bold(line.replace("usage: ", "").strip())]
        elif not line.strip():
            out += [".PP"] if not examples else []
        elif line == "examples:":
            examples = True
            out += [".PP", "Examples:", ".PP", ".nf", ".RS"]
        elif examples:
            out.append(escape(line.strip()))
        elif option:
            out += entry(option.group(1) or option.group(3), option.group(2) or option.group(4))
        else:
            out.append(escape(line.strip()))
    return out + ([".RE", ".fi"] if examples else [])


def session_options():
    """The keys of gantry_options_set as gantry.h lists them."""
    with open(os.path.join(TOP, "include/gantry/gantry.h")) as f:
        table = f.read().split("The keys, with defaults:")[1].split("*/")[0]
    rows = []
    for line in table.splitlines():
        words = re.sub(r"^ \*", "", line)
        start = re.match(r"   (\S+) +(\S.*)$", words)
        if start:
            rows.append([start.group(1), start.group(2).strip()])
        elif words.strip() and rows:
            rows[-1][1] += " " + words.strip()
    return [part for key, text in rows for part in entry(key, text)]


def exit_codes(help_text):
    words = " ".join(help_text.split("Exit codes: ")[1].split())
    rows = re.findall(r"(\d) (.+?)(?=, \d |\.$)", words)
    return [part for code, text in rows for part in entry(code, text)]


def page(program):
    general = say(program, "--help")
    version = say(program, "--version").split()[1]
    commands = re.findall(r"^  gantry (\S+) +(\S.*)$", general, re.MULTILINE)
    out = ['.\\" Made by tools/man.py from the program\'s help and gantry.h; do not edit.',
           '.TH GANTRY 1 "" "gantry %s" "User Commands"' % version, ".SH NAME",
           "gantry \\- an ONNX inference runtime that explains where every node runs", ".SH SYNOPSIS"]
    for name, _ in commands:
        out += [".B gantry %s" % name, "[\\fIarguments\\fR]", ".br"]
    out += [".SH DESCRIPTION", "Gantry runs ONNX models, spread over several providers (the CPU, and libraries that bring more), and says where "
            "every node runs, why it is not somewhere better, and what that costs."]
    for name, what in commands:
        out += [".SH %s" % bold("gantry " + name).replace("\\fB", "").replace("\\fR", "").upper(), escape(what[0].upper() + what[1:] + "."), ".PP"]
        out += help_section(say(program, name, "--help"))
    out += [".SH SESSION OPTIONS", "What \\fB\\-\\-option\\fR \\fIKEY\\fR=\\fIVALUE\\fR takes, with the defaults:"] + session_options()
    out += [".SH EXIT STATUS"] + exit_codes(general)
    out += [".SH ENVIRONMENT", *entry("GANTRY_PROVIDER_PATH", "folders, colon-separated, where the library libgantry_NAME.so of a provider NAME is looked "
                                      "for before the installed ones"),
            *entry("GANTRY_CACHE", "folder for files that outlive the process, such as compiled programs and kernels, unless --cache names another; none when it is not set")]
    out += [".SH FILES", *entry("PREFIX/lib/gantry/libgantry_NAME.so", "the provider NAME, found when --providers or --plugin names it"),
            ".SH SEE ALSO", "The headers \\fIgantry/gantry.h\\fR (session API) and \\fIgantry/provider.h\\fR (to write a provider)."]
    return "\n".join(line for line in out if line) + "\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(page(sys.argv[1]))


if __name__ == "__main__":
    main()
