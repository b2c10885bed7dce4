#!/usr/bin/env bash
# Checks which folder may include which (docs/design.md, section 3). Prints each offence; exit 1 when there is one.
set -u
cd "$(dirname "$0")/.."
bad=0

# forbid FOLDERS PATTERN RULE: no source below FOLDERS may have an #include that matches PATTERN.
forbid() {
    local found folders
    folders=$(ls -d $1 2>/dev/null) || return 0
    found=$(grep -rnE --include='*.[ch]' "^ *# *include *[<\"]($2)" $folders)
    [ -z "$found" ] || { printf '%s:\n%s\n' "$3" "$found"; bad=1; }
}

vendors='oneapi/|dnnl|cblas|cuda|cudnn|cublas|CL/|sleef'
forbid 'include' '(base|graph|core|providers|tools|quantization)/' 'include/ stands alone'
forbid 'base' "(graph|core|providers|tools|quantization)/|$vendors" 'base/ knows none of the others'
forbid 'graph' "(core|providers|tools|quantization)/|$vendors" 'graph/ includes only base/ and include/gantry/'
forbid 'core' "(providers|tools|quantization)/|$vendors" 'core/ includes graph/ and base/, and no vendor header'
forbid 'providers tests/fake' '(graph|core|tools|quantization)/' 'providers include only include/gantry/ and base/'
forbid 'providers/opencl' '(base|providers/cpu)/' 'providers/opencl is built as a third party would: include/gantry/ only'
forbid 'tools quantization' "(graph|core|providers)/|$vendors" 'tools use the public API, and base/'
forbid 'base graph core providers include tools quantization tests' '\.\./' 'includes are relative to the top folder'

# base/ must work in a plugin, which does not link the library: headers only.
found=$(find base -name '*.c')
[ -z "$found" ] || { printf 'base/ is header-only:\n%s\n' "$found"; bad=1; }

# Each public header compiles alone, as C11.
for header in include/gantry/*.h; do
    ${CC:-cc} -std=c11 -Wall -Wextra -pedantic -Werror -fsyntax-only -Iinclude -x c "$header" || { echo "$header does not compile alone"; bad=1; }
done
exit $bad
