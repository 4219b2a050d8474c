/*
 * Each step runs in a transaction together with the row that records it, so that a kill leaves
 * the store before or after a step and never inside. The row keeps a checksum of the step's text:
 * a step that was changed after it had been applied somewhere is refused, because two stores of
 * "version 1" would then differ. A store that knows more steps than the program is refused too;
 * it was made by a newer one, and writing to it could undo what that one relies on.
 *
 * Types are TEXT, BIGINT and {blob}; times are milliseconds of wall clock; 0 stands for "never".
 * What must never change is guarded by triggers: audit rows as a whole, events except for their
 * removal by retention.
 */
#include "store/schema.h"

#include "base/clock.h"
#include "base/hash.h"

/* clang-format off */
static const char first_tables[] =
    "CREATE TABLE tenant ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  event_seq BIGINT NOT NULL DEFAULT 0,"  /* newest number given out */
    "  event_floor BIGINT NOT NULL DEFAULT 1" /* oldest number still kept */
    ") {clustered};"
    "INSERT INTO tenant (id) VALUES ('default');"

    "CREATE TABLE event ("
    "  tenant TEXT NOT NULL,"
    "  seq BIGINT NOT NULL,"
    "  at_ms BIGINT NOT NULL,"
    "  type TEXT NOT NULL,"
    "  object TEXT NOT NULL,"
    "  body TEXT NOT NULL,"
    "  PRIMARY KEY (tenant, seq)"
    ") {clustered};"
    "CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN"
    "  SELECT RAISE(ABORT, 'events are never changed'); END;"
    /* REPLACE removes a row without a DELETE trigger: a row may only be the newest one. */
    "CREATE TRIGGER event_at_end BEFORE INSERT ON event"
    "  WHEN NEW.seq IS NOT (SELECT event_seq FROM tenant WHERE id = NEW.tenant) BEGIN"
    "  SELECT RAISE(ABORT, 'events are never changed, only added'); END;"

    "CREATE TABLE audit ("
    "  seq BIGINT NOT NULL PRIMARY KEY,"
    "  at_ms BIGINT NOT NULL,"
    "  tenant TEXT NOT NULL,"
    "  actor TEXT NOT NULL,"
    "  role TEXT NOT NULL,"
    "  action TEXT NOT NULL,"
    "  object TEXT NOT NULL,"
    "  outcome TEXT NOT NULL,"
    "  request_id TEXT NOT NULL,"
    "  peer TEXT NOT NULL,"
    "  detail TEXT NOT NULL,"
    "  hash TEXT NOT NULL" /* hex; see audit.c */
    ") {clustered};"
    "CREATE INDEX audit_by_tenant ON audit (tenant, seq);"
    "CREATE TABLE audit_head ("
    "  id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),"
    "  seq BIGINT NOT NULL,"
    "  hash TEXT NOT NULL"
    ") {clustered};"
    "INSERT INTO audit_head (id, seq, hash) VALUES"
    " (1, 0, '0000000000000000000000000000000000000000000000000000000000000000');"
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN"
    "  SELECT RAISE(ABORT, 'audit rows are never changed'); END;"
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN"
    "  SELECT RAISE(ABORT, 'audit rows are never removed'); END;"
    "CREATE TRIGGER audit_at_end BEFORE INSERT ON audit"
    "  WHEN NEW.seq IS NOT (SELECT seq + 1 FROM audit_head) BEGIN"
    "  SELECT RAISE(ABORT, 'audit rows are never changed, only added'); END;"
    "CREATE TRIGGER audit_head_no_delete BEFORE DELETE ON audit_head BEGIN"
    "  SELECT RAISE(ABORT, 'the head of the audit chain is never removed'); END;"

    "CREATE TABLE token ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  name TEXT NOT NULL,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  role TEXT NOT NULL,"
    "  scopes TEXT NOT NULL,"
    "  hash {blob} NOT NULL UNIQUE,"
    "  sign_key {blob},"
    "  signing BIGINT NOT NULL DEFAULT 0,"
    "  created_ms BIGINT NOT NULL,"
    "  expires_ms BIGINT NOT NULL DEFAULT 0,"
    "  revoked_ms BIGINT NOT NULL DEFAULT 0,"
    "  used_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE UNIQUE INDEX token_name ON token (tenant, name) WHERE revoked_ms = 0;"

    "CREATE TABLE session ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  role TEXT NOT NULL,"
    "  hash {blob} NOT NULL UNIQUE,"
    "  csrf {blob} NOT NULL,"
    "  created_ms BIGINT NOT NULL,"
    "  expires_ms BIGINT NOT NULL,"
    "  ended_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE INDEX session_by_end ON session (expires_ms);"

    "CREATE TABLE login_code ("
    "  hash {blob} NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  role TEXT NOT NULL,"
    "  expires_ms BIGINT NOT NULL,"
    "  used_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE INDEX login_code_by_end ON login_code (expires_ms);"

    "CREATE TABLE nonce ("
    "  key TEXT NOT NULL PRIMARY KEY,"
    "  at_ms BIGINT NOT NULL"
    ") {clustered};"
    "CREATE INDEX nonce_by_age ON nonce (at_ms);"

    "CREATE TABLE idempotency ("
    "  tenant TEXT NOT NULL,"
    "  principal TEXT NOT NULL,"
    "  key TEXT NOT NULL,"
    "  route TEXT NOT NULL,"
    "  body_hash {blob} NOT NULL,"
    "  status BIGINT NOT NULL,"
    "  reply TEXT NOT NULL,"
    "  at_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, principal, key)"
    ") {clustered};"
    "CREATE INDEX idempotency_by_age ON idempotency (at_ms);";

/* Sandboxes that were not deleted, and their commands; what they were asked to be is JSON. */
static const char sandbox_tables[] =
    "CREATE TABLE sandbox ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  name TEXT NOT NULL,"
    "  slot BIGINT NOT NULL," /* its range of user ids; taken while it lives */
    "  state TEXT NOT NULL,"
    "  reason TEXT NOT NULL,"
    "  spec TEXT NOT NULL,"
    "  by TEXT NOT NULL,"
    "  created_ms BIGINT NOT NULL,"
    "  changed_ms BIGINT NOT NULL,"
    "  expires_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE UNIQUE INDEX sandbox_name ON sandbox (tenant, name) WHERE name <> '';"

    "CREATE TABLE exec ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  sandbox TEXT NOT NULL REFERENCES sandbox (id),"
    "  number BIGINT NOT NULL," /* what the sandbox's init calls it */
    "  state TEXT NOT NULL,"
    "  spec TEXT NOT NULL,"
    "  by TEXT NOT NULL,"
    "  pid BIGINT NOT NULL DEFAULT 0,"
    "  code BIGINT NOT NULL DEFAULT -1,"
    "  signal BIGINT NOT NULL DEFAULT 0,"
    "  timed_out BIGINT NOT NULL DEFAULT 0,"
    "  user_us BIGINT NOT NULL DEFAULT 0,"
    "  system_us BIGINT NOT NULL DEFAULT 0,"
    "  maxrss_kb BIGINT NOT NULL DEFAULT 0,"
    "  started_ms BIGINT NOT NULL,"
    "  ended_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE UNIQUE INDEX exec_by_sandbox ON exec (sandbox, number);";

/* Trees of files that the warden keeps under their numbers (box/disk.h). */
static const char disk_tables[] =
    "CREATE TABLE disk ("
    "  number BIGINT NOT NULL PRIMARY KEY,"
    "  id TEXT NOT NULL,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  kind TEXT NOT NULL,"
    "  name TEXT NOT NULL,"
    "  sandbox TEXT NOT NULL," /* whose root it is, or whose snapshot it was */
    "  spec TEXT NOT NULL,"    /* of a snapshot: what that sandbox was asked to be */
    "  bytes BIGINT NOT NULL,"
    "  state TEXT NOT NULL,"
    "  by TEXT NOT NULL,"
    "  made_ms BIGINT NOT NULL"
    ") {clustered};"
    "CREATE UNIQUE INDEX disk_name ON disk (tenant, kind, sandbox, name) WHERE name <> '';"
    "CREATE TABLE disk_number ("
    "  id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),"
    "  last BIGINT NOT NULL" /* newest number given out; none is given out twice */
    ") {clustered};"
    "INSERT INTO disk_number (id, last) VALUES (1, 0);"
    "ALTER TABLE sandbox ADD COLUMN disk BIGINT NOT NULL DEFAULT 0;"    /* its root; 0: memory */
    "ALTER TABLE sandbox ADD COLUMN asleep BIGINT NOT NULL DEFAULT 0;"; /* by its idle policy */

/* Sandboxes made ahead: how many of which kind (box/pool.h). */
static const char pool_tables[] =
    "CREATE TABLE pool ("
    "  name TEXT NOT NULL PRIMARY KEY,"
    "  size BIGINT NOT NULL,"
    "  image TEXT NOT NULL,"
    "  user_name TEXT NOT NULL,"
    "  storage TEXT NOT NULL,"
    "  changed_ms BIGINT NOT NULL"
    ") {clustered};";

/* What sandboxes begin with (box/image.h). */
static const char image_tables[] =
    "CREATE TABLE image ("
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  name TEXT NOT NULL,"
    "  told TEXT NOT NULL,"   /* what its unpacker said of it */
    "  layers TEXT NOT NULL," /* numbers of disks, the lowest first */
    "  by TEXT NOT NULL,"
    "  made_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, name)"
    ") {clustered};";

/* Values that are sealed, and hashes of the secrets of agents (auth/vault.h). */
static const char secret_tables[] =
    "CREATE TABLE secret ("
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  name TEXT NOT NULL,"
    "  kind TEXT NOT NULL," /* value, agent */
    "  version BIGINT NOT NULL,"
    "  by TEXT NOT NULL,"
    "  created_ms BIGINT NOT NULL,"
    "  changed_ms BIGINT NOT NULL,"
    "  sealed {blob},"
    "  hash {blob},"
    "  next {blob}," /* of an agent: the secret that is to follow, until… */
    "  next_until_ms BIGINT NOT NULL DEFAULT 0,"
    "  PRIMARY KEY (tenant, name)"
    ") {clustered};"
    "CREATE UNIQUE INDEX secret_agent ON secret (name) WHERE kind = 'agent';";

/* Agents that connect from elsewhere, and their commands (link/links.h). */
static const char link_tables[] =
    "CREATE TABLE link_agent ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  instance_id TEXT NOT NULL,"
    "  seen_ms BIGINT NOT NULL" /* when it last registered or left */
    ") {clustered};"
    "CREATE TABLE link_command ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  agent TEXT NOT NULL,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  command TEXT NOT NULL,"
    "  session_name TEXT NOT NULL,"
    "  pty BIGINT NOT NULL,"
    "  state TEXT NOT NULL,"
    "  exit_code BIGINT NOT NULL DEFAULT -1,"
    "  error TEXT NOT NULL DEFAULT '',"
    "  gap BIGINT NOT NULL DEFAULT 0,"
    "  duration_ms BIGINT NOT NULL DEFAULT 0,"
    "  by TEXT NOT NULL,"
    "  started_ms BIGINT NOT NULL,"
    "  ended_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE INDEX link_command_by_agent ON link_command (agent, started_ms);";

/* What was answered 202 (api/operation.c). */
static const char operation_tables[] =
    "CREATE TABLE operation ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  type TEXT NOT NULL,"
    "  status TEXT NOT NULL,"
    "  target TEXT NOT NULL,"
    "  error TEXT NOT NULL,"
    "  result TEXT NOT NULL,"
    "  progress BIGINT NOT NULL,"
    "  created_ms BIGINT NOT NULL,"
    "  completed_ms BIGINT NOT NULL DEFAULT 0"
    ") {clustered};";

/* Wishes for sandboxes under a name (box/template.h). */
static const char template_tables[] =
    "CREATE TABLE template ("
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  name TEXT NOT NULL,"
    "  spec TEXT NOT NULL," /* as it was said */
    "  by TEXT NOT NULL,"
    "  changed_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, name)"
    ") {clustered};";

/* Limits of what subjects may have (box/quota.h). */
static const char quota_tables[] =
    "CREATE TABLE quota ("
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  subject TEXT NOT NULL,"
    "  sandboxes BIGINT NOT NULL," /* 0: no limit; so in all of them */
    "  memory BIGINT NOT NULL,"
    "  cpu_percent BIGINT NOT NULL,"
    "  disk BIGINT NOT NULL,"
    "  sandbox_memory BIGINT NOT NULL,"
    "  sandbox_cpu_percent BIGINT NOT NULL,"
    "  sandbox_disk BIGINT NOT NULL,"
    "  by TEXT NOT NULL,"
    "  changed_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, subject)"
    ") {clustered};";

/* Each time that process 1 of a sandbox died by itself (box/crashes.c). */
static const char crash_tables[] =
    "CREATE TABLE crash ("
    "  sandbox TEXT NOT NULL REFERENCES sandbox (id),"
    "  at_ms BIGINT NOT NULL,"
    "  uptime_ms BIGINT NOT NULL,"
    "  reason TEXT NOT NULL,"
    "  PRIMARY KEY (sandbox, at_ms)"
    ") {clustered};";

static const char oom_column[] = "ALTER TABLE exec ADD COLUMN oom BIGINT NOT NULL DEFAULT 0;";

/* Layers of policy and packs, what went out or wanted to, and questions to people (gate/gate.h). */
static const char egress_tables[] =
    "CREATE TABLE egress_layer ("
    "  tenant TEXT NOT NULL,"   /* '' for the node's */
    "  level TEXT NOT NULL,"    /* node, tenant, project */
    "  name TEXT NOT NULL,"     /* of a project, or '' */
    "  version BIGINT NOT NULL,"
    "  spec TEXT NOT NULL,"
    "  by TEXT NOT NULL,"
    "  changed_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, level, name)"
    ") {clustered};"
    "CREATE TABLE egress_pack ("
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  name TEXT NOT NULL,"
    "  help TEXT NOT NULL,"
    "  rules TEXT NOT NULL," /* a JSON list */
    "  by TEXT NOT NULL,"
    "  changed_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, name)"
    ") {clustered};"
    "CREATE TABLE egress_record ("
    "  seq BIGINT NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL,"
    "  sandbox TEXT NOT NULL,"
    "  conn TEXT NOT NULL,"     /* process, connection and request, as the egress process counts */
    "  run TEXT NOT NULL,"
    "  at_ms BIGINT NOT NULL,"
    "  kind TEXT NOT NULL,"
    "  verdict TEXT NOT NULL,"
    "  why TEXT NOT NULL,"
    "  host TEXT NOT NULL,"
    "  port BIGINT NOT NULL,"
    "  rule TEXT NOT NULL,"
    "  reason TEXT NOT NULL,"
    "  method TEXT NOT NULL,"
    "  path TEXT NOT NULL,"
    "  version BIGINT NOT NULL,"
    "  ended_ms BIGINT NOT NULL DEFAULT 0,"
    "  sent BIGINT NOT NULL DEFAULT 0,"
    "  received BIGINT NOT NULL DEFAULT 0,"
    "  addr TEXT NOT NULL DEFAULT '',"
    "  revoked BIGINT NOT NULL DEFAULT 0"
    ") {clustered};"
    "CREATE INDEX egress_record_by_tenant ON egress_record (tenant, seq);"
    "CREATE INDEX egress_record_by_sandbox ON egress_record (sandbox, seq);"
    "CREATE INDEX egress_record_open ON egress_record (sandbox, conn) WHERE ended_ms = 0;"
    "CREATE TABLE egress_host ("
    "  tenant TEXT NOT NULL,"
    "  sandbox TEXT NOT NULL,"
    "  host TEXT NOT NULL,"     /* '' for all of them together */
    "  port BIGINT NOT NULL,"
    "  allowed BIGINT NOT NULL DEFAULT 0,"
    "  denied BIGINT NOT NULL DEFAULT 0,"
    "  sent BIGINT NOT NULL DEFAULT 0,"
    "  received BIGINT NOT NULL DEFAULT 0,"
    "  first_ms BIGINT NOT NULL,"
    "  last_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (sandbox, host, port)"
    ") {clustered};"
    "CREATE TABLE ask ("
    "  id TEXT NOT NULL PRIMARY KEY,"
    "  tenant TEXT NOT NULL REFERENCES tenant (id),"
    "  kind TEXT NOT NULL,"     /* egress, … */
    "  sandbox TEXT NOT NULL,"
    "  action TEXT NOT NULL,"   /* JSON: exactly what is asked for */
    "  hash TEXT NOT NULL,"     /* of action, hex */
    "  state TEXT NOT NULL,"    /* pending, allowed, denied, expired, withdrawn */
    "  created_ms BIGINT NOT NULL,"
    "  expires_ms BIGINT NOT NULL,"
    "  decided_ms BIGINT NOT NULL DEFAULT 0,"
    "  by TEXT NOT NULL DEFAULT '',"
    "  note TEXT NOT NULL DEFAULT ''"
    ") {clustered};"
    "CREATE INDEX ask_by_tenant ON ask (tenant, id);"
    "CREATE INDEX ask_pending ON ask (expires_ms) WHERE state = 'pending';";

/* What a sealed value is for, and where it may go (auth/vault.h). */
static const char secret_uses[] =
    "ALTER TABLE secret ADD COLUMN use TEXT NOT NULL DEFAULT 'server';"    /* server, request */
    "ALTER TABLE secret ADD COLUMN hosts TEXT NOT NULL DEFAULT '';"        /* one in a line */
    "ALTER TABLE secret ADD COLUMN placeholder TEXT NOT NULL DEFAULT '';"; /* inside sandboxes */

/* Of the row of all hosts together: what counts for max_bytes, unfinished connections too. */
static const char egress_used[] =
    "ALTER TABLE egress_host ADD COLUMN used BIGINT NOT NULL DEFAULT 0;";

/* The same guards, against the rows themselves: heads are written once for many rows. */
static const char at_end_triggers[] =
    "DROP TRIGGER event_at_end;"
    "CREATE TRIGGER event_at_end BEFORE INSERT ON event"
    "  WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM event WHERE tenant = NEW.tenant),"
    "    (SELECT event_seq FROM tenant WHERE id = NEW.tenant)) BEGIN"
    "  SELECT RAISE(ABORT, 'events are never changed, only added'); END;"
    "DROP TRIGGER audit_at_end;"
    "CREATE TRIGGER audit_at_end BEFORE INSERT ON audit"
    "  WHEN NEW.seq IS NOT 1 + coalesce((SELECT max(seq) FROM audit), 0) BEGIN"
    "  SELECT RAISE(ABORT, 'audit rows are never changed, only added'); END;";

/* Beside audit_of_hub: a row is in one of the two (audit.c). */
static const char audit_indexes[] =
    "DROP INDEX audit_by_tenant;"
    "CREATE INDEX audit_by_tenant ON audit (tenant, seq)"
    "  WHERE action < 'hub.' OR action >= 'hub/';";

/*
 * That rows are only added at the end is looked at once for all of a transaction (events_write,
 * audits_write): a trigger for each row costs as much as the row. REPLACE removes a row, and
 * recursive_triggers (sqlite.c) has it meet the triggers for that. Events go when they are old: the
 * floor moves first.
 */
static const char no_removal[] =
    "DROP TRIGGER event_at_end;"
    "DROP TRIGGER audit_at_end;"
    "CREATE TRIGGER event_no_delete BEFORE DELETE ON event"
    "  WHEN OLD.seq >= (SELECT event_floor FROM tenant WHERE id = OLD.tenant) BEGIN"
    "  SELECT RAISE(ABORT, 'events are never changed, only added'); END;";

static const char hub_comments[] =
    "CREATE TABLE hub_comment ("
    "  tenant TEXT NOT NULL,"
    "  task TEXT NOT NULL,"
    "  number BIGINT NOT NULL,"
    "  author TEXT NOT NULL,"
    "  text TEXT NOT NULL,"
    "  at_ms BIGINT NOT NULL,"
    "  PRIMARY KEY (tenant, task, number)"
    ") {clustered};";

/*
 * Rows that are only added lie one after the other, and a full page is left as it is. In a table
 * that is clustered it is spread over its neighbours first, and rows stand in inner pages too.
 */
static const char audit_rows[] =
    "CREATE TABLE audit_rows ("
    "  seq {number} PRIMARY KEY,"
    "  at_ms BIGINT NOT NULL,"
    "  tenant TEXT NOT NULL,"
    "  actor TEXT NOT NULL,"
    "  role TEXT NOT NULL,"
    "  action TEXT NOT NULL,"
    "  object TEXT NOT NULL,"
    "  outcome TEXT NOT NULL,"
    "  request_id TEXT NOT NULL,"
    "  peer TEXT NOT NULL,"
    "  detail TEXT NOT NULL,"
    "  hash TEXT NOT NULL"
    ");"
    "INSERT INTO audit_rows (seq, at_ms, tenant, actor, role, action, object, outcome, request_id,"
    "  peer, detail, hash) SELECT seq, at_ms, tenant, actor, role, action, object, outcome,"
    "  request_id, peer, detail, hash FROM audit ORDER BY seq;"
    "DROP TABLE audit;"
    "ALTER TABLE audit_rows RENAME TO audit;"
    "CREATE INDEX audit_of_hub ON audit (tenant, seq) WHERE action >= 'hub.' AND action < 'hub/';"
    "CREATE INDEX audit_by_tenant ON audit (tenant, seq)"
    "  WHERE action < 'hub.' OR action >= 'hub/';"
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN"
    "  SELECT RAISE(ABORT, 'audit rows are never changed'); END;"
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN"
    "  SELECT RAISE(ABORT, 'audit rows are never removed'); END;";

static const char event_rows[] =
    "CREATE TABLE event_rows ("
    "  tenant TEXT NOT NULL,"
    "  seq BIGINT NOT NULL,"
    "  at_ms BIGINT NOT NULL,"
    "  type TEXT NOT NULL,"
    "  object TEXT NOT NULL,"
    "  body TEXT NOT NULL,"
    "  PRIMARY KEY (tenant, seq)"
    ");"
    "INSERT INTO event_rows (tenant, seq, at_ms, type, object, body)"
    "  SELECT tenant, seq, at_ms, type, object, body FROM event ORDER BY tenant, seq;"
    "DROP TABLE event;"
    "ALTER TABLE event_rows RENAME TO event;"
    "CREATE TRIGGER event_no_update BEFORE UPDATE ON event BEGIN"
    "  SELECT RAISE(ABORT, 'events are never changed'); END;"
    "CREATE TRIGGER event_no_delete BEFORE DELETE ON event"
    "  WHEN OLD.seq >= (SELECT event_floor FROM tenant WHERE id = OLD.tenant) BEGIN"
    "  SELECT RAISE(ABORT, 'events are never changed, only added'); END;";

/*
 * Who reaches an object besides its owner (model/access.h), as JSON; '': nothing was said, and who
 * made it owns it. That of a sandbox is in its spec.
 */
static const char access_columns[] =
    "ALTER TABLE disk ADD COLUMN access TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE secret ADD COLUMN access TEXT NOT NULL DEFAULT '';" /* of a linked agent */
    "ALTER TABLE operation ADD COLUMN by TEXT NOT NULL DEFAULT '';";

const struct migration schema_migrations[] = {
    { 1, "first tables", first_tables },
    { 2, "sandboxes", sandbox_tables },
    { 3, "disks", disk_tables },
    { 4, "pools", pool_tables },
    { 5, "images", image_tables },
    { 6, "secrets", secret_tables },
    { 7, "linked agents", link_tables },
    { 8, "operations", operation_tables },
    { 9, "templates", template_tables },
    { 10, "commands out of memory", oom_column },
    { 11, "egress", egress_tables },
    { 12, "uses of secrets", secret_uses },
    { 13, "the hub", schema_hub },
    { 14, "bytes that were used", egress_used },
    { 15, "guards of events and audit", at_end_triggers },
    { 16, "tasks of an owner", schema_hub_owned },
    { 17, "the number of agents", schema_hub_count },
    { 18, "comments on tasks", hub_comments },
    { 19, "one index for tasks of an owner", schema_hub_owner },
    { 20, "one index for each audit row", audit_indexes },
    { 21, "events and audit rows are not replaced", no_removal },
    { 22, "audit rows one after the other", audit_rows },
    { 23, "events one after the other", event_rows },
    { 24, "access to objects", access_columns },
    { 25, "quotas", quota_tables },
    { 26, "crashes", crash_tables },
    { 0 },
};
/* clang-format on */

/* ---- running a step ---- */

static void put_words(struct buf *out, const struct db_engine *engine, const char *sql)
{
    struct str rest = str_of(sql);

    while (rest.n) {
        if (str_starts(rest, STR("{blob}"))) {
            buf_puts(out, engine->blob_type);
            rest = str_from(rest, 6);
        } else if (str_starts(rest, STR("{clustered}"))) {
            buf_puts(out, engine->clustered);
            rest = str_from(rest, 11);
        } else if (str_starts(rest, STR("{number}"))) {
            buf_puts(out, engine->number_type);
            rest = str_from(rest, 8);
        } else {
            buf_putc(out, rest.p[0]);
            rest = str_from(rest, 1);
        }
    }
}

static void checksum_of(const struct migration *step, char out[SHA256_HEX_SIZE])
{
    unsigned char hash[SHA256_SIZE];

    sha256(step->sql, strlen(step->sql), hash);
    hex_text(hash, sizeof(hash), out);
}

static int record(struct db *db, const struct migration *step, struct err *err)
{
    char checksum[SHA256_HEX_SIZE];
    autoquery struct query *q =
        db_query(db, "INSERT INTO schema_migration (version, name, checksum, at_ms)"
                     " VALUES ($1, $2, $3, $4)");

    checksum_of(step, checksum);
    query_i64(q, 1, step->version);
    query_text(q, 2, step->name);
    query_text(q, 3, checksum);
    query_i64(q, 4, clock_wall_ms());
    return query_run(q, err) < 0 ? -1 : 0;
}

static int apply(struct db *db, const struct migration *step, struct err *err)
{
    autobuf struct buf sql = { 0 };

    put_words(&sql, db->engine, step->sql);
    if (db->engine->script(db, buf_cstr(&sql), err) < 0 || record(db, step, err) < 0)
        return err_wrap(err, "migration %d (%s)", step->version, step->name);
    return 0;
}

/* A step and its record, or neither. */
static int apply_whole(struct db *db, const struct migration *step, struct err *err)
{
    if (db_begin(db, err) < 0)
        return -1;
    if (apply(db, step, err) < 0 || db_commit(db, err) < 0) {
        db_rollback(db);
        return -1;
    }
    return 0;
}

int schema_create(struct db *db, const struct migration *steps, struct err *err)
{
    if (db->engine->script(db, db->engine->mark, err) < 0 ||
        db->engine->script(db,
                           "CREATE TABLE schema_migration ("
                           "  version BIGINT NOT NULL PRIMARY KEY,"
                           "  name TEXT NOT NULL,"
                           "  checksum TEXT NOT NULL,"
                           "  at_ms BIGINT NOT NULL);",
                           err) < 0)
        return err_wrap(err, "make the store");
    for (; steps->version; steps++)
        if (apply_whole(db, steps, err) < 0)
            return -1;
    return 0;
}

/* ---- looking at what is there ---- */

static int check_ours(struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, db->engine->mark_query);
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    if (rc == 0 || !str_is(query_col_str(q, 0), db->engine->mark_value))
        return err_set(err, ERR_UNSUPPORTED, "this database is not an Atoll store");
    return 0;
}

static int newest_known(const struct migration *steps)
{
    int count = 0;

    while (steps[count].version)
        count++;
    return count;
}

static int check_step(const struct migration *step, struct str checksum, struct err *err)
{
    char want[SHA256_HEX_SIZE];

    checksum_of(step, want);
    if (!str_is(checksum, want))
        return err_set(err, ERR_UNSUPPORTED,
                       "migration %d (%s) of this store is not the one this program knows",
                       step->version, step->name);
    return 0;
}

int schema_check(struct db *db, const struct migration *steps, int *version, struct err *err)
{
    int64_t found = 0;
    int rc, newest = newest_known(steps);

    if (check_ours(db, err) < 0)
        return -1;
    autoquery struct query *q =
        db_query(db, "SELECT version, checksum FROM schema_migration ORDER BY version");
    while ((rc = query_step(q, err)) > 0) {
        int64_t at = query_col_i64(q, 0);

        if (at != found + 1)
            return err_set(err, ERR_INTERNAL, "the store's list of migrations has a gap after %lld",
                           (long long)found);
        if (at > newest)
            return err_set(err, ERR_UNSUPPORTED,
                           "the store was made by a newer Atoll: it has schema %lld, and this "
                           "program knows those up to %d",
                           (long long)at, newest);
        if (check_step(&steps[at - 1], query_col_str(q, 1), err) < 0)
            return -1;
        found = at;
    }
    if (rc < 0)
        return -1;
    if (!found)
        return err_set(err, ERR_INTERNAL, "the store's list of migrations is empty");
    *version = (int)found;
    return 0;
}

int schema_migrate(struct db *db, const struct migration *steps, struct err *err)
{
    int version = 0;

    if (schema_check(db, steps, &version, err) < 0)
        return -1;
    for (const struct migration *step = &steps[version]; step->version; step++)
        if (apply_whole(db, step, err) < 0)
            return -1;
    return 0;
}
