#!/usr/bin/env node
// node build.mjs OUTDIR - bundles the dashboard with esbuild into OUTDIR.
//
// Names of scripts and styles hold a hash of their content, so that browsers may keep them for ever;
// index.html names them. gzip and brotli are made by tools/embed-assets' caller once, here, with
// node's own zlib at its strongest.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) {
    console.error("usage: node build.mjs OUTDIR");
    process.exit(64);
}
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });

const result = await build({
    absWorkingDir: here,
    entryPoints: ["src/main.jsx"],
    outdir: join(process.cwd(), out),
    bundle: true, splitting: true, minify: true, format: "esm", target: "es2022",
    jsx: "automatic", jsxImportSource: "preact",
    entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]", assetNames: "[name]-[hash]",
    legalComments: "none", logLevel: "warning", metafile: true,
});

const made = Object.keys(result.metafile.outputs).map((path) => basename(path));
const one = (ending) => "/assets/" + made.find((name) => name.startsWith("main-") && name.endsWith(ending));
const page = readFileSync(join(here, "index.html"), "utf8");
writeFileSync(join(out, "index.html"), page.replace("{{css}}", one(".css")).replace("{{js}}", one(".js")));
copyFileSync(join(here, "src/icon.svg"), join(out, "icon.svg"));

for (const name of readdirSync(out)) {
    const plain = readFileSync(join(out, name));
    writeFileSync(join(out, name + ".gz"), gzipSync(plain, { level: 9 }));
    writeFileSync(join(out, name + ".br"), brotliCompressSync(plain, {
        params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length },
    }));
}
