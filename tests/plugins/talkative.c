/* The example provider with a constructor, a destructor, and all its symbols exported. */
int gantry_talkative_count;

__attribute__((constructor)) static void begin(void)
{
    gantry_talkative_count++;
}

__attribute__((destructor)) static void end(void)
{
    gantry_talkative_count--;
}
