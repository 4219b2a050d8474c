/*
 * image - root trees that sandboxes begin with, and how an archive becomes one.
 *
 * An image is a row: a name, what its maker says, and the disks that are its layers. A layer is
 * known by its diff id and kept once for all images of a tenant that have it; it goes with the last
 * of them. An image that a sandbox or a snapshot needs cannot be removed.
 *
 * An import makes a sandbox without a row (helper.c) that has our own program in it, gives it a
 * scratch disk and the upload, and lets it say what the upload is; then one disk after the other
 * for the layers that are not there yet. When that sandbox is gone, and not before, the row is
 * stored and the layers are ready. Until then everything is such that a kill leaves nothing: the
 * sandbox has no row and the disks are not ready.
 *
 * All functions are for the loop thread.
 */
#pragma once

#include "box/boxes.h"
#include "model/image.h"

struct image {
    struct list node;
    struct boxes *boxes;
    struct arena arena; /* of told */
    char tenant[33], by[ID_SIZE];
    const char *name;
    const char *text; /* told, as JSON */
    struct image_told told;
    struct field_pair *env;          /* of told.config, split */
    uint64_t layers[BOX_LAYERS_MAX]; /* disks, the lowest first */
    unsigned layer_count;
    int64_t made_ms;
    bool busy; /* being removed */
};

struct image_op {
    const char *tenant, *by; /* borrowed until the end */
    /* Just before it is stored; may be NULL. */
    void (*prepare)(struct image_op *op);
    /* On the writer thread, in the transaction that stores the change; may be NULL. */
    int (*record)(struct image_op *op, struct db *db, struct err *err);
    /* More of the upload can be taken. */
    void (*room)(struct image_op *op);
    /* Exactly once, never from inside the call that began it; err NULL: done and stored. */
    void (*done)(struct image_op *op, const struct err *err);
    struct image *image;
};

/* ERR_NOT_FOUND says which names there are. */
must_use int image_find(struct boxes *boxes, const char *tenant, const char *name,
                        struct image **out, struct err *err);
/* The next one of the tenant, oldest first; NULL begins and ends. */
struct image *image_next(struct boxes *boxes, const char *tenant, struct image *after);
void image_view(const struct image *image, struct image_view *out);
/* ERR_CONFLICT: something needs it. */
must_use int image_remove(struct image *image, struct image_op *op, struct err *err);

struct image_import;
must_use int image_import(struct boxes *boxes, const char *name, struct image_op *op,
                          struct image_import **out, struct err *err);
/* How much of the upload was taken; op->room tells when there is more room. */
size_t image_import_put(struct image_import *import, struct str data);
void image_import_eof(struct image_import *import); /* after what was put */
/* The caller leaves: op is forgotten, and so will be everything that was made. */
void image_import_drop(struct image_import *import);
