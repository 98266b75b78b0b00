/* The library's own version: see native.py. */

int vebench_interface(void)
{
	return 12;
}
