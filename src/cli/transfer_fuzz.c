/*
 * A line of a sandbox's manifest under a fuzzer: whatever is accepted is a record that
 * manifest_read takes or refuses with a reason, and what it takes names files beneath the directory
 * only.
 */
#include <string.h>

#include "cli/transfer.h"
#include "diff/patch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool what)
{
    if (!what)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = { (const char *)data, size };
    autobuf struct buf records = { 0 }, text = { 0 };
    automanifest struct manifest manifest = { 0 }, none = { 0 };
    autochanges struct changes changes = { 0 };
    struct err err = { 0 };

    while (rest.n) {
        size_t before = records.len;

        if (transfer_line(&records, str_cut(&rest, '\n'), &err) < 0) {
            must(err.msg[0] && records.len == before);
            return 0;
        }
    }
    if (manifest_read(&manifest, &records, &err) < 0) {
        must(err.msg[0] && !manifest.count);
        return 0;
    }
    for (size_t i = 0; i < manifest.count; i++)
        must(patch_path_ok(entry_path(&manifest.at[i])) &&
             manifest_find(&manifest, entry_path(&manifest.at[i])) == &manifest.at[i]);
    changes_between(&none, &manifest, &changes);
    must(changes.count == manifest.count);
    changes_summary(&changes, SIZE_MAX, &text);
    for (size_t i = 0; i < text.len; i++)
        must((unsigned char)text.data[i] >= 0x20 || text.data[i] == '\n');
    return 0;
}
