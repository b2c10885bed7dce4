/* What needs_missing links to and will not find. */
int missing_library_answer(void);

int missing_library_answer(void)
{
    return 42;
}
