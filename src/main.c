/* Picks the role: serve, api, otherwise a CLI command. */
int main(void)
{
    return 0;
}
