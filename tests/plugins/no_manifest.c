/* A library that could be a provider but says nothing about itself before it is loaded. */
int gantry_plugin_open(void);

int gantry_plugin_open(void)
{
    return 0;
}
