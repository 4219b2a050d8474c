/* The tables of files. */
#include "model/file.h"

const struct field file_fields[] = {
    FIELD(file_view, name, F_STRING, F_READONLY,
          .help = "In a list its name, in a manifest its path below the directory, otherwise the "
                  "path that was asked for; bytes that are no UTF-8 are shown as U+FFFD"),
    FIELD(file_view, name_base64, F_STRING, F_READONLY,
          .help = "The name's bytes where it is no UTF-8; otherwise null"),
    FIELD(file_view, type, F_STRING, F_READONLY,
          .help = "file, directory, symlink, fifo, socket, character_device or block_device"),
    FIELD(file_view, mode, F_STRING, F_READONLY, .help = "Permissions, octal: \"0644\""),
    FIELD(file_view, uid, F_INT, F_READONLY, .help = "Owner, as seen inside"),
    FIELD(file_view, gid, F_INT, F_READONLY, .help = "Group, as seen inside"),
    FIELD(file_view, size, F_INT, F_READONLY, .help = "Bytes"),
    FIELD(file_view, mtime, F_TIME, F_READONLY, .help = "When its contents changed last"),
    FIELD(file_view, link, F_STRING, F_READONLY, .help = "Where a symlink leads; otherwise null"),
    FIELD(file_view, link_base64, F_STRING, F_READONLY, .help = "As name_base64"),
    FIELD(file_view, sha256, F_STRING, F_READONLY,
          .help = "Digest of a readable file, in manifests; otherwise null"),
    { 0 },
};

const struct field file_change_fields[] = {
    FIELD(file_change, path, F_STRING, F_READONLY, .help = "Where"),
    FIELD(file_change, bytes, F_INT, F_READONLY, .help = "Bytes of contents that were unpacked"),
    FIELD(file_change, entries, F_INT, F_READONLY, .help = "Files, directories and links"),
    { 0 },
};
