/* What an upload is found to be, and the lies that are found out. */
#include <stdlib.h>

#include "base/mem.h"
#include "image/own.h"
#include "image/tar_rig.h"

/* An image of two layers, to be damaged in one place. */
struct rig {
    struct buf lower, upper, config, manifest, index;
    struct buf tar; /* the upload */
    struct image_limits limits;
    struct image_info info;
    struct err err;
    const char *dir;
    int fd;
};

static void rig_free(struct rig *rig)
{
    struct buf *all[] = { &rig->lower,    &rig->upper, &rig->config,
                          &rig->manifest, &rig->index, &rig->tar };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_free(all[i]);
    image_info_free(&rig->info);
    close(rig->fd);
}
#define autorig auto_with(rig_free)

static const char *sum(const struct buf *bytes)
{
    static char text[4][IMAGE_DIGEST_SIZE];
    static unsigned turn;
    unsigned char digest[SHA256_SIZE];

    sha256(bytes->data, bytes->len, digest);
    digest_text(digest, text[++turn % 4]);
    return text[turn % 4];
}

static const char *blob(const struct buf *bytes)
{
    static char text[4][128];
    static unsigned turn;

    snprintf(text[++turn % 4], sizeof(text[0]), "blobs/sha256/%s", sum(bytes) + 7);
    return text[turn % 4];
}

#define MACHINE "\"architecture\":\"amd64\",\"os\":\"linux\""

static void rig_init(struct rig *rig)
{
    *rig = (struct rig){ .limits = image_limits, .dir = test_dir() };
    rig->fd = rig_dir_fd(rig->dir);
    rig_file(&rig->lower, "etc/os", "one");
    rig_end(&rig->lower);
    rig_file(&rig->upper, "etc/.wh.os", "");
    rig_end(&rig->upper);
    buf_printf(&rig->config,
               "{" MACHINE ",\"config\":{\"Env\":[\"A=1\"],\"User\":\"web\",\"Cmd\":[\"sh\"],"
               "\"Entrypoint\":null,\"Labels\":{\"k\":\"v\"}},"
               "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"%s\",\"%s\"]}}",
               sum(&rig->lower), sum(&rig->upper));
}

static void put_blob(struct rig *rig, const struct buf *bytes)
{
    rig_add(&rig->tar, (struct rig_entry){
                           .name = blob(bytes), .type = '0', .data = buf_view(bytes), .size = -1 });
}

static void make_manifest(struct rig *rig)
{
    buf_printf(&rig->manifest,
               "{\"config\":{\"digest\":\"%s\",\"size\":%zu},\"layers\":["
               "{\"digest\":\"%s\",\"size\":%zu},{\"digest\":\"%s\",\"size\":%zu}]}",
               sum(&rig->config), rig->config.len, sum(&rig->lower), rig->lower.len,
               sum(&rig->upper), rig->upper.len);
}

static void make_index(struct rig *rig, const char *platform)
{
    buf_printf(&rig->index, "{\"manifests\":[{\"digest\":\"%s\",\"size\":%zu%s}]}",
               sum(&rig->manifest), rig->manifest.len, platform);
}

static void finish_oci(struct rig *rig)
{
    put_blob(rig, &rig->upper);
    put_blob(rig, &rig->lower);
    put_blob(rig, &rig->config);
    put_blob(rig, &rig->manifest);
    rig_file(&rig->tar, "oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}");
    rig_file(&rig->tar, "./index.json", buf_cstr(&rig->index));
}

static int inspect(struct rig *rig)
{
    autoclose int fd = -1;

    rig_end(&rig->tar);
    fd = rig_fd(buf_view(&rig->tar));
    return image_inspect(&rig->limits, fd, rig->fd, "amd64", &rig->info, &rig->err);
}

static void refused(struct rig *rig, enum err_code code, const char *says)
{
    CHECK_INT(inspect(rig), -1);
    if (!strstr(rig->err.msg, says))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", rig->err.msg, says);
    CHECK_INT(rig->err.code, code);
}

/* Replaces every `from` by `to`, which is as long. */
static void swap(struct buf *bytes, const char *from, const char *to)
{
    size_t len = strlen(from);
    bool found = false;

    CHECK(len == strlen(to));
    for (size_t i = 0; i + len <= bytes->len; i++)
        if (memcmp(bytes->data + i, from, len) == 0) {
            memcpy(bytes->data + i, to, len);
            found = true;
        }
    CHECK(found);
}

TEST(a_tree_of_files_is_a_layer)
{
    autorig struct rig rig = { 0 };
    autobuf struct buf json = { 0 };
    struct stat st;

    rig_init(&rig);
    rig_file(&rig.tar, "etc/manifest.json", "deep down it is a file like others");
    CHECK_OK(inspect(&rig), &rig.err);
    CHECK_STR(rig.info.format, "tar");
    CHECK_INT(rig.info.layer_count, 1);
    CHECK_INT(rig.info.layers[0].entries, 1);
    CHECK_INT(rig.info.layers[0].bytes, 34);
    CHECK_STR(rig.info.digest, sum(&rig.tar));
    CHECK_STR(rig.info.layers[0].diff_id, sum(&rig.tar));
    CHECK(fstatat(rig.fd, "layer.0", &st, 0) == 0 && (size_t)st.st_size == rig.tar.len);
    CHECK_OK(image_info_put(&rig.info, &json, &rig.err), &rig.err);
    CHECK(strstr(buf_cstr(&json), "\"entrypoint\":[],\"cmd\":[],\"labels\":{}"));
}

static void check_two_layers(struct rig *rig, const char *format)
{
    autobuf struct buf json = { 0 };
    struct stat st;

    CHECK_OK(inspect(rig), &rig->err);
    CHECK_STR(rig->info.format, format);
    CHECK_INT(rig->info.layer_count, 2);
    CHECK_STR(rig->info.layers[0].diff_id, sum(&rig->lower));
    CHECK_STR(rig->info.layers[1].diff_id, sum(&rig->upper));
    CHECK(fstatat(rig->fd, "layer.1", &st, 0) == 0 && (size_t)st.st_size == rig->upper.len);
    CHECK_OK(image_info_put(&rig->info, &json, &rig->err), &rig->err);
    CHECK(strstr(buf_cstr(&json), "\"env\":[\"A=1\"],\"user\":\"web\",\"workdir\":\"\","
                                  "\"entrypoint\":[],\"cmd\":[\"sh\"],\"labels\":{\"k\":\"v\"}"));
}

TEST(an_oci_layout_is_read)
{
    autorig struct rig rig = { 0 };

    rig_init(&rig);
    make_manifest(&rig);
    make_index(&rig, ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"two\"}");
    finish_oci(&rig);
    check_two_layers(&rig, "oci");
    CHECK_STR(rig.info.digest, sum(&rig.manifest));
    CHECK_STR(rig.info.name, "two");
}

TEST(the_manifest_of_this_machine_is_chosen)
{
    autorig struct rig rig = { 0 };
    autobuf struct buf nested = { 0 };

    rig_init(&rig);
    make_manifest(&rig);
    buf_printf(&nested,
               "{\"manifests\":[{\"digest\":\"sha256:%064d\",\"platform\":{\"architecture\":"
               "\"arm64\",\"os\":\"linux\"}},{\"digest\":\"%s\",\"platform\":{" MACHINE "}}]}",
               0, sum(&rig.manifest));
    put_blob(&rig, &nested);
    buf_printf(&rig.index, "{\"manifests\":[{\"digest\":\"%s\"}]}", sum(&nested));
    finish_oci(&rig);
    check_two_layers(&rig, "oci");
    CHECK_STR(rig.info.digest, sum(&rig.manifest));
}

TEST(a_docker_archive_is_read)
{
    autorig struct rig rig = { 0 };
    autofree char *name = NULL;

    rig_init(&rig);
    name = xprintf("%s.json", sum(&rig.config) + 7);
    buf_printf(&rig.manifest,
               "[{\"Config\":\"%s\",\"RepoTags\":[\"two:latest\"],"
               "\"Layers\":[\"a/layer.tar\",\"b/layer.tar\"]}]",
               name);
    rig_add(&rig.tar, (struct rig_entry){
                          .name = name, .type = '0', .data = buf_view(&rig.config), .size = -1 });
    rig_add(&rig.tar,
            (struct rig_entry){
                .name = "c/layer.tar", .type = '0', .data = buf_view(&rig.lower), .size = -1 });
    rig_link(&rig.tar, '2', "a/layer.tar", "../c/layer.tar");
    rig_add(&rig.tar,
            (struct rig_entry){
                .name = "b/layer.tar", .type = '0', .data = buf_view(&rig.upper), .size = -1 });
    rig_file(&rig.tar, "manifest.json", buf_cstr(&rig.manifest));
    check_two_layers(&rig, "docker");
    CHECK_STR(rig.info.digest, sum(&rig.config));
    CHECK_STR(rig.info.name, "two:latest");
}

/* ---- lies ---- */

TEST(what_is_not_what_its_digest_says_is_refused)
{
    static const struct {
        const char *from, *to, *says; /* changed after all digests were made */
    } cases[] = {
        { "one", "two", "layer 0: it is not what its digest says" },
        { "web", "top", "config: " },
        { "size", "sise", "not what its digest says" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autorig struct rig rig = { 0 };

        rig_init(&rig);
        make_manifest(&rig);
        make_index(&rig, "");
        finish_oci(&rig);
        swap(&rig.tar, cases[i].from, cases[i].to);
        refused(&rig, ERR_INVALID, cases[i].says);
    }
}

TEST(a_layer_that_is_not_its_diff_id_is_refused)
{
    autorig struct rig rig = { 0 };

    rig_init(&rig);
    buf_clear(&rig.lower); /* digests of the manifest agree, the config's does not */
    rig_file(&rig.lower, "etc/os", "another");
    rig_end(&rig.lower);
    make_manifest(&rig);
    make_index(&rig, "");
    finish_oci(&rig);
    refused(&rig, ERR_INVALID, "layer 0: what is in it is not what the config's diff id says");
}

TEST(missing_pieces_are_named)
{
    static const struct {
        size_t at;
        const char *says;
    } cases[] = {
        { offsetof(struct rig, upper), "layer 1: the archive has no blobs/sha256/" },
        { offsetof(struct rig, config), "config: the archive has no blobs/sha256/" },
        { offsetof(struct rig, manifest), "the archive has no blobs/sha256/" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autorig struct rig rig = { 0 };
        struct buf *bytes = (struct buf *)(void *)((char *)&rig + cases[i].at);
        autofree char *name = NULL;

        rig_init(&rig);
        make_manifest(&rig);
        make_index(&rig, "");
        name = xstrdup(blob(bytes));
        finish_oci(&rig);
        char *at = memmem(rig.tar.data, rig.tar.len, name, strlen(name));
        CHECK(at != NULL);
        at[0] = 'c'; /* its header's sum, too, or the whole archive is damaged */
        unsigned total = 0;
        memset(at + 148, ' ', 8);
        for (size_t k = 0; k < 512; k++)
            total += (unsigned char)at[k];
        rig_octal(at + 148, 7, total);
        refused(&rig, ERR_UNPROCESSABLE, cases[i].says);
    }
}

TEST(the_wrong_machine_is_said)
{
    autorig struct rig one = { 0 }, two = { 0 };

    rig_init(&one);
    swap(&one.config, "amd64", "riscv");
    make_manifest(&one);
    make_index(&one, "");
    finish_oci(&one);
    refused(&one, ERR_UNPROCESSABLE, "the image is for linux/riscv; this machine is amd64");
    rig_init(&two);
    make_manifest(&two);
    make_index(&two, ",\"platform\":{\"architecture\":\"s390x\",\"os\":\"linux\"}");
    finish_oci(&two);
    refused(&two, ERR_UNPROCESSABLE, "no image for amd64 in the archive; there is s390x");
}

TEST(an_index_of_indexes_ends)
{
    autorig struct rig rig = { 0 };
    autobuf struct buf inner = { 0 };

    rig_init(&rig);
    /* A cycle of digests cannot be made; a chain can. */
    buf_puts(&inner, "{\"manifests\":[{\"digest\":\"sha256:0\"}]}");
    for (unsigned i = 0; i < IMAGE_INDEXES_MAX + 1; i++) {
        autobuf struct buf outer = { 0 };

        buf_printf(&outer, "{\"manifests\":[{\"digest\":\"%s\"}]}", sum(&inner));
        put_blob(&rig, &inner);
        buf_clear(&inner);
        buf_str(&inner, buf_view(&outer));
    }
    buf_str(&rig.index, buf_view(&inner));
    rig_file(&rig.tar, "oci-layout", "{}");
    rig_file(&rig.tar, "index.json", buf_cstr(&rig.index));
    refused(&rig, ERR_INVALID, "an index that names an index");
}

static void docker(struct rig *rig, const char *manifest)
{
    rig_init(rig);
    rig_file(&rig->tar, "manifest.json", manifest);
    rig_file(&rig->tar, "c.json",
             "{" MACHINE ",\"rootfs\":{\"diff_ids\":[\"sha256:"
             "0000000000000000000000000000000000000000000000000000000000000000\"]}}");
}

TEST(links_in_a_circle_end)
{
    autorig struct rig rig = { 0 };

    docker(&rig, "[{\"Config\":\"c.json\",\"Layers\":[\"a\"]}]");
    rig_link(&rig.tar, '2', "a", "b");
    rig_link(&rig.tar, '2', "b", "a");
    refused(&rig, ERR_INVALID, "layer 0: a is a link to a link");
}

TEST(broken_docker_archives_are_refused)
{
    static const struct {
        const char *manifest;
        enum err_code code;
        const char *says;
    } cases[] = {
        { "[", ERR_INVALID, "manifest.json" },
        { "{}", ERR_INVALID, "names no image" },
        { "[]", ERR_INVALID, "names no image" },
        { "[{\"Config\":1,\"Layers\":[]}]", ERR_INVALID, "names no image" },
        { "[{\"Config\":\"d.json\",\"Layers\":[]}]", ERR_UNPROCESSABLE, "no d.json" },
        { "[{\"Config\":\"c.json\",\"Layers\":[]}]", ERR_INVALID, "0 layers, the config 1" },
        { "[{\"Config\":\"c.json\",\"Layers\":[7]}]", ERR_INVALID, "no name" },
        { "[{\"Config\":\"c.json\",\"Layers\":[\"x\"]}]", ERR_UNPROCESSABLE, "layer 0: " },
        { "[{\"Config\":\"c.json\",\"Layers\":[\"x\"]},{}]", ERR_UNPROCESSABLE, "2 images" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autorig struct rig rig = { 0 };

        docker(&rig, cases[i].manifest);
        refused(&rig, cases[i].code, cases[i].says);
    }
}

TEST(a_docker_config_that_is_not_its_name_is_refused)
{
    autorig struct rig rig = { 0 };
    autofree char *name = NULL, *manifest = NULL;

    rig_init(&rig);
    name = xprintf("%s.json", sum(&rig.config) + 7);
    swap(&rig.config, "web", "top");
    manifest = xprintf("[{\"Config\":\"%s\",\"Layers\":[\"a\",\"b\"]}]", name);
    rig_file(&rig.tar, name, buf_cstr(&rig.config));
    rig_file(&rig.tar, "manifest.json", manifest);
    refused(&rig, ERR_INVALID, "not what its name says");
}

TEST(a_file_that_comes_twice_is_refused)
{
    autorig struct rig rig = { 0 };

    docker(&rig, "[{\"Config\":\"c.json\",\"Layers\":[\"x\"]}]");
    rig_file(&rig.tar, "./c.json", "{}");
    refused(&rig, ERR_INVALID, "c.json twice");
}

TEST(a_config_of_wrong_types_is_refused)
{
    static const char *const bad[][2] = {
        { "[\"sh\"]", "[ 12 ]" },
        { "{\"k\":\"v\"}", "{\"k\":123}" },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autorig struct rig rig = { 0 };

        rig_init(&rig);
        swap(&rig.config, bad[i][0], bad[i][1]);
        make_manifest(&rig);
        make_index(&rig, "");
        finish_oci(&rig);
        refused(&rig, ERR_INVALID, "config");
    }
}

/* ---- limits ---- */

TEST(uploads_have_a_limit)
{
    for (unsigned past = 0; past < 2; past++) {
        autorig struct rig rig = { 0 };

        rig_init(&rig);
        rig_file(&rig.tar, "f", "x");
        rig.limits.upload = rig.tar.len + 1024 - past;
        if (past)
            refused(&rig, ERR_LIMIT, "more than");
        else
            CHECK_OK(inspect(&rig), &rig.err);
    }
}

TEST(the_files_of_an_archive_have_a_limit)
{
    for (unsigned past = 0; past < 2; past++) {
        autorig struct rig rig = { 0 };

        rig_init(&rig);
        make_manifest(&rig);
        make_index(&rig, "");
        finish_oci(&rig);
        rig.limits.parts = 6 - past;
        if (past)
            refused(&rig, ERR_LIMIT, "more than 5 files");
        else
            check_two_layers(&rig, "oci");
    }
}

TEST(layers_have_a_limit)
{
    for (unsigned past = 0; past < 2; past++) {
        autorig struct rig rig = { 0 };
        autobuf struct buf layers = { 0 };

        rig_init(&rig);
        buf_clear(&rig.config);
        buf_puts(&rig.config, "{" MACHINE ",\"rootfs\":{\"diff_ids\":[");
        for (unsigned i = 0; i < IMAGE_LAYERS_MAX + past; i++) {
            buf_printf(&rig.config, "%s\"%s\"", i ? "," : "", sum(&rig.lower));
            buf_printf(&layers, "%s\"lower\"", i ? "," : "");
        }
        buf_puts(&rig.config, "]}}");
        buf_printf(&rig.manifest, "[{\"Config\":\"c\",\"Layers\":[%s]}]", buf_cstr(&layers));
        rig_file(&rig.tar, "manifest.json", buf_cstr(&rig.manifest));
        rig_file(&rig.tar, "c", buf_cstr(&rig.config));
        rig_add(&rig.tar,
                (struct rig_entry){
                    .name = "lower", .type = '0', .data = buf_view(&rig.lower), .size = -1 });
        if (past)
            refused(&rig, ERR_LIMIT, "129 layers; at most 128");
        else
            CHECK_OK(inspect(&rig), &rig.err);
    }
}

TEST(a_manifest_has_a_limit)
{
    for (unsigned past = 0; past < 2; past++) {
        autorig struct rig rig = { 0 };
        autobuf struct buf text = { 0 };

        rig_init(&rig);
        while (text.len < IMAGE_JSON_MAX + past)
            buf_putc(&text, ' ');
        rig_file(&rig.tar, "manifest.json", buf_cstr(&text));
        refused(&rig, past ? ERR_LIMIT : ERR_INVALID, past ? "at most" : "manifest.json");
    }
}

TEST(what_is_told_has_a_limit)
{
    autorig struct rig rig = { 0 };
    autobuf struct buf json = { 0 }, big = { 0 };

    rig_init(&rig);
    while (big.len < IMAGE_INFO_MAX)
        buf_puts(&big, "0123456789abcdef");
    struct json text = { .type = JSON_STRING, .key = STR("User"), .text = buf_view(&big) };
    struct json config = { .type = JSON_OBJECT, .count = 1, .first = &text };
    rig.info = (struct image_info){ .format = "tar", .config = &config };
    CHECK(image_info_put(&rig.info, &json, &rig.err) < 0 && rig.err.code == ERR_LIMIT);
}

TEST(nothing_at_all_is_no_archive)
{
    static const char *const bad[] = { "", "hello", "PK\003\004zip", "\037\213\010damaged" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autorig struct rig rig = { 0 };
        autoclose int fd = rig_fd(str_of(bad[i]));

        rig_init(&rig);
        CHECK(image_inspect(&rig.limits, fd, rig.fd, "amd64", &rig.info, &rig.err) < 0);
        CHECK_INT(rig.err.code, ERR_INVALID);
    }
    autorig struct rig rig = { 0 };
    rig_init(&rig);
    refused(&rig, ERR_INVALID, "no entries");
}
