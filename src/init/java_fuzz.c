/*
 * What Java trusts, as an image might bring it. The input is a store without its digest, which is
 * added so that it is read at all. What comes out is a store again, which has the authority.
 */
#include "init/java.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char pem[] = "-----BEGIN CERTIFICATE-----\nAAECAwQ=\n-----END CERTIFICATE-----\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *store = malloc(size + DIGEST), *out = NULL, *again = NULL;
    size_t len = 0, len_again;

    if (!store)
        abort();
    memcpy(store, data, size);
    digest_of(store, size, store + size);
    if (java_trust(store, size + DIGEST, pem, sizeof(pem) - 1, 1, &out, &len) == JAVA_NEW &&
        java_trust(out, len, pem, sizeof(pem) - 1, 1, &again, &len_again) != JAVA_SAME)
        abort();
    free(store);
    free(out);
    return 0;
}
