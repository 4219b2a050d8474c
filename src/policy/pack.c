/* The built-in packs: hosts by suffix, because what serves a package moves around beneath it. */
#include "policy/pack.h"

#define RULES(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* clang-format off */
const struct pack packs[] = {
    { "python", "pip, uv and the Python language",
      RULES(".pypi.org", ".pythonhosted.org", ".python.org") },
    { "conda", "conda and mamba packages",
      RULES(".anaconda.org", ".anaconda.com", ".conda.io") },
    { "node", "npm, yarn, jsr and Node.js",
      RULES("*.npmjs.org", ".npmjs.com", ".nodejs.org", ".yarnpkg.com", ".jsr.io") },
    { "rust", "cargo and rustup",
      RULES(".crates.io", ".rust-lang.org", ".rustup.rs") },
    { "go", "Go modules and toolchains",
      RULES(".golang.org", ".go.dev", ".gopkg.in", "dl.google.com") },
    { "java", "Maven and Gradle",
      RULES("*.maven.org", "*.maven.apache.org", ".gradle.org") },
    { "ruby", "gems and the Ruby language",
      RULES(".rubygems.org", ".ruby-lang.org") },
    { "php", "Composer packages",
      RULES(".packagist.org", ".getcomposer.org") },
    { "debian", "apt of Debian",
      RULES("*.debian.org") },
    { "ubuntu", "apt of Ubuntu",
      RULES("*.ubuntu.com", "*.launchpadcontent.net") },
    { "alpine", "apk of Alpine",
      RULES("*.alpinelinux.org") },
    { "containers", "images of the usual public places",
      RULES(".docker.io", ".docker.com", ".ghcr.io", ".quay.io") },
    { "github", "code, releases and the API of GitHub",
      RULES(".github.com", ".githubusercontent.com", ".githubassets.com") },
    { "github-actions", "logs and artifacts of workflows; the second is a store that anybody can rent",
      RULES("*.actions.githubusercontent.com", "*.blob.core.windows.net") },
    { "gitlab", "code and the API of GitLab",
      RULES(".gitlab.com", ".gitlab-static.net") },
    { "bitbucket", "code and the API of Bitbucket",
      RULES(".bitbucket.org") },
    { "anthropic", "models and documentation of Anthropic",
      RULES(".anthropic.com", ".claude.ai", ".claude.com") },
    { "openai", "models and documentation of OpenAI",
      RULES(".openai.com", ".chatgpt.com") },
    { "gemini", "models of Google",
      RULES("generativelanguage.googleapis.com", "ai.google.dev") },
    { "mistral", "models of Mistral",
      RULES(".mistral.ai") },
    { "huggingface", "models and data sets of Hugging Face",
      RULES(".huggingface.co", ".hf.co") },
    { 0 },
};
/* clang-format on */

const struct pack *pack_find(struct str name)
{
    for (const struct pack *pack = packs; pack->name; pack++)
        if (str_is(name, pack->name))
            return pack;
    return NULL;
}

bool pack_name_ok(struct str name)
{
    if (name.n == 0 || name.n > PACK_NAME_MAX || name.p[0] < 'a' || name.p[0] > 'z')
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-')
            return false;
    }
    return true;
}
